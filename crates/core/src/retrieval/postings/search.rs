//! The best documents for some terms, without looking at all postings.
//!
//! It is what is known as block-max MaxScore: lists of postings whose bounds together cannot reach the k-th best score so far
//! only confirm what others find, and stretches of documents in which even all bounds together cannot are skipped, payloads
//! unread. Ding and Suel, *Faster top-k document retrieval using block-max indexes* (2011); Turtle and Flood, *Query
//! evaluation: strategies and optimizations* (1995). What is found, scores included, is exactly what scoring every posting
//! would find.

use std::rc::Rc;

use super::best::{Best, Hit};
use super::list::List;
use super::page::Runs;
use super::{Corrupt, stored_term};
use crate::retrieval::bm25::{Bm25, Corpus, Precision, Scorer};
use crate::text::Pulse;

/// Where a page is looked for: the last page of the segment whose term and document, in this order, are not above these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Number of the segment.
    pub segment: i64,
    /// Term, compared by bytes (`COLLATE "C"`).
    pub term: &'a str,
    /// Document.
    pub document: i64,
}

/// The table that has the pages.
pub trait Pages {
    /// The page at each place, in their order; `None` where the segment has none so low. A search asks first for all its
    /// terms in all segments at once, then for single pages as it gets to them.
    fn at(&mut self, places: &[Place<'_>]) -> Vec<Option<Rc<[u8]>>>;
}

/// A term of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedTerm {
    /// The term; each at most once in a query.
    pub term: String,
    /// How much it counts, less than 0 as 0: how often the query has it, times what the caller thinks of it.
    pub weight: f64,
    /// Only documents that have it are found.
    pub is_required: bool,
}

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    /// Parameters of the collection.
    pub bm25: Bm25,
    /// All documents of all segments.
    pub corpus: Corpus,
    /// How exactly the asker may learn how common terms are.
    pub precision: Precision,
    /// Numbers of the segments.
    pub segments: &'a [i64],
}

/// Which documents may be found.
#[derive(Clone, Copy, Default)]
pub struct Restriction<'a> {
    /// None but these, in rising order.
    pub only: Option<&'a [i64]>,
    /// None for which this is true; asked only about those that would be among the best. For what was deleted since.
    pub excluded: Option<&'a dyn Fn(i64) -> bool>,
    /// None but what comes after this one, in the order of results: for the next batch.
    pub after: Option<Hit>,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// The best documents, best first.
    pub hits: Vec<Hit>,
    /// What no document's score reaches: the sum of the terms' weights times their idf, those that no document has included.
    /// A score divided by it is 0 to 1, and means the same whatever else is found.
    pub most: f64,
}

/// The `k` best documents, best first; of equal scores, the lower number first. No document is in two segments.
///
/// Memory is a page for each term and segment, so who lets people write queries bounds the number of terms. `pulse` is called
/// every few hundred postings.
///
/// # Errors
/// A page is damaged.
pub fn top_k(
    index: &Index<'_>,
    terms: &[WeightedTerm],
    k: usize,
    restriction: &Restriction<'_>,
    pages: &mut dyn Pages,
    pulse: Pulse<'_>,
) -> Result<Found, Corrupt> {
    let mut best = Best::new(k, restriction.after, restriction.excluded);
    if k == 0 || terms.is_empty() {
        return Ok(Found::default());
    }
    let places: Vec<Place<'_>> = index
        .segments
        .iter()
        .flat_map(|segment| terms.iter().map(|t| Place { segment: *segment, term: stored_term(&t.term), document: 0 }))
        .collect();
    let first = pages.at(&places);
    pulse();
    let mut frequencies = vec![0u64; terms.len()];
    let mut runs = Vec::with_capacity(first.len());
    for (place, page) in first.iter().enumerate() {
        let run = page.as_ref().map(|page| Runs::find(page, places[place].term)).transpose()?.flatten();
        if let Some(run) = &run {
            let df = &mut frequencies[place % terms.len()];
            *df = df.saturating_add(run.df);
        }
        runs.push(run);
    }
    let corpus = index.precision.corpus(index.corpus);
    let scorers: Vec<Scorer> = terms
        .iter()
        .zip(&frequencies)
        .map(|(t, df)| index.bm25.scorer(corpus, index.precision.count(*df), t.weight.max(0.0)))
        .collect();
    for segment in 0..index.segments.len() {
        pulse();
        let mut lists: Vec<List<'_>> = Vec::with_capacity(terms.len());
        let mut has_all_required = true;
        for at in 0..terms.len() {
            let place = segment * terms.len() + at;
            let list = match (&first[place], &runs[place]) {
                (Some(page), Some(run)) => Some(List::open(at, places[place], page, run, scorers[at])?),
                _ => None,
            };
            has_all_required &= list.is_some() || !terms[at].is_required;
            lists.extend(list);
        }
        if !has_all_required || lists.is_empty() {
            continue;
        }
        let mut segment = Segment { lists, parts: vec![0.0; terms.len()], heads: Vec::new(), pages: &mut *pages };
        let required: Vec<usize> =
            (0..segment.lists.len()).filter(|i| terms[segment.lists[*i].at].is_required).collect();
        if restriction.only.is_some() || !required.is_empty() {
            segment.conjunction(&required, restriction.only, &mut best, pulse)?;
        } else {
            segment.disjunction(&mut best, pulse)?;
        }
    }
    Ok(Found { hits: best.into_sorted(), most: scorers.iter().map(Scorer::most).sum() })
}

/// Bounds are compared with scores that were summed in another order: so much is given for rounding.
const SLACK: f64 = 1.0 + 1e-9;

/// The lists of a query's terms in one segment.
struct Segment<'a, 'p> {
    lists: Vec<List<'a>>,
    /// The parts of a document's score, by term: they are always summed in this order, so that a score has one value.
    parts: Vec<f64>,
    /// The next document of each list that leads in a window, `i64::MAX` for none, with the list.
    heads: Vec<(i64, usize)>,
    pages: &'p mut dyn Pages,
}

impl Segment<'_, '_> {
    /// Offers the documents that have any of the terms.
    fn disjunction(&mut self, best: &mut Best<'_>, pulse: Pulse<'_>) -> Result<(), Corrupt> {
        let count = self.lists.len();
        let mut by_bound: Vec<usize> = (0..count).collect();
        by_bound.sort_by(|a, b| self.lists[*a].bound.total_cmp(&self.lists[*b].bound));
        let mut window = Vec::with_capacity(count);
        // Lists before this one of `by_bound` cannot bring a document into the best by themselves, all together.
        let mut drivers = 0;
        let mut driven_by_others = 0.0;
        let mut lowest = 0;
        loop {
            pulse();
            while drivers < count {
                let more = driven_by_others + self.lists[by_bound[drivers]].bound;
                if !best.is_out_of_reach(more * SLACK) {
                    break;
                }
                driven_by_others = more;
                drivers += 1;
            }
            let mut next: Option<i64> = None;
            for at in &by_bound[drivers..] {
                let possible = self.lists[*at].possible(lowest, self.pages)?;
                next = next.into_iter().chain(possible).min();
            }
            // The window of documents from `lowest` to `highest`, in which no list changes its block.
            let Some(first) = next else { return Ok(()) };
            lowest = first;
            let mut highest = i64::MAX;
            let mut all = 0.0;
            window.clear();
            for at in 0..count {
                let Some((first, last)) = self.lists[at].block(lowest, self.pages)? else { continue };
                if first > lowest {
                    highest = highest.min(first - 1);
                } else {
                    highest = highest.min(last);
                    let bound = self.lists[at].block_bound();
                    window.push((bound, at));
                    all += bound;
                }
            }
            if !best.is_out_of_reach(all * SLACK) {
                self.window(&mut window, lowest, highest, best)?;
            }
            let Some(after) = highest.checked_add(1) else { return Ok(()) };
            lowest = after;
        }
    }

    /// Offers the documents from `lowest` to `highest`. `window` has the lists that may have some, with their bounds there.
    fn window(
        &mut self,
        window: &mut [(f64, usize)],
        lowest: i64,
        highest: i64,
        best: &mut Best<'_>,
    ) -> Result<(), Corrupt> {
        window.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut confirming, mut confirmed) = (0, 0.0);
        for (bound, _) in window.iter() {
            if !best.is_out_of_reach((confirmed + bound) * SLACK) {
                break;
            }
            confirming += 1;
            confirmed += bound;
        }
        let (confirming, leading) = window.split_at(confirming);
        let mut heads = std::mem::take(&mut self.heads);
        heads.clear();
        for (_, at) in leading {
            heads.push((self.lists[*at].next_within(lowest, highest, self.pages)?.unwrap_or(i64::MAX), *at));
        }
        while let Some(document) = heads.iter().map(|(next, _)| *next).min().filter(|next| *next < i64::MAX) {
            self.parts.fill(0.0);
            let mut reach = confirmed;
            for (next, at) in &mut heads {
                if *next == document {
                    reach += self.part(*at, document);
                    let list = &mut self.lists[*at];
                    *next = list.next_within(document + 1, highest, self.pages)?.unwrap_or(i64::MAX);
                }
            }
            let mut is_out = best.is_out_of_reach(reach * SLACK);
            for (bound, at) in confirming.iter().rev() {
                if is_out {
                    break;
                }
                self.lists[*at].seek(document, self.pages)?;
                reach += self.part(*at, document) - bound;
                is_out = best.is_out_of_reach(reach * SLACK);
            }
            if !is_out {
                best.offer(Hit { document, score: self.parts.iter().sum() });
            }
        }
        self.heads = heads;
        Ok(())
    }

    /// Offers the documents that have all the required terms and are among `only`.
    fn conjunction(
        &mut self,
        required: &[usize],
        only: Option<&[i64]>,
        best: &mut Best<'_>,
        pulse: Pulse<'_>,
    ) -> Result<(), Corrupt> {
        let mut only = only;
        let mut from = 0;
        'documents: loop {
            pulse();
            let mut document = from;
            // Until all agree on a document.
            loop {
                let before = document;
                if let Some(rest) = only {
                    let rest = &rest[rest.partition_point(|d| *d < document)..];
                    let Some(next) = rest.first() else { return Ok(()) };
                    only = Some(rest);
                    document = *next;
                }
                for at in required {
                    let Some(next) = self.lists[*at].seek(document, self.pages)? else { return Ok(()) };
                    document = next;
                }
                if document == before {
                    break;
                }
            }
            let Some(after) = document.checked_add(1) else { return Ok(()) };
            from = after;
            let mut bound = 0.0;
            for list in &mut self.lists {
                if list.block(document, self.pages)?.is_some() {
                    bound += list.block_bound();
                }
            }
            if best.is_out_of_reach(bound * SLACK) {
                continue 'documents;
            }
            self.parts.fill(0.0);
            for at in 0..self.lists.len() {
                self.lists[at].seek(document, self.pages)?;
                self.part(at, document);
            }
            best.offer(Hit { document, score: self.parts.iter().sum() });
        }
    }

    /// What a list adds to the score of a document, up to which it was moved.
    fn part(&mut self, at: usize, document: i64) -> f64 {
        let list = &self.lists[at];
        let part = list.score(document);
        self.parts[list.at] = part;
        part
    }
}
