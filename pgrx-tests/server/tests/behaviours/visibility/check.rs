//! One look at a collection by everything that shows it, against a plain SELECT by the same role.

use std::collections::BTreeMap;

use ragent_server_tests::database::literal;
use ragent_server_tests::random::Random;
use ragent_server_tests::session::TextRow;
use serde_json::Value;

use super::asker::{Answer, Voice};
use super::model::Model;
use super::search::{Form, Search};
use super::stored::{Stored, json};
use super::table::Table;

/// More than any collection here has chunks.
const ALL: usize = 1000;
/// What two ways to compute a similarity may differ by.
const ROUNDING: f64 = 1e-5;

/// Settings of a session that must change nothing of a result.
const NOISE: [(&str, &str); 12] = [
    ("DateStyle", "'German, DMY'"),
    ("IntervalStyle", "'iso_8601'"),
    ("bytea_output", "'escape'"),
    ("extra_float_digits", "-15"),
    ("row_security", "off"),
    ("enable_seqscan", "off"),
    ("enable_indexscan", "off"),
    ("enable_nestloop", "off"),
    ("plan_cache_mode", "force_custom_plan"),
    ("plan_cache_mode", "force_generic_plan"),
    ("hnsw.iterative_scan", "relaxed_order"),
    ("rag.exact_search_size", "'1GB'"),
];

/// What a look found, to know whether the cases are of all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The role may not read the table.
    Denied,
    /// A policy failed: what the role may see cannot be said.
    Failed,
    None,
    Some,
    All,
}

/// A row that the role sees.
struct Visible {
    key: Value,
    content: Value,
    title: Value,
    link: Value,
    metadata: Value,
}

/// A chunk that a search may give: collection, key as an array, chunk, content, title, link, metadata; and its score.
#[derive(Debug, Clone)]
struct Hit {
    shown: Vec<Value>,
    score: f64,
}

impl Hit {
    fn identity(&self) -> String {
        format!("{} {} {}", self.shown[0], self.shown[1], self.shown[2])
    }
}

/// A role that looks.
pub struct Look<'a> {
    pub voice: Voice<'a>,
    pub model: &'a Model,
    pub stored: &'a [Stored],
    /// Whether a prepared search of a collection is there already.
    pub prepared: &'a mut Vec<usize>,
    /// Whether the provider answers, so that texts can be searched for.
    pub by_text: bool,
}

impl Look<'_> {
    /// Compares everything that shows a table's rows with a SELECT.
    ///
    /// The error says what differs.
    pub async fn check(&mut self, random: &mut Random, place: usize) -> Result<Outcome, String> {
        let noise = self.make_noise(random).await;
        let collection = Some((place, self.model.tables[place].collection.clone()));
        let everything = self.search(random, collection.clone(), ALL);
        let k = 1 + random.below(9);
        let few = self.search(random, collection, k);
        let mut answers = Vec::new();
        for search in [&everything, &few] {
            if let Some(sql) = search.prepare()
                && !self.prepared.contains(&place)
            {
                self.voice.session.run(&sql).await;
                self.prepared.push(place);
            }
            answers.push(self.voice.ask(&search.sql()).await);
        }
        self.end_noise(&noise).await;
        let visible = self.visible(place).await;
        for (search, answer) in [&everything, &few].into_iter().zip(answers) {
            self.compare(place, search, &answer, &visible)
                .map_err(|e| format!("{e}\nwith {noise:?}\n{}", search.sql()))?;
        }
        self.check_chunk_table(place).await.map_err(|e| format!("the chunk table itself: {e}"))?;
        self.check_views(place, &visible).await?;
        if random.below(3) == 0 {
            self.check_all(random).await.map_err(|e| format!("search of all collections: {e}"))?;
        }
        Ok(match visible {
            Err(code) if code == "42501" => Outcome::Denied,
            Err(_) => Outcome::Failed,
            Ok(rows) if rows.is_empty() => Outcome::None,
            Ok(rows) if rows.len() < self.stored[place].len() => Outcome::Some,
            Ok(_) => Outcome::All,
        })
    }

    /// A search that can be run where this looks.
    fn search(&self, random: &mut Random, collection: Option<(usize, String)>, k: usize) -> Search {
        let definer = self.voice.asker.definer.is_some();
        let mut search = Search::random(random, collection, k, self.voice.in_transaction, definer);
        if search.form == Form::ByText && !self.by_text {
            search.form = Form::Plain;
        }
        search
    }

    /// Sets some of what must not matter; gives what was set.
    async fn make_noise(&self, random: &mut Random) -> Vec<(&'static str, &'static str)> {
        let count = random.below(3);
        let chosen: Vec<_> = (0..count).map(|_| random.choose(&NOISE)).collect();
        let set = if self.voice.in_transaction { "SET LOCAL" } else { "SET" };
        for (name, value) in &chosen {
            self.voice.session.run(&format!("{set} {name} = {value}")).await;
        }
        chosen
    }

    async fn end_noise(&self, chosen: &[(&str, &str)]) {
        let set = if self.voice.in_transaction { "SET LOCAL" } else { "SET" };
        for (name, _) in chosen {
            let value = if *name == "rag.exact_search_size" { "0" } else { "DEFAULT" };
            self.voice.session.run(&format!("{set} {name} TO {value}")).await;
        }
    }

    /// The oracle: the rows that a SELECT of the collection's columns shows to the role, or the SQLSTATE it fails with.
    async fn visible(&self, place: usize) -> Result<Vec<Visible>, String> {
        let table = &self.model.tables[place];
        let sql = format!(
            "SELECT pg_catalog.jsonb_build_array({}, {}, {})::text FROM {}",
            Table::key_values(&table.key_names()),
            table.content_values(),
            table.shown_values(),
            table.sql()
        );
        let rows = self.voice.ask(&sql).await.map_err(|(code, _)| code)?;
        Ok(texts(&rows)
            .map(|text| match json(text) {
                Value::Array(parts) => {
                    let [key, content, title, link, metadata] = parts.try_into().expect("five parts");
                    Visible { key, content, title, link, metadata }
                }
                other => panic!("not an array: {other}"),
            })
            .collect())
    }

    /// The chunks of visible rows whose content is still what the chunks were made of, best first.
    fn hits(&self, place: usize, visible: &[Visible], search: &Search) -> Vec<Hit> {
        let table = &self.model.tables[place];
        let mut hits = Vec::new();
        for row in visible {
            let Some(stored) = self.stored[place].get(&row.key.to_string()) else { continue };
            if stored.content != row.content {
                continue;
            }
            for chunk in &stored.chunks {
                let score = cosine(&chunk.embedding, &search.vector);
                if search.min_score.is_some_and(|least| score < least) {
                    continue;
                }
                let shown = vec![
                    Value::from(table.collection.as_str()),
                    row.key.clone(),
                    Value::from(chunk.number),
                    Value::from(chunk.content.as_str()),
                    row.title.clone(),
                    row.link.clone(),
                    row.metadata.clone(),
                ];
                hits.push(Hit { shown, score });
            }
        }
        hits.sort_by(|a, b| b.score.total_cmp(&a.score));
        hits
    }

    /// What a search gave, its keys as arrays.
    fn found(&self, rows: &[TextRow]) -> Result<Vec<Hit>, String> {
        let read = |text: &str| {
            let Value::Array(mut shown) = json(text) else { return Err(format!("not an array: {text}")) };
            let score = shown.pop().and_then(|score| score.as_f64()).ok_or("no score")?;
            let table = self.model.tables.iter().find(|t| shown[0] == t.collection.as_str());
            let names = table.ok_or_else(|| format!("no such collection: {text}"))?.key_names();
            let object = shown[1].as_object().ok_or("a key that is no object")?;
            if object.len() != names.len() {
                return Err(format!("a key with other columns than {names:?}: {text}"));
            }
            let values: Vec<Value> = names.iter().filter_map(|name| object.get(name).cloned()).collect();
            shown[1] = Value::from(values);
            Ok(Hit { shown, score })
        };
        texts(rows).map(read).collect()
    }

    /// A search of one collection against what the role sees of it.
    fn compare(
        &self,
        place: usize,
        search: &Search,
        answer: &Answer,
        visible: &Result<Vec<Visible>, String>,
    ) -> Result<(), String> {
        let visible = match (visible, answer) {
            (Ok(visible), _) => visible,
            (Err(code), Err((found, _))) if code == found => return Ok(()),
            // The policies were not asked, since no chunk was near enough to be asked about.
            (Err(_), Ok(rows)) if rows.is_empty() => return Ok(()),
            // Which rows a failing policy is asked about is up to the plan.
            (Err(code), _) if code != "42501" => return Ok(()),
            (Err(code), other) => return Err(format!("a SELECT fails with {code}, the search gives {other:?}")),
        };
        let rows = answer.as_ref().map_err(|(_, e)| format!("a SELECT gives rows, the search fails with {e}"))?;
        let (found, hits) = (self.found(rows)?, self.hits(place, visible, search));
        let near = |score: f64| search.min_score.is_some_and(|least| (score - least).abs() < ROUNDING);
        if hits.iter().chain(&found).any(|hit| near(hit.score)) {
            return Ok(());
        }
        same(&found, &hits, search.k)
    }

    /// The chunk table as the role reads it: the chunks of rows whose key, title and content it may SELECT.
    async fn check_chunk_table(&self, place: usize) -> Result<(), String> {
        let table = &self.model.tables[place];
        let sql = format!(
            "SELECT pg_catalog.jsonb_build_array({}, {})::text FROM {}",
            Table::key_values(&table.key_names()),
            table.content_values(),
            table.sql()
        );
        let visible = self.voice.ask(&sql).await;
        let sql = format!(
            "SELECT pg_catalog.jsonb_build_array({}, chunk, content)::text FROM {}",
            Table::key_values(&table.chunk_keys),
            table.chunk_table
        );
        let found = self.voice.ask(&sql).await;
        let owns = "SELECT (pg_has_role(c.relowner, 'USAGE') OR (SELECT r.rolbypassrls OR r.rolsuper FROM pg_roles r
                    WHERE r.rolname = current_user))::text FROM pg_class c WHERE c.oid = ";
        let owns = self.voice.ask(&format!("{owns}{}", table.chunk_table_oid)).await;
        let owns = owns.is_ok_and(|rows| texts(&rows).any(|t| t == "true"));
        let (visible, found) = match (visible, found) {
            // Its owner reads what is in the table, whether or not it is still what the row has.
            _ if owns => return Ok(()),
            (Ok(visible), Ok(found)) => (visible, found),
            (Err(_), Ok(found)) if found.is_empty() => return Ok(()),
            (Err((code, _)), Ok(_)) if code != "42501" => return Ok(()),
            (Err(_), Err(_)) => return Ok(()),
            // Rights to the columns that come from several roles are not carried over.
            (Ok(_), Err((code, _))) if code == "42501" => return Ok(()),
            (visible, found) => return Err(format!("a SELECT gives {visible:?}, it gives {found:?}")),
        };
        let mut expected: Vec<String> = Vec::new();
        for text in texts(&visible) {
            let row = json(text);
            let Some(stored) = self.stored[place].get(&row[0].to_string()) else { continue };
            if stored.content == row[1] {
                let chunk = |c: &super::stored::Chunk| format!("{} {} {}", row[0], c.number, c.content);
                expected.extend(stored.chunks.iter().map(chunk));
            }
        }
        let line = |text: &str| {
            let row = json(text);
            format!("{} {} {}", row[0], row[1], row[2].as_str().unwrap_or_default())
        };
        let mut found: Vec<String> = texts(&found).map(line).collect();
        expected.sort();
        found.sort();
        if found == expected { Ok(()) } else { Err(difference(&found, &expected)) }
    }

    /// `rag.collections` and `rag.status` show a collection to those who may read it, and count what they see.
    async fn check_views(&self, place: usize, visible: &Result<Vec<Visible>, String>) -> Result<(), String> {
        let name = literal(&self.model.tables[place].collection);
        let readable = match visible {
            Ok(_) => true,
            // A policy may need a right that the role does not have.
            Err(_) => return Ok(()),
        };
        let listed = self.voice.ask(&format!("SELECT name FROM rag.collections WHERE name = {name}")).await;
        let listed = listed.map_err(|(_, e)| format!("rag.collections: {e}"))?.len();
        if listed != usize::from(readable) {
            return Err(format!("rag.collections shows it {listed} times to a role that may read it"));
        }
        let status = format!("SELECT rows::text FROM rag.status WHERE collection = {name}");
        let counts = match self.voice.ask(&status).await {
            Ok(counts) => counts,
            Err((_, e)) => return Err(format!("rag.status: {e}")),
        };
        let seen = visible.as_ref().map_or(0, Vec::len).to_string();
        match &counts[..] {
            [row] if row[0].as_ref().is_none_or(|rows| *rows == seen) => Ok(()),
            other => Err(format!("rag.status shows {other:?} rows to a role that sees {seen}")),
        }
    }

    /// A search that names no collection: nothing that the role may not see, and all that it may see of the superuser's
    /// collections, whom everybody trusts.
    async fn check_all(&self, random: &mut Random) -> Result<(), String> {
        let search = self.search(random, None, ALL);
        let answer = self.voice.ask(&search.sql()).await;
        let mut hits = Vec::new();
        let mut is_clear = search.min_score.is_none();
        for place in 0..self.model.tables.len() {
            match self.visible(place).await {
                Ok(visible) => hits.push(self.hits(place, &visible, &search)),
                Err(code) => {
                    is_clear &= code == "42501";
                    hits.push(Vec::new());
                }
            }
        }
        let rows = match answer {
            Ok(rows) => rows,
            // A failing policy, or one without a right that it needs.
            Err(_) if hits.iter().any(Vec::is_empty) => return Ok(()),
            Err((_, e)) => return Err(format!("it fails with {e}\n{}", search.sql())),
        };
        if !is_clear {
            return Ok(());
        }
        let found = self.found(&rows)?;
        for (table, hits) in self.model.tables.iter().zip(&hits) {
            let of_table: Vec<Hit> =
                found.iter().filter(|h| h.shown[0] == table.collection.as_str()).cloned().collect();
            if of_table.is_empty() && table.owner.is_some() {
                continue;
            }
            same(&of_table, hits, ALL).map_err(|e| format!("of {}: {e}\n{}", table.collection, search.sql()))?;
        }
        Ok(())
    }
}

fn texts(rows: &[TextRow]) -> impl Iterator<Item = &str> {
    rows.iter().map(|row| row[0].as_deref().expect("a statement without NULL"))
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt())
}

/// Whether the `k` best of `hits` were found, in their order; which of equally good ones is free.
fn same(found: &[Hit], hits: &[Hit], k: usize) -> Result<(), String> {
    let by_identity: BTreeMap<String, &Hit> = hits.iter().map(|hit| (hit.identity(), hit)).collect();
    let mut seen: Vec<String> = found.iter().map(Hit::identity).collect();
    let lines = |hits: &[Hit]| hits.iter().map(|h| format!("{} {:.5}", h.identity(), h.score)).collect::<Vec<_>>();
    let told = |what: String| Err(format!("{what}\n{}", difference(&lines(found), &lines(hits))));
    for hit in found {
        match by_identity.get(&hit.identity()) {
            None => return told(format!("it gives what a SELECT does not show: {:?}", hit.shown)),
            Some(expected) if expected.shown != hit.shown => {
                return told(format!("it shows {:?} where a SELECT shows {:?}", hit.shown, expected.shown));
            }
            Some(expected) if (expected.score - hit.score).abs() > ROUNDING => {
                return told(format!("score {} instead of {} for {:?}", hit.score, expected.score, hit.shown));
            }
            Some(_) => {}
        }
    }
    seen.sort();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        return told("it gives a chunk twice".into());
    }
    if found.len() != hits.len().min(k) {
        return told(format!("it gives {} chunks of {} for k = {k}", found.len(), hits.len()));
    }
    if found.windows(2).any(|pair| pair[0].score < pair[1].score - ROUNDING) {
        return told("the best are not first".into());
    }
    let worse = found.iter().zip(hits).find(|(found, best)| found.score < best.score - ROUNDING);
    worse.map_or(Ok(()), |(found, best)| told(format!("{:?} instead of {:?}", found.shown, best.shown)))
}

/// What one list has and the other has not.
fn difference(found: &[String], expected: &[String]) -> String {
    let only = |a: &[String], b: &[String]| a.iter().filter(|x| !b.contains(x)).take(5).cloned().collect::<Vec<_>>();
    format!(
        "found {}, expected {}; too much: {:#?}, missing: {:#?}",
        found.len(),
        expected.len(),
        only(found, expected),
        only(expected, found)
    )
}
