//! One message of tool calls: sorting its calls, and answering each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::evidence::{Added, Evidence};
use super::{Hit, Limits, SearchCall, SearchResult, tool};
use crate::model::ToolCall;
use crate::prompt::{NamedTool, Passage, SearchReport, ToolMessage};
use crate::text::{normalise, shorten};

/// What a query found earlier, with scores, by collection and normalised query.
pub(super) type Memory = BTreeMap<String, Vec<(u32, f64)>>;

/// The calls of one message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Round {
    calls: Vec<Sorted>,
    searches: Vec<SearchCall>,
}

/// A call and what is to be done about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sorted {
    call: ToolCall,
    todo: Todo,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Todo {
    /// Report the result of this search of the round.
    Search(usize),
    /// Report what memory has, at the latest from an earlier call of the same message.
    Remember(SearchCall),
    /// Tell the model what is wrong, so that it can do better.
    Correct(String),
    /// Tell the model that no search is left.
    Refuse(SearchCall),
}

/// A round that is over.
pub(super) struct RoundOutcome {
    /// One for each call, in order.
    pub calls: Vec<AnsweredCall>,
    /// Passages that were not known before.
    pub new_evidence: u32,
    /// Whether a call was broken in a way that the model can correct.
    pub correctable: bool,
}

/// A tool call with its message and what is recorded of it.
pub(super) struct AnsweredCall {
    pub call_id: String,
    pub message: ToolMessage,
    pub detail: Value,
    /// Whether a search was run for it.
    pub searched: bool,
}

impl AnsweredCall {
    pub(super) fn set_notice(&mut self, words: &str) {
        match &mut self.message {
            ToolMessage::Results(report) => report.notice = Some(words.into()),
            ToolMessage::Error { notice, .. } => *notice = Some(words.into()),
        }
    }
}

impl Round {
    /// Sorts calls into searches (at most `room`), queries known already, and broken ones.
    pub(super) fn sort(
        calls: Vec<ToolCall>,
        tools: &[NamedTool],
        limits: &Limits,
        memory: &Memory,
        room: u32,
    ) -> Round {
        let mut searches: Vec<SearchCall> = Vec::new();
        let calls = calls
            .into_iter()
            .map(|call| {
                let todo = match tool::read_call(&call.name, &call.arguments, tools, limits) {
                    Err(wrong) => Todo::Correct(wrong),
                    Ok(search) if memory.contains_key(&key(&search)) => Todo::Remember(search),
                    Ok(search) if searches.iter().any(|known| key(known) == key(&search)) => Todo::Remember(search),
                    Ok(search) if searches.len() as u64 >= u64::from(room) => Todo::Refuse(search),
                    Ok(search) => {
                        searches.push(search);
                        Todo::Search(searches.len() - 1)
                    }
                };
                Sorted { call, todo }
            })
            .collect();
        Round { calls, searches }
    }

    /// The searches to run.
    pub(super) fn searches(&self) -> &[SearchCall] {
        &self.searches
    }

    /// Answers every call. A result that is missing counts as nothing found.
    pub(super) fn answer(
        self,
        results: Vec<SearchResult>,
        evidence: &mut Evidence,
        memory: &mut Memory,
        limits: &Limits,
    ) -> RoundOutcome {
        let mut results: Vec<Option<SearchResult>> = results.into_iter().map(Some).collect();
        results.resize(self.searches.len().max(results.len()), None);
        let mut outcome = RoundOutcome { calls: Vec::new(), new_evidence: 0, correctable: false };
        for Sorted { call, todo } in self.calls {
            let searched = matches!(todo, Todo::Search(_));
            let (message, mut detail) = match todo {
                Todo::Search(i) => {
                    let search = &self.searches[i];
                    let hits = results[i].take().unwrap_or_default().hits;
                    let report = report_new(search, hits, evidence, memory, limits);
                    outcome.new_evidence += report.1;
                    (ToolMessage::Results(report.0), report.2)
                }
                Todo::Remember(search) => {
                    let (report, detail) = report_known(&search, memory, evidence);
                    (ToolMessage::Results(report), detail)
                }
                Todo::Correct(wrong) => {
                    outcome.correctable = true;
                    let detail = json!({ "error": wrong, "arguments": shorten(&call.arguments, 500) });
                    (ToolMessage::Error { message: wrong, notice: None }, detail)
                }
                Todo::Refuse(search) => {
                    let message = format!(
                        "not searched: the limit of {} searches for this question is reached",
                        limits.max_searches
                    );
                    let detail = json!({ "error": message, "collection": search.collection, "query": search.query });
                    (ToolMessage::Error { message, notice: None }, detail)
                }
            };
            detail["tool"] = shorten(&call.name, 64).into();
            outcome.calls.push(AnsweredCall { call_id: call.id, message, detail, searched });
        }
        outcome
    }
}

/// Two queries with this key in common find the same.
fn key(search: &SearchCall) -> String {
    json!([search.collection, normalise(&search.query)]).to_string()
}

/// The report of a search that was run, how many of its passages are new, and the step's detail.
fn report_new(
    search: &SearchCall,
    hits: Vec<Hit>,
    evidence: &mut Evidence,
    memory: &mut Memory,
    limits: &Limits,
) -> (SearchReport, u32, Value) {
    let mut report =
        SearchReport { collection: search.collection.clone(), query: search.query.clone(), ..Default::default() };
    let mut recorded = Vec::new();
    let mut found: Vec<(u32, f64)> = Vec::new();
    let mut new_evidence = 0;
    // A driver that returns more than was asked for does not widen the prompt.
    for hit in hits.into_iter().take(search.k as usize) {
        let score = hit.score;
        let mut record =
            json!({ "key": hit.key, "chunk": hit.chunk, "title": hit.title, "score": score, "new": false });
        match evidence.add(hit, limits) {
            Added::New(number) => {
                new_evidence += 1;
                found.push((number, score));
                record["marker"] = number.into();
                record["new"] = true.into();
                report.passages.extend(show(number, score, evidence, limits));
            }
            Added::Known(number) => {
                record["marker"] = number.into();
                // The same text under two keys is mentioned once.
                if !found.iter().any(|(known, _)| *known == number) {
                    found.push((number, score));
                    report.passages.push(Passage::Shown { number, score });
                }
            }
            Added::Omitted => {
                record["omitted"] = true.into();
                report.omitted += 1;
            }
        }
        recorded.push(record);
    }
    memory.insert(key(search), found);
    let detail = json!({
        "collection": search.collection,
        "query": search.query,
        "k": search.k,
        "from_memory": false,
        "hits": recorded,
        "new_evidence": new_evidence,
    });
    (report, new_evidence, detail)
}

/// A passage as it is shown the first time.
fn show(number: u32, score: f64, evidence: &Evidence, limits: &Limits) -> Option<Passage> {
    let hit = evidence.get(number)?;
    let end = hit.content.char_indices().nth(limits.max_hit_chars).map(|(i, _)| i);
    Some(Passage::New {
        number,
        title: hit.title.clone(),
        score,
        text: hit.content[..end.unwrap_or(hit.content.len())].to_owned(),
        cut: end.is_some(),
    })
}

/// The report of a query that was run before, and the step's detail.
fn report_known(search: &SearchCall, memory: &Memory, evidence: &Evidence) -> (SearchReport, Value) {
    let found = memory.get(&key(search)).cloned().unwrap_or_default();
    let recorded: Vec<Value> = found
        .iter()
        .filter_map(|&(number, score)| {
            let hit = evidence.get(number)?;
            Some(json!({
                "key": hit.key, "chunk": hit.chunk, "title": hit.title, "score": score, "new": false, "marker": number,
            }))
        })
        .collect();
    let report = SearchReport {
        collection: search.collection.clone(),
        query: search.query.clone(),
        passages: found.iter().map(|&(number, score)| Passage::Shown { number, score }).collect(),
        ..Default::default()
    };
    let detail = json!({
        "collection": search.collection,
        "query": search.query,
        "k": search.k,
        "from_memory": true,
        "hits": recorded,
        "new_evidence": 0,
    });
    (report, detail)
}
