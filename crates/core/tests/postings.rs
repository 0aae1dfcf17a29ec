//! The inverted index against what it stands for: postings are read back, the best are those that scoring every posting finds,
//! and pages that are damaged are errors.

mod common;

use common::config;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use proptest::prelude::*;
use ragent_core::retrieval::bm25::{Bm25, Corpus, Precision, Scorer};
use ragent_core::retrieval::postings::{
    Corrupt, DOCUMENTS, Hit, Index, MAX_COUNT, PAGE_BYTES, Page, Pages, Place, Restriction, SegmentSize, SegmentWriter,
    WeightedTerm, entries, merge, top_k,
};

/// A document: its number, its length and how often it has each term.
type Document = (i64, usize, BTreeMap<String, usize>);

/// The table of pages, in memory.
#[derive(Default, Clone)]
struct Table {
    pages: BTreeMap<(i64, String, i64), Rc<[u8]>>,
    /// How many pages were asked for.
    fetched: usize,
}

impl Table {
    fn put(&mut self, segment: i64, page: Page) {
        assert!(page.bytes.len() <= PAGE_BYTES);
        let before = self.pages.insert((segment, page.term, page.document), page.bytes.into());
        assert!(before.is_none(), "a key twice");
    }

    fn write(&mut self, segment: i64, documents: &[Document]) -> SegmentSize {
        let mut writer = SegmentWriter::default();
        for (document, length, terms) in documents {
            writer.add(*document, *length, terms.iter().map(|(t, n)| (t.as_str(), *n)));
        }
        writer.finish(&mut |page| self.put(segment, page))
    }

    fn of_segment(&self, segment: i64) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.pages.iter().filter(move |((s, ..), _)| *s == segment).map(|(_, page)| page.to_vec())
    }

    fn merge(&mut self, from: &[i64], into: i64, is_deleted: impl Fn(i64) -> bool) -> Result<SegmentSize, Corrupt> {
        let table = self.clone();
        let mut sources: Vec<_> = from.iter().map(|s| table.of_segment(*s)).collect();
        let mut sources: Vec<&mut dyn ragent_core::retrieval::postings::PageSource> =
            sources.iter_mut().map(|s| s as _).collect();
        let size = merge(&mut sources, &mut |d| is_deleted(d), &mut |page| self.put(into, page), &|| ())?;
        self.pages.retain(|(s, ..), _| !from.contains(s));
        Ok(size)
    }
}

impl Pages for Table {
    fn at(&mut self, places: &[Place<'_>]) -> Vec<Option<Rc<[u8]>>> {
        self.fetched += places.len();
        let at = |p: &Place<'_>| {
            let to = (p.segment, p.term.to_owned(), p.document);
            self.pages.range(..=to).next_back().filter(|((s, ..), _)| *s == p.segment).map(|(_, page)| page.clone())
        };
        places.iter().map(at).collect()
    }
}

/// The best documents.
fn best(
    index: &Index<'_>,
    terms: &[WeightedTerm],
    k: usize,
    restriction: &Restriction<'_>,
    table: &mut Table,
) -> Result<Vec<Hit>, Corrupt> {
    let found = top_k(index, terms, k, restriction, table, &|| ())?;
    assert!(found.hits.iter().all(|hit| hit.score <= found.most));
    Ok(found.hits)
}

fn term(name: &str, weight: f64, is_required: bool) -> WeightedTerm {
    WeightedTerm { term: name.to_owned(), weight, is_required }
}

fn size(documents: &[Document]) -> SegmentSize {
    SegmentSize {
        documents: documents.len() as u64,
        total_length: documents.iter().map(|(_, length, _)| *length as u64).sum(),
    }
}

/// What scoring every document finds.
fn exhaustive(
    documents: &[Document],
    bm25: Bm25,
    precision: Precision,
    terms: &[WeightedTerm],
    k: usize,
    admits: impl Fn(i64) -> bool,
) -> Vec<Hit> {
    let all = size(documents);
    let corpus = precision.corpus(Corpus::new(all.documents, all.total_length));
    let scorers: Vec<_> = terms
        .iter()
        .map(|t| {
            let df = documents.iter().filter(|(_, _, has)| has.contains_key(&t.term)).count();
            bm25.scorer(corpus, precision.count(df as u64), t.weight)
        })
        .collect();
    let mut hits: Vec<Hit> = documents
        .iter()
        .filter(|(document, _, has)| {
            admits(*document) && terms.iter().all(|t| !t.is_required || has.contains_key(&t.term))
        })
        .map(|(document, length, has)| {
            let part = |(t, scorer): (&WeightedTerm, &Scorer)| {
                scorer.score(has.get(&t.term).copied().unwrap_or_default() as u32, *length as u32)
            };
            Hit { document: *document, score: terms.iter().zip(&scorers).map(part).sum() }
        })
        .filter(|hit| hit.score > 0.0)
        .collect();
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.document.cmp(&b.document)));
    hits.truncate(k);
    hits
}

const VOCABULARY: [&str; 8] = ["a", "ab", "abc", "b", "index", "indexes", "ä", "zz"];

fn documents(most: usize) -> impl Strategy<Value = Vec<Document>> {
    let frequency = prop_oneof![4 => 1usize..4, 1 => 1usize..300, 1 => Just(MAX_COUNT as usize + 5)];
    let terms =
        prop::collection::btree_map(prop::sample::select(&VOCABULARY[..]).prop_map(str::to_owned), frequency, 0..6);
    let length = prop_oneof![8 => 0usize..300, 1 => Just(1 << 20)];
    let gap = prop_oneof![6 => 1i64..4, 2 => 1i64..5000, 1 => 1i64..1 << 40];
    prop::collection::vec((gap, length, terms), 0..most).prop_map(|all| {
        let mut number = 0;
        all.into_iter()
            .map(|(gap, length, terms)| {
                number += gap;
                let terms = terms.into_iter().map(|(t, n)| (t, n.min(MAX_COUNT as usize))).collect();
                (number, length, terms)
            })
            .collect()
    })
}

fn query() -> impl Strategy<Value = Vec<WeightedTerm>> {
    let one = (prop::sample::select(&VOCABULARY[..]), 0.1f64..3.0, prop::bool::weighted(0.15));
    prop::collection::vec(one, 1..6).prop_map(|terms| {
        let distinct: HashMap<&str, WeightedTerm> =
            terms.into_iter().map(|(name, weight, required)| (name, term(name, weight, required))).collect();
        distinct.into_values().collect()
    })
}

fn bm25() -> impl Strategy<Value = Bm25> {
    (0.0f64..3.0, 0.0f64..=1.0).prop_map(|(k1, b)| Bm25::new(k1, b).expect("in range"))
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn the_best_are_those_that_scoring_everything_finds(
        documents in documents(300), parts in 1usize..5, terms in query(), bm25 in bm25(), k in 1usize..30, coarse: bool, every in 1i64..6,
    ) {
        let mut table = Table::default();
        let segments: Vec<i64> = (0..parts as i64).collect();
        for segment in &segments {
            let own: Vec<Document> = documents.iter().filter(|(d, ..)| d % parts as i64 == *segment).cloned().collect();
            table.write(*segment, &own);
        }
        let precision = if coarse { Precision::Coarse } else { Precision::Exact };
        let all = size(&documents);
        let index = Index { bm25, corpus: Corpus::new(all.documents, all.total_length), precision, segments: &segments };
        let admits = |d: i64| d % every == 0;
        let only: Vec<i64> = documents.iter().map(|(d, ..)| *d).filter(|d| admits(*d)).chain([i64::MAX]).collect();
        let find = |restriction: Restriction<'_>, table: &mut Table| best(&index, &terms, k, &restriction, table);
        let expect = |k, admits: &dyn Fn(i64) -> bool| exhaustive(&documents, bm25, precision, &terms, k, admits);

        prop_assert_eq!(find(Restriction::default(), &mut table), Ok(expect(k, &|_| true)));
        let restriction = Restriction { only: Some(&only), ..Restriction::default() };
        prop_assert_eq!(find(restriction, &mut table), Ok(expect(k, &admits)));
        let excluded = |d: i64| !admits(d);
        let restriction = Restriction { excluded: Some(&excluded), ..Restriction::default() };
        prop_assert_eq!(find(restriction, &mut table), Ok(expect(k, &admits)));
        // The next batch is what follows the first.
        let two = expect(2 * k, &|_| true);
        let restriction = Restriction { after: two.get(k - 1).copied(), ..Restriction::default() };
        let expected = if two.len() >= k { &two[k..] } else { &two[..] };
        prop_assert_eq!(find(restriction, &mut table), Ok(expected.to_vec()));
    }

    #[test]
    fn what_is_merged_is_what_was_written_without_what_was_deleted(documents in documents(300), parts in 1i64..5, every in 2i64..6) {
        let mut table = Table::default();
        for segment in 0..parts {
            table.write(segment, &documents.iter().filter(|(d, ..)| d % parts == segment).cloned().collect::<Vec<_>>());
        }
        let left: Vec<Document> = documents.iter().filter(|(d, ..)| d % every != 0).cloned().collect();
        let merged = table.merge(&(0..parts).collect::<Vec<_>>(), 9, |d| d % every == 0);
        prop_assert_eq!(merged, Ok(size(&left)));
        let mut again = Table::default();
        again.write(9, &left);
        // Distances are measured from the lowest document, which may be one that was deleted: sizes differ, terms do not.
        let vocabulary = |t: &Table| -> Vec<(String, u64)> {
            t.of_segment(9).flat_map(|p| entries(&p).expect("sound")).map(|e| (e.term, e.documents)).collect()
        };
        prop_assert_eq!(vocabulary(&table), vocabulary(&again));
        let all = size(&left);
        let index = Index { bm25: Bm25::default(), corpus: Corpus::new(all.documents, all.total_length), precision: Precision::Exact, segments: &[9] };
        let terms: Vec<WeightedTerm> = VOCABULARY.iter().map(|t| term(t, 1.0, false)).collect();
        let found = best(&index, &terms, 1000, &Restriction::default(), &mut table);
        prop_assert_eq!(found, Ok(exhaustive(&left, Bm25::default(), Precision::Exact, &terms, 1000, |_| true)));
    }

    #[test]
    fn damaged_pages_are_errors_or_other_postings(
        documents in documents(300), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>(), is_cut: bool, terms in query(),
    ) {
        let mut table = Table::default();
        table.write(0, &documents);
        let keys: Vec<_> = table.pages.keys().cloned().collect();
        prop_assume!(!keys.is_empty());
        for (key, at, byte) in changes {
            let page = table.pages.get_mut(&keys[key.index(keys.len())]).expect("a page");
            let mut bytes = page.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if is_cut {
                bytes.truncate(cut.index(bytes.len()).max(1));
            }
            *page = bytes.into();
        }
        read_all(&mut table, &terms);
    }

    #[test]
    fn any_bytes_are_a_page_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400), terms in query()) {
        let mut table = Table::default();
        let bytes = [vec![1], bytes].concat();
        table.pages.insert((0, String::new(), 0), bytes.into());
        read_all(&mut table, &terms);
    }
}

/// Reads a segment in every way there is: nothing panics, nothing goes on for ever.
fn read_all(table: &mut Table, terms: &[WeightedTerm]) {
    let index =
        Index { bm25: Bm25::default(), corpus: Corpus::new(10, 100), precision: Precision::Exact, segments: &[0] };
    let _ = best(&index, terms, 5, &Restriction::default(), table);
    let restriction = Restriction { only: Some(&[1, 5, 1000]), ..Restriction::default() };
    let _ = best(&index, terms, 5, &restriction, table);
    for page in table.of_segment(0) {
        let _ = entries(&page);
    }
    let _ = table.merge(&[0], 1, |d| d % 2 == 0);
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Documents of some words that all share and many that few have.
fn many(count: i64) -> Vec<Document> {
    let mut random = Random(7);
    (1..=count)
        .map(|document| {
            let mut terms = BTreeMap::new();
            for (word, every) in [("common", 1), ("often", 3), ("seldom", 50)] {
                if random.below(every) == 0 {
                    // One in a thousand has it often: there the best are, and most blocks have none of them.
                    let frequency = if random.below(1000) == 0 { 5 + random.below(20) } else { 1 + random.below(3) };
                    terms.insert(word.to_owned(), frequency as usize);
                }
            }
            terms.insert(format!("w{}", random.below(500)), 1);
            (document * 3, 20 + random.below(200) as usize, terms)
        })
        .collect()
}

#[test]
fn lists_of_many_pages_are_found_in_and_most_of_a_common_word_is_skipped() {
    let documents = many(30_000);
    let mut table = Table::default();
    let all = table.write(0, &documents);
    let index = Index {
        bm25: Bm25::default(),
        corpus: Corpus::new(all.documents, all.total_length),
        precision: Precision::Exact,
        segments: &[0],
    };
    assert!(table.pages.keys().filter(|(_, t, _)| t == "common").count() > 3);
    for (terms, k) in [
        (vec![term("common", 1.0, false)], 10),
        (vec![term("common", 1.0, false), term("often", 1.0, false)], 10),
        (
            vec![
                term("common", 1.0, false),
                term("often", 1.0, false),
                term("seldom", 2.0, false),
                term("w17", 1.0, false),
            ],
            100,
        ),
        (vec![term("common", 1.0, true), term("w17", 1.0, true)], 10),
        (vec![term("often", 1.0, false), term("none", 1.0, false)], 1000),
        (vec![term("often", 1.0, false), term("none", 1.0, true)], 1000),
    ] {
        let found = best(&index, &terms, k, &Restriction::default(), &mut table);
        let expected = exhaustive(&documents, index.bm25, index.precision, &terms, k, |_| true);
        assert_eq!(found, Ok(expected), "{terms:?}");
    }
    // A rare word that must be there leads from page to page: those between are not fetched.
    table.fetched = 0;
    let only = [3, 89_997];
    let restriction = Restriction { only: Some(&only), ..Restriction::default() };
    let found = best(&index, &[term("common", 1.0, false)], 10, &restriction, &mut table).expect("sound");
    assert_eq!((found.len(), table.fetched), (2, 2));
    // Documents and their lengths are a list as well.
    let listed = best(&index, &[term(DOCUMENTS, 1.0, false)], 40_000, &Restriction::default(), &mut table);
    assert_eq!(listed.map(|found| found.len()), Ok(30_000));
}

#[test]
fn the_caller_is_asked_often_while_a_search_takes_long() {
    let documents = many(20_000);
    let mut table = Table::default();
    let all = table.write(0, &documents);
    let corpus = Corpus::new(all.documents, all.total_length);
    let index = Index { bm25: Bm25::default(), corpus, precision: Precision::Exact, segments: &[0] };
    let calls = std::cell::Cell::new(0);
    let found = top_k(&index, &[term("common", 1.0, false)], 20_000, &Restriction::default(), &mut table, &|| {
        calls.set(calls.get() + 1)
    });
    assert_eq!(found.map(|f| f.hits.len()), Ok(20_000));
    assert!(calls.get() > 100, "{} times", calls.get());
}

#[test]
fn long_terms_are_cut_alike_in_texts_and_queries() {
    let long = "ä".repeat(500);
    let mut table = Table::default();
    let all = table.write(0, &[(1, 1, BTreeMap::from([(long.clone(), 1)]))]);
    let corpus = Corpus::new(all.documents, all.total_length);
    let index = Index { bm25: Bm25::default(), corpus, precision: Precision::Exact, segments: &[0] };
    let found = best(&index, &[term(&long, 1.0, false)], 1, &Restriction::default(), &mut table);
    assert_eq!(found.map(|f| f.len()), Ok(1));
}
