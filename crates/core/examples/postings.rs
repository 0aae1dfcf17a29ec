//! How large the inverted index is, and how fast the best documents are found in it, beside scoring every posting.
//!
//! ```text
//! cargo run --release -p ragent-core --example postings                            100,000 documents made at random
//! cargo run --release -p ragent-core --example postings -- DOCUMENTS QUERIES       one's own, a list of terms a line, in JSON
//! ```
//!
//! A line of QUERIES is `{"terms": [...], "expected": [[line of the document from 0, score], ...]}`; what is expected comes from
//! a reference implementation, and the largest difference to it is printed.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ragent_core::retrieval::bm25::{Bm25, Corpus, Precision};
use ragent_core::retrieval::postings::{
    Hit, Index, PageSource, Pages, Place, Restriction, SegmentSize, SegmentWriter, WeightedTerm, merge, top_k,
};
use serde_json::Value;

/// Best results that are asked for.
const K: usize = 10;
/// Documents of a segment, before they are merged.
const SEGMENT: usize = 500;
/// What PostgreSQL adds to a row with a page: tuple header, line pointer, segment and document, entry of the btree.
const ROW_BYTES: usize = 24 + 4 + 16 + 40;

type Key = (i64, String, i64);

#[derive(Default)]
struct Table {
    pages: BTreeMap<Key, Rc<[u8]>>,
    fetched: usize,
}

impl Pages for Table {
    fn at(&mut self, places: &[Place<'_>]) -> Vec<Option<Rc<[u8]>>> {
        self.fetched += places.len();
        let at = |p: &Place<'_>| {
            let to = (p.segment, p.term.to_owned(), p.document);
            self.pages.range(..=to).next_back().filter(|(key, _)| key.0 == p.segment).map(|(_, page)| page.clone())
        };
        places.iter().map(at).collect()
    }
}

impl Table {
    fn bytes(&self) -> usize {
        self.pages.iter().map(|(key, page)| key.1.len() + page.len() + ROW_BYTES).sum()
    }
}

/// The corpus as who scores everything would keep it.
#[derive(Default)]
struct Lists {
    lists: HashMap<String, Vec<(u32, u32)>>,
    lengths: Vec<u32>,
}

impl Lists {
    fn of(documents: &[Vec<String>]) -> Self {
        let mut all = Self::default();
        for (document, terms) in (0u32..).zip(documents) {
            all.lengths.push(terms.len() as u32);
            for (term, count) in counted(terms) {
                all.lists.entry(term.to_owned()).or_default().push((document, count as u32));
            }
        }
        all
    }

    fn postings(&self) -> usize {
        self.lists.values().map(Vec::len).sum()
    }

    fn corpus(&self) -> Corpus {
        Corpus::new(self.lengths.len() as u64, self.lengths.iter().map(|l| u64::from(*l)).sum())
    }

    fn exhaustive(&self, bm25: Bm25, query: &[WeightedTerm], scores: &mut Vec<f64>) -> Vec<Hit> {
        scores.clear();
        scores.resize(self.lengths.len(), 0.0);
        for term in query {
            let list = self.lists.get(&term.term).map(Vec::as_slice).unwrap_or_default();
            let scorer = bm25.scorer(self.corpus(), list.len() as u64, term.weight);
            for (document, frequency) in list {
                scores[*document as usize] += scorer.score(*frequency, self.lengths[*document as usize]);
            }
        }
        let mut hits: Vec<Hit> = (0i64..)
            .zip(scores.iter())
            .filter(|(_, s)| **s > 0.0)
            .map(|(document, s)| Hit { document, score: *s })
            .collect();
        let order = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then(a.document.cmp(&b.document));
        if hits.len() > K {
            hits.select_nth_unstable_by(K - 1, order);
            hits.truncate(K);
        }
        hits.sort_by(order);
        hits
    }
}

fn counted(terms: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    terms.iter().for_each(|t| *counts.entry(t.as_str()).or_default() += 1);
    counts
}

fn query(terms: &[String]) -> Vec<WeightedTerm> {
    let weighted =
        |(term, count): (&str, usize)| WeightedTerm { term: term.to_owned(), weight: count as f64, is_required: false };
    counted(terms).into_iter().map(weighted).collect()
}

/// Writes small segments and merges them into one; the table before and after.
fn tables(documents: &[Vec<String>]) -> (Table, Table, SegmentSize) {
    let (mut small, mut whole) = (Table::default(), Table::default());
    let (day, began) = (Instant::now(), clock(Instant::now()));
    for (segment, part) in (0i64..).zip(documents.chunks(SEGMENT)) {
        let mut writer = SegmentWriter::default();
        for (document, terms) in (segment * SEGMENT as i64..).zip(part) {
            writer.add(document, terms.len(), counted(terms));
        }
        writer.finish(&mut |page| {
            small.pages.insert((segment, page.term, page.document), page.bytes.into());
        });
    }
    let written = clock(day).saturating_sub(began);
    let (day, began) = (Instant::now(), clock(Instant::now()));
    let segments = documents.len().div_ceil(SEGMENT) as i64;
    let mut sources: Vec<_> = (0..segments)
        .map(|s| small.pages.range((s, String::new(), 0)..(s + 1, String::new(), 0)).map(|(_, page)| page.to_vec()))
        .collect();
    let mut sources: Vec<&mut dyn PageSource> = sources.iter_mut().map(|s| s as _).collect();
    let put = &mut |page: ragent_core::retrieval::postings::Page| {
        whole.pages.insert((0, page.term, page.document), page.bytes.into());
    };
    let size = merge(&mut sources, &mut |_| false, put, &|| ()).expect("sound pages");
    println!("written in {written:.2?}, merged from {segments} segments in {:.2?}", clock(day).saturating_sub(began));
    (small, whole, size)
}

/// The processor's time for this thread, where the system tells it: what else is at work does not count. Else the time of day.
fn clock(began: Instant) -> Duration {
    let on_processor = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = on_processor.and_then(|s| s.split(' ').next().and_then(|n| n.parse().ok()));
    nanoseconds.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

/// The middle one of five runs over all queries, by query.
fn timed<T>(queries: &[Vec<WeightedTerm>], mut run: impl FnMut(&[WeightedTerm]) -> T) -> Duration {
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let (day, began) = (Instant::now(), clock(Instant::now()));
            for query in queries {
                std::hint::black_box(run(query));
            }
            clock(day).saturating_sub(began) / queries.len().max(1) as u32
        })
        .collect();
    times.sort();
    times[2]
}

fn measure(name: &str, documents: &[Vec<String>], groups: &[(String, Vec<Vec<WeightedTerm>>)]) -> Table {
    let lists = Lists::of(documents);
    let (small, mut whole, size) = tables(documents);
    let postings = lists.postings();
    println!("{name}: {} documents, {} distinct terms, {postings} postings", size.documents, lists.lists.len());
    for (what, table) in [("small segments", &small), ("one segment", &whole)] {
        println!(
            "  {what}: {} pages, {:.2} MB with rows and index, {:.2} bytes a posting",
            table.pages.len(),
            table.bytes() as f64 / 1e6,
            table.bytes() as f64 / postings as f64
        );
    }
    let bm25 = Bm25::default();
    let index = Index { bm25, corpus: lists.corpus(), precision: Precision::Exact, segments: &[0] };
    let mut scores = Vec::new();
    for (group, queries) in groups {
        whole.fetched = 0;
        let best = timed(queries, |q| top_k(&index, q, K, &Restriction::default(), &mut whole, &|| ()).expect("sound"));
        let fetched = whole.fetched as f64 / (5 * queries.len().max(1)) as f64;
        let all = timed(queries, |q| lists.exhaustive(bm25, q, &mut scores));
        let looked: usize = queries.iter().flatten().map(|t| lists.lists.get(&t.term).map_or(0, Vec::len)).sum();
        println!(
            "  {group}: {best:.1?} a query, {fetched:.0} pages; scoring all {} postings from memory {all:.1?}; ratio {:.2}",
            looked / queries.len().max(1),
            best.as_secs_f64() / all.as_secs_f64()
        );
        for q in queries {
            let found = top_k(&index, q, K, &Restriction::default(), &mut whole, &|| ()).expect("sound").hits;
            let expected = lists.exhaustive(bm25, q, &mut scores);
            let same = found.iter().zip(&expected).all(|(a, b)| (a.score - b.score).abs() < 1e-9);
            assert!(same && found.len() == expected.len(), "{q:?}");
        }
    }
    whole
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    /// 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Documents of 20 to 180 words, the word at rank r as frequent as 1 / (r + 2.7) of 200,000 (Zipf and Mandelbrot). A word that a
/// document has comes again more easily.
fn random_documents(count: usize) -> Vec<Vec<String>> {
    let mut sums: Vec<f64> = Vec::new();
    for rank in 0..200_000 {
        sums.push(sums.last().unwrap_or(&0.0) + 1.0 / (f64::from(rank) + 2.7));
    }
    let all = *sums.last().unwrap_or(&1.0);
    let mut random = Random(42);
    (0..count)
        .map(|_| {
            let length = 20 + (random.next() * 160.0) as usize;
            let mut terms: Vec<String> = Vec::with_capacity(length);
            while terms.len() < length {
                let (again, place) = (random.next() < 0.15, random.next());
                let term = if again && !terms.is_empty() {
                    terms[(place * terms.len() as f64) as usize].clone()
                } else {
                    format!("w{}", sums.partition_point(|s| *s < place * all))
                };
                terms.push(term);
            }
            terms
        })
        .collect()
}

fn lines(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{path}: {e}"))).collect()
}

fn terms(json: &Value) -> Vec<String> {
    json.as_array().into_iter().flatten().filter_map(|t| t.as_str().map(str::to_owned)).collect()
}

fn own(documents: &str, queries: &str) {
    let documents: Vec<Vec<String>> = lines(documents).iter().map(terms).collect();
    let queries = lines(queries);
    let weighted: Vec<Vec<WeightedTerm>> = queries.iter().map(|q| query(&terms(&q["terms"]))).collect();
    let mut table = measure("one's own", &documents, &[("queries".to_owned(), weighted.clone())]);
    let corpus = Lists::of(&documents).corpus();
    let index = Index { bm25: Bm25::default(), corpus, precision: Precision::Exact, segments: &[0] };
    let (mut largest, mut elsewhere, mut count) = (0f64, 0, 0);
    for (json, query) in queries.iter().zip(&weighted) {
        let expected = json["expected"].as_array().map(Vec::as_slice).unwrap_or_default();
        let found =
            top_k(&index, query, expected.len(), &Restriction::default(), &mut table, &|| ()).expect("sound").hits;
        for (hit, expected) in found.iter().zip(expected) {
            count += 1;
            largest = largest.max((hit.score - expected[1].as_f64().unwrap_or(f64::NAN)).abs());
            elsewhere += usize::from(Some(hit.document) != expected[0].as_i64());
        }
    }
    println!(
        "  beside the reference: {count} results, largest difference of a score {largest:.1e}, {elsewhere} in another place"
    );
}

fn random() {
    let documents = random_documents(100_000);
    let mut random = Random(1);
    let groups = [
        ("2 common words", 2, 50.0),
        ("3 common words", 3, 50.0),
        ("5 common words", 5, 50.0),
        ("4 words of any frequency", 4, 20_000.0),
    ];
    let groups = groups.map(|(name, words, ranks)| {
        let queries = (0..20)
            .map(|_| {
                let terms: Vec<String> = (0..words).map(|_| format!("w{}", (random.next() * ranks) as usize)).collect();
                query(&terms)
            })
            .collect();
        (name.to_owned(), queries)
    });
    measure("made at random", &documents, &groups);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [documents, queries] => own(documents, queries),
        [] => random(),
        _ => eprintln!("give no argument, or documents and queries"),
    }
}
