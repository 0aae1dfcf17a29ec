//! Checking an answer's markers against the evidence, and quoting what supports them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use crate::prompt::marker::{self, Marker};
use crate::text::{is_stop_word, sentences, stem, terms, words};

/// A marker of the answer and the chunk it stands for. Serialises to an element of `rag.answer`'s `citations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Citation {
    /// The number in the answer's text.
    pub marker: u32,
    /// Collection of the chunk.
    pub collection: String,
    /// Key of its source row.
    pub key: serde_json::Value,
    /// Its number within the row, from 1.
    pub chunk: i32,
    /// Title of the row.
    pub title: Option<String>,
    /// Link of the row.
    pub link: Option<String>,
    /// The part of the chunk that supports the first sentence with the marker: verbatim, at most 300 characters.
    pub quote: String,
}

impl Citation {
    /// The source on one line: marker, collection, title, key columns, link.
    pub fn source(&self) -> String {
        let key = match &self.key {
            serde_json::Value::Object(fields) => {
                let field = |(name, value): (&String, &serde_json::Value)| match value {
                    serde_json::Value::String(text) => format!("{name}={}", one_line(text)),
                    other => format!("{name}={other}"),
                };
                fields.iter().map(field).collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        };
        let title = self.title.as_deref().map(|title| format!(": {}", one_line(title))).unwrap_or_default();
        let link = self.link.as_deref().map(|link| format!(" <{}>", one_line(link))).unwrap_or_default();
        format!("[{}] {}{title} ({key}){link}", self.marker, self.collection)
    }
}

/// A text of a row, so that it cannot look like another line of the list of sources.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c }).collect()
}

/// Longest quote, in characters.
const MAX_QUOTE: usize = 300;
/// So much of a claim and of a passage is compared to find a quote, in bytes: their words are weighed against each other.
const MAX_CLAIM: usize = 2_000;
const MAX_CONTENT: usize = 20_000;
/// Most markers of an answer that are checked; those behind are taken out.
const MAX_MARKERS: usize = 2_000;

/// An answer whose markers are checked.
pub(super) struct Verified {
    /// The text: every marker names an evidence, renumbered from 1 in the order of first appearance.
    pub text: String,
    /// One for each number in the text.
    pub citations: Vec<Citation>,
    /// Numbers taken out because they name nothing.
    pub removed: u32,
}

/// Checks the markers of `text`: numbers of evidence stay and are renumbered, others are taken out and counted.
pub(super) fn verify(text: &str, evidence: &Evidence) -> Verified {
    let markers = marker::find(text);
    let claims = Claims::new(text, &markers);
    let mut renumbered: BTreeMap<u32, u32> = BTreeMap::new();
    let mut citations = Vec::new();
    let mut removed = 0;
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (place, marker) in markers.iter().enumerate() {
        out.push_str(&text[at..marker.range.start]);
        at = marker.range.end;
        let mut kept = false;
        for &number in &marker.numbers {
            let Some(hit) = evidence.get(number).filter(|_| place < MAX_MARKERS) else {
                removed += 1;
                continue;
            };
            kept = true;
            let next = renumbered.len() as u32 + 1;
            let new = *renumbered.entry(number).or_insert_with(|| {
                citations.push(Citation {
                    marker: next,
                    collection: hit.collection.clone(),
                    key: hit.key.clone(),
                    chunk: hit.chunk,
                    title: hit.title.clone(),
                    link: hit.link.clone(),
                    quote: quote(&hit.content, &claims.of(marker)).to_owned(),
                });
                next
            });
            out.push_str(&format!("[{new}]"));
        }
        if !kept {
            marker::drop_blank(&mut out, &text[at..]);
        }
    }
    out.push_str(&text[at..]);
    Verified { text: out.trim().to_owned(), citations, removed }
}

/// The sentences of an answer, to find the one that a marker supports.
struct Claims<'a> {
    text: &'a str,
    markers: &'a [Marker],
    sentences: Vec<Range<usize>>,
    /// Where the first word of each sentence begins that is no marker.
    first_words: Vec<Option<usize>>,
}

impl<'a> Claims<'a> {
    fn new(text: &'a str, markers: &'a [Marker]) -> Claims<'a> {
        let sentences = sentences(text);
        let first_word = |sentence: &Range<usize>| {
            parts_without_markers(sentence, markers)
                .find_map(|part| Some(part.start + text[part.clone()].find(char::is_alphanumeric)?))
        };
        let first_words = sentences.iter().map(first_word).collect();
        Claims { text, markers, sentences, first_words }
    }

    /// The sentence that `marker` supports, without markers: the one it stands in, or the one before when it follows that
    /// one's full stop (`It is so. [1] Next…`).
    fn of(&self, marker: &Marker) -> String {
        let last = self.sentences.len().saturating_sub(1);
        let mut i = self.sentences.partition_point(|s| s.end <= marker.range.start).min(last);
        while i > 0 && self.stands_behind(i, marker) {
            i -= 1;
        }
        let sentence = self.sentences.get(i).cloned().unwrap_or(0..0);
        let start = sentence.start;
        let sentence = start..start + self.text[sentence].floor_char_boundary(MAX_CLAIM);
        parts_without_markers(&sentence, self.markers).map(|part| &self.text[part]).collect()
    }

    /// Whether `marker` belongs to the sentence before the one it stands in, `i`: only markers come between them, in one line;
    /// or the sentence has no words of its own.
    fn stands_behind(&self, i: usize, marker: &Marker) -> bool {
        let Some(first_word) = self.first_words[i] else {
            return true;
        };
        let one_line = !self.text[self.sentences[i - 1].end..self.sentences[i].start].contains('\n');
        one_line && first_word >= marker.range.start
    }
}

/// The parts of `sentence` between its markers.
fn parts_without_markers<'m>(
    sentence: &Range<usize>,
    markers: &'m [Marker],
) -> impl Iterator<Item = Range<usize>> + 'm {
    let Range { start, end } = *sentence;
    let first = markers.partition_point(|m| m.range.end <= start);
    let inside = markers[first..].iter().take_while(move |m| m.range.start < end);
    let cuts = inside.map(move |m| (m.range.start.max(start), m.range.end.min(end)));
    let mut at = start;
    cuts.chain(std::iter::once((end, end))).map(move |(from, to)| {
        let part = at..from.max(at);
        at = to.max(at);
        part
    })
}

/// The part of `content` that supports `claim` best: the sentence that shares most with it, weighted by how rare the words
/// are in the content, with neighbours as long as they add shared words; at most 300 characters, verbatim. The beginning of
/// the content when nothing is shared (an answer in another language).
pub(super) fn quote<'a>(content: &'a str, claim: &str) -> &'a str {
    let content = &content[..content.floor_char_boundary(MAX_CONTENT)];
    let sentences = sentences(content);
    let stems: Vec<HashSet<String>> =
        sentences.iter().map(|s| terms(&content[s.clone()]).into_iter().collect()).collect();
    let mut weights: BTreeMap<String, f64> = BTreeMap::new();
    for term in terms(claim) {
        let found = stems.iter().filter(|s| s.contains(&term)).count();
        weights.insert(term, (1.0 + stems.len() as f64 / found.max(1) as f64).ln());
    }
    let shared =
        |terms: &HashSet<String>| -> f64 { weights.iter().filter(|(t, _)| terms.contains(*t)).map(|(_, w)| w).sum() };
    let Some(best) = (0..sentences.len()).max_by(|&a, &b| {
        // Of equals the shorter, then the earlier.
        shared(&stems[a])
            .total_cmp(&shared(&stems[b]))
            .then(sentences[b].len().cmp(&sentences[a].len()))
            .then(b.cmp(&a))
    }) else {
        return content.trim();
    };
    if shared(&stems[best]) == 0.0 {
        return window(content, sentences[0].start..sentences[sentences.len() - 1].end, |_| 0.0);
    }
    let too_long = |range: &Range<usize>| content[range.clone()].chars().count() > MAX_QUOTE;
    let mut range = sentences[best].clone();
    if too_long(&range) {
        return window(content, range, |word| weights.get(word).copied().unwrap_or(0.0));
    }
    let (mut first, mut last) = (best, best);
    let mut known = stems[best].clone();
    loop {
        let gain = |i: usize| shared(&stems[i].difference(&known).cloned().collect());
        let before = first.checked_sub(1).map(|i| (gain(i), i));
        let after = (last + 1 < sentences.len()).then(|| (gain(last + 1), last + 1));
        let candidates = [after, before].into_iter().flatten().filter(|(gain, _)| *gain > 0.0);
        let Some((_, i)) = candidates.max_by(|a, b| a.0.total_cmp(&b.0)) else {
            break;
        };
        let wider = range.start.min(sentences[i].start)..range.end.max(sentences[i].end);
        if too_long(&wider) {
            break;
        }
        range = wider;
        known.extend(stems[i].iter().cloned());
        (first, last) = (first.min(i), last.max(i));
    }
    &content[range]
}

/// The stretch of whole words of `range`, at most 300 characters long, whose stems weigh most.
fn window(content: &str, range: Range<usize>, weight: impl Fn(&str) -> f64) -> &str {
    let text = &content[range];
    let words: Vec<(Range<usize>, f64)> = words(text)
        .into_iter()
        .map(|(r, w)| {
            let weight = if is_stop_word(&w) { 0.0 } else { weight(&stem(&w)) };
            (r, weight)
        })
        .collect();
    // Characters before each byte a word may begin or end at; one pass instead of one count for each window.
    let mut chars_before: HashMap<usize, usize> = HashMap::new();
    for (n, (i, _)) in text.char_indices().enumerate() {
        chars_before.insert(i, n);
    }
    chars_before.insert(text.len(), chars_before.len());
    let total = chars_before[&text.len()];
    if total <= MAX_QUOTE {
        return text;
    }
    // All best windows: the one in the middle has what weighs in its middle.
    let (mut best, mut best_sum): (Vec<Range<usize>>, f64) = (Vec::new(), -1.0);
    let (mut end, mut sum) = (0, 0.0);
    for first in 0..words.len() {
        let begin = chars_before[&words[first].0.start];
        while end < words.len() && chars_before[&words[end].0.end] - begin <= MAX_QUOTE {
            sum += words[end].1;
            end += 1;
        }
        if end <= first {
            // A single word longer than a quote.
            end = first + 1;
            sum = 0.0;
            continue;
        }
        let window = words[first].0.start..words[end - 1].0.end;
        if sum > best_sum + 1e-9 {
            (best, best_sum) = (vec![window], sum);
        } else if sum > best_sum - 1e-9 {
            best.push(window);
        }
        sum -= words[first].1;
    }
    let best = best.get(best.len() / 2).cloned();
    let cut = text.char_indices().nth(MAX_QUOTE).map_or(text.len(), |(i, _)| i);
    best.map_or_else(|| text[..cut].trim_end(), |range| &text[range])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::{Hit, Limits};

    fn evidence(contents: &[&str]) -> Evidence {
        let mut evidence = Evidence::default();
        for (i, content) in contents.iter().enumerate() {
            let hit = Hit {
                collection: "c".into(),
                key: json!({ "id": i + 1 }),
                chunk: 1,
                content: (*content).into(),
                title: Some(format!("T{}", i + 1)),
                link: None,
                score: 0.5,
            };
            evidence.add(hit, &Limits::default());
        }
        evidence
    }

    fn check(text: &str, contents: &[&str]) -> (String, Vec<(u32, i64)>, u32) {
        let verified = verify(text, &evidence(contents));
        let pairs = verified.citations.iter().map(|c| (c.marker, c.key["id"].as_i64().unwrap())).collect();
        (verified.text, pairs, verified.removed)
    }

    #[test]
    fn markers_are_renumbered_in_the_order_of_first_appearance() {
        assert_eq!(
            check("A [3]. B [1, 3]. C [1][2].", &["a", "b", "c"]),
            ("A [1]. B [2][1]. C [2][3].".into(), vec![(1, 3), (2, 1), (3, 2)], 0)
        );
        assert_eq!(check("A 【2】.", &["a", "b"]), ("A [1].".into(), vec![(1, 2)], 0));
    }

    #[test]
    fn markers_that_name_nothing_are_taken_out_and_counted() {
        assert_eq!(check("A [7]. B [1, 9] and [0] so.", &["a"]), ("A. B [1] and so.".into(), vec![(1, 1)], 3));
        assert_eq!(check("A [1][2].", &[]), ("A.".into(), vec![], 2));
        assert_eq!(check("[5] A", &[]), ("A".into(), vec![], 1));
    }

    #[test]
    fn code_keeps_its_brackets() {
        let text = "Use `a [1]` or arr[1]:\n```\nSELECT x [2];\n```\nDone [2].";
        let (out, pairs, removed) = check(text, &["a", "b"]);
        assert_eq!(out, text.replace("Done [2]", "Done [1]"));
        assert_eq!((pairs, removed), (vec![(1, 2)], 0));
    }

    #[test]
    fn an_answer_of_nothing_but_markers_or_sentences_takes_no_square_of_time() {
        let evidence = evidence(&["a", "b"]);
        for text in ["[1]".repeat(20_000), "So. [1] ".repeat(10_000), "[1]. ".repeat(10_000), "… [2]\n".repeat(10_000)]
        {
            let verified = verify(&text, &evidence);
            assert_eq!(verified.citations.len(), 1);
            assert_eq!(verified.removed as usize, marker::find(&text).len() - MAX_MARKERS);
        }
    }

    #[test]
    fn a_claim_and_passages_of_many_words_take_no_square_of_time() {
        let words: String = (0..20_000).map(|i| format!("word{i} ")).collect();
        let sentences: String = (0..20_000).map(|i| format!("Word{i} is it. ")).collect();
        let contents = [sentences.as_str(); 20].map(str::to_owned);
        let contents: Vec<&str> = contents.iter().map(String::as_str).collect();
        let verified = verify(&format!("{words}[1][2][3][4][5][6][7][8]."), &evidence(&contents));
        assert!(!verified.citations.is_empty());
    }

    #[test]
    fn the_quote_is_the_sentence_that_supports_the_claim() {
        let content = "VACUUM reclaims storage occupied by dead tuples. It can run in parallel.\n\nAutovacuum runs VACUUM by itself, so few people call it. ANALYZE collects statistics.";
        let quoted = |claim: &str| verify(claim, &evidence(&[content])).citations[0].quote.clone();
        assert_eq!(quoted("Statistics are collected by ANALYZE [1]."), "ANALYZE collects statistics.");
        assert_eq!(quoted("It frees storage of dead tuples. [1]"), "VACUUM reclaims storage occupied by dead tuples.");
        assert_eq!(
            quoted("Dead tuples go; it runs in parallel [1]."),
            "VACUUM reclaims storage occupied by dead tuples. It can run in parallel."
        );
        assert_eq!(quoted("- [1] ANALYZE collects statistics"), "ANALYZE collects statistics.");
        let two = verify("VACUUM frees storage. [1][2] ANALYZE collects statistics. [2]", &evidence(&["x", content]));
        assert_eq!(two.citations[1].quote, "VACUUM reclaims storage occupied by dead tuples.");
        assert_eq!(quoted("Ганц андэрс [1]."), content);
    }

    #[test]
    fn a_quote_is_verbatim_and_at_most_300_characters() {
        let long = format!("{} the needle lies here among {}.", "hay straw ".repeat(200), "more hay ".repeat(200));
        for content in [long.as_str(), &"ж".repeat(5000), &"слово ".repeat(300), "", "x"] {
            for claim in ["the needle lies [1]", "other [1]"] {
                let quoted = quote(content, claim);
                assert!(quoted.chars().count() <= MAX_QUOTE && content.contains(quoted));
                assert_eq!(quoted.is_empty(), content.is_empty());
            }
        }
        assert!(quote(&long, "where is the needle").contains("needle lies here"));
    }
}
