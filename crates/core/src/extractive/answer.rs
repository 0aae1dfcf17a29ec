//! Choosing the sentences that answer.
//!
//! A sentence is rated for a part of the question by the share of the part's words that it has, each weighted by how much it
//! says and how rare it is in what was found; words of its title, of the sentences around it and of its passage count
//! in part. Then come what kind of sentence the part asks for, the place its passage had in the search, and
//! what speaks against a sentence: that it is a fragment, very long, or begins by pointing at the one before.

use std::collections::HashSet;

use super::cues;
use super::passage::{Form, Found, Sentence};
use super::question::{Kind, Part, Question, Term};
use crate::prompt::marker;
use crate::text::{is_stop_word, stem, words};

/// Most sentences of an answer.
const MAX_SENTENCES: usize = 4;
/// Longest sentence that is quoted, in characters.
const MAX_CHARS: usize = 450;
/// The share of a part's words that the best passage with its title must have for the part to count as answered.
const PASSAGE_COVER: f64 = 0.62;
/// The share that the best sentence with its title must have.
const SENTENCE_COVER: f64 = 0.4;

/// The best sentence for a part.
pub(super) struct Best {
    /// Index into [`Found::sentences`].
    pub sentence: usize,
    pub score: f64,
    /// Share of the part's words that the sentence has itself, weighted.
    pub covered: f64,
}

/// The best sentence for `part`, if any sentence shares a word with it.
/// All sentences that share a word with `part`, best first.
pub(super) fn ranked_sentences<'a>(
    part: &Part,
    question: &Question,
    found: &'a Found<'_>,
) -> impl Iterator<Item = &'a Sentence> {
    ranked(part, question, found).into_iter().map(|best| &found.sentences[best.sentence])
}

pub(super) fn best(part: &Part, question: &Question, found: &Found) -> Option<Best> {
    ranked(part, question, found).into_iter().next()
}

/// The answer with its markers, or `None` when the evidence covers too little of the question.
pub(super) fn compose(question: &Question, found: &Found) -> Option<String> {
    let mut chosen: Vec<usize> = Vec::new();
    let rooms = share_out(question.parts.len());
    let (mut answered, mut unanswered) = (0, Vec::new());
    for (part, room) in question.parts.iter().zip(rooms) {
        let mut ranked = ranked(part, question, found);
        ranked.retain(|best| has_own(part, &found.sentences[best.sentence]));
        if !ranked.first().is_some_and(|top| covers(part, top, found)) {
            unanswered.push(part);
            continue;
        }
        answered += 1;
        choose(part, &ranked, room, found, &mut chosen);
    }
    // A question of two parts of which one is unknown is half answered; of three or four, most must be.
    if chosen.is_empty() || answered * 2 < question.parts.len() {
        return None;
    }
    let mut text = chosen.iter().map(|&i| quoted(i, found)).collect::<Vec<_>>();
    if let Some(part) = unanswered.first() {
        text.push(format!("I found nothing that answers the part \"{}\".", part.asked));
    }
    Some(text.join(" "))
}

/// A sentence with its marker, and with the code it announces.
fn quoted(i: usize, found: &Found) -> String {
    let sentence = &found.sentences[i];
    let number = found.passages[sentence.passage].number;
    let text = marker::without_markers(&sentence.text);
    match (text.strip_suffix(':'), code_behind(i, found)) {
        (Some(_), Some(code)) if !code.contains('`') => format!("{text} `{code}` [{number}]"),
        (Some(lead), _) => format!("{lead}. [{number}]"),
        (None, _) if sentence.form == Form::Gloss => format!("{text}. [{number}]"),
        (None, _) => format!("{text} [{number}]"),
    }
}

/// How many sentences each part may have.
fn share_out(parts: usize) -> Vec<usize> {
    match parts {
        1 => vec![3],
        2 => vec![2, 2],
        n => vec![1; n.min(MAX_SENTENCES)],
    }
}

/// Whether the evidence covers a part: one passage nearly all of its words, one sentence a good share of them.
fn covers(part: &Part, top: &Best, found: &Found) -> bool {
    let sentence = &found.sentences[top.sentence];
    let passage = &found.passages[sentence.passage];
    let total: f64 = part.terms.iter().map(|t| weight(t, found)).sum();
    let share = |has: &dyn Fn(&Term) -> bool| {
        part.terms.iter().filter(|t| has(t)).map(|t| weight(t, found)).sum::<f64>() / total.max(1e-9)
    };
    // Of a name no letter may be missing: "capital of France" is not answered by a page about capitals.
    let names_known = part.terms.iter().filter(|t| t.weight > 1.0).all(|t| found.has(&t.stem));
    let in_passage = share(&|t| passage.stems.contains(&t.stem) || passage.title_stems.contains(&t.stem));
    let in_sentence = share(&|t| sentence.stems.contains(&t.stem) || passage.title_stems.contains(&t.stem));
    names_known && in_passage >= PASSAGE_COVER && in_sentence >= SENTENCE_COVER
}

/// Whether a sentence has what the part itself asks about, and not only what it takes from another part.
fn has_own(part: &Part, sentence: &Sentence) -> bool {
    let mut own = part.terms.iter().filter(|t| t.weight >= 1.0 && !part.borrowed.contains(&t.stem)).peekable();
    part.borrowed.is_empty() || own.peek().is_none() || own.any(|t| sentence.stems.contains(&t.stem))
}

fn weight(term: &Term, found: &Found) -> f64 {
    term.weight * found.rarity(&term.stem)
}

/// All sentences that share a word with the part, best first.
fn ranked(part: &Part, question: &Question, found: &Found) -> Vec<Best> {
    let total: f64 = part.terms.iter().map(|t| weight(t, found)).sum();
    let mut ranked: Vec<Best> =
        (0..found.sentences.len()).filter_map(|i| rate(i, part, question, found, total.max(1e-9))).collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.sentence.cmp(&b.sentence)));
    ranked
}

fn rate(i: usize, part: &Part, question: &Question, found: &Found, total: f64) -> Option<Best> {
    (found.pulse)();
    let sentence = &found.sentences[i];
    let passage = &found.passages[sentence.passage];
    let length = sentence.text.chars().count();
    if sentence.form == Form::Fragment || length > MAX_CHARS {
        return None;
    }
    // "To do this:" answers only with what comes behind it.
    if sentence.form == Form::Lead && part.kind != Kind::Definition && code_behind(i, found).is_none() {
        return None;
    }
    let neighbour = |step: isize| {
        let other = found.sentences.get(i.checked_add_signed(step)?)?;
        (other.passage == sentence.passage).then_some(other)
    };
    let (before, after) = (neighbour(-1).filter(|_| sentence.continues), neighbour(1).filter(|n| n.continues));
    let (mut own, mut around) = (0.0, 0.0);
    for term in &part.terms {
        let w = weight(term, found) / total * if part.borrowed.contains(&term.stem) { 0.4 } else { 1.0 };
        let near = |s: Option<&Sentence>| s.is_some_and(|s| s.stems.contains(&term.stem));
        if sentence.stems.contains(&term.stem) {
            own += w;
        } else if passage.title_stems.contains(&term.stem) {
            around += 0.6 * w;
        } else if near(before) || near(after) {
            around += 0.35 * w;
        } else if passage.stems.contains(&term.stem) {
            around += 0.2 * w;
        }
    }
    if own == 0.0 {
        return None;
    }
    let score = own
        + around
        + phrases(part, sentence)
        + title(part, found, sentence)
        + cue(part, question, sentence)
        + 0.25 / (1.0 + 0.35 * passage.rank as f64)
        + 0.04 * (passage.hits.min(4) as f64)
        + if sentence.place <= 2 { 0.04 } else { 0.0 }
        - against(part, sentence, length);
    Some(Best { sentence: i, score, covered: own })
}

/// The short line of code, or the like, behind a sentence that ends in a colon.
fn code_behind<'f>(i: usize, found: &'f Found<'_>) -> Option<&'f str> {
    const MAX_CODE: usize = 200;
    let (lead, next) = (&found.sentences[i], found.sentences.get(i + 1)?);
    let fits = next.passage == lead.passage && next.form == Form::Fragment && next.text.chars().count() <= MAX_CODE;
    (lead.form == Form::Lead && fits && next.text.ends_with(';')).then_some(&next.text)
}

/// Words that stand side by side in the question and in the sentence; three of them may be little words ("is the default").
fn phrases(part: &Part, sentence: &Sentence) -> f64 {
    let pairs = part
        .terms
        .windows(2)
        .filter(|pair| sentence.sequence.windows(2).any(|two| two[0] == pair[0].stem && two[1] == pair[1].stem));
    let asked: Vec<String> = words(&part.asked).into_iter().map(|(_, w)| stem(&w)).collect();
    let has_term = |three: &[String]| three.iter().any(|w| part.terms.iter().any(|t| t.weight >= 1.0 && t.stem == *w));
    let threes = asked.windows(3).filter(|three| has_term(three) && sentence.sequence.windows(3).any(|s| s == *three));
    (0.08 * (pairs.count() + threes.count()) as f64).min(0.24)
}

/// How much of the passage's title the part names: a page about the thing asked for is better than one that mentions it.
fn title(part: &Part, found: &Found, sentence: &Sentence) -> f64 {
    let stems = &found.passages[sentence.passage].title_stems;
    if stems.is_empty() {
        return 0.0;
    }
    let named = stems.iter().filter(|s| part.terms.iter().any(|t| t.stem == **s)).count();
    0.3 * named as f64 / stems.len() as f64
}

/// What the kind of question asks for.
fn cue(part: &Part, question: &Question, sentence: &Sentence) -> f64 {
    let lower = format!(" {} ", sentence.text.to_lowercase());
    let any = |list: &[&str]| list.iter().any(|w| lower.contains(w));
    let fitting = match part.kind {
        Kind::Definition => definition(part, sentence, &lower) + working(part, &any),
        Kind::Reason if any(cues::REASON) => {
            let needed = part.text.contains("need") || part.text.contains("necessary");
            0.25 + if needed && any(cues::NEED) { 0.15 } else { 0.0 }
        }

        Kind::Means if any(cues::MEANS) => 0.12,
        Kind::Contrast => {
            let both = !question.sides.is_empty()
                && question.sides.iter().all(|side| {
                    words(side).iter().all(|(_, w)| is_stop_word(w) || sentence.sequence.contains(&stem(w)))
                });
            let contrast = any(cues::CONTRAST);
            (if both { 0.25 } else { 0.0 }) + if contrast { 0.15 } else { 0.0 }
        }
        Kind::Number if sentence.text.chars().any(|c| c.is_ascii_digit()) || any(&["whenever", " when ", "if "]) => {
            0.08
        }
        _ => 0.0,
    };
    fitting + if tells_without(part, sentence) { 0.3 } else { 0.0 }
}

/// "How does X work": what it makes possible, and by what.
fn working(part: &Part, any: &dyn Fn(&[&str]) -> bool) -> f64 {
    if part.text.to_lowercase().starts_with("how ") && any(cues::WORKING) { 0.15 } else { 0.0 }
}

/// Whether the question asks for a way "without X" and the sentence has a negation shortly before X.
fn tells_without(part: &Part, sentence: &Sentence) -> bool {
    let asked: Vec<String> = words(&part.text).into_iter().map(|(_, w)| w).collect();
    let Some(at) = asked.iter().position(|w| cues::WITHOUT_ASKED.contains(&w.as_str())) else { return false };
    let unwanted: Vec<String> = asked[at + 1..].iter().filter(|w| !is_stop_word(w)).take(2).map(|w| stem(w)).collect();
    let told: Vec<String> = words(&sentence.text).into_iter().map(|(_, w)| w).collect();
    told.iter().enumerate().any(|(i, w)| {
        cues::WITHOUT_TOLD.contains(&w.as_str()) && told[i + 1..].iter().take(4).any(|w| unwanted.contains(&stem(w)))
    })
}

/// A sentence with the thing asked for as its subject, best with a verb of definition behind it.
fn definition(part: &Part, sentence: &Sentence, lower: &str) -> f64 {
    let subject: Vec<&str> = part
        .terms
        .iter()
        .filter(|t| t.weight >= 0.5 && !part.borrowed.contains(&t.stem))
        .map(|t| t.stem.as_str())
        .collect();
    if subject.is_empty() {
        return 0.0;
    }
    let reach = (subject.len() + 6).min(sentence.sequence.len());
    let head = &sentence.sequence[..reach];
    if !subject.iter().all(|s| head.iter().any(|w| w == s)) {
        return 0.0;
    }
    let start = head.iter().position(|w| subject.contains(&w.as_str())).unwrap_or(0);
    let leads = head[..start].iter().all(|w| cues::ARTICLES.contains(&w.as_str()));
    if !leads {
        return 0.06;
    }
    // "VACUUM FULL rewrites…" is about something else than "VACUUM", and "X cannot…" does not say what X is.
    let mut open = subject.clone();
    let end = head.iter().position(|w| {
        open.retain(|s| s != w);
        open.is_empty()
    });
    let end = end.map_or(head.len(), |i| i + 1);
    let other = sentence.form != Form::Gloss && sentence.capitals.get(end).copied().unwrap_or(false);
    if other || sentence.sequence.get(end).is_some_and(|w| cues::MODALS.contains(&w.as_str())) {
        return 0.08;
    }
    let defines = cues::DEFINITION.iter().any(|v| lower.find(v).is_some_and(|at| at < 90));
    0.4 + if sentence.form == Form::Gloss { 0.15 } else { 0.0 } + if defines { 0.08 } else { 0.0 }
}

/// What speaks against a sentence.
fn against(part: &Part, sentence: &Sentence, length: usize) -> f64 {
    let lower = sentence.text.to_lowercase();
    let starts = |list: &[&str]| list.iter().any(|w| lower.starts_with(w));
    let mut malus = 0.0;
    // A conclusion is what "why" asks for.
    if points_back(sentence) && !(part.kind == Kind::Reason && lower.starts_with("therefore")) {
        malus += 0.15;
    }
    if starts(cues::CROSS_REFERENCES) || (lower.contains("(see ") && length < 90) {
        malus += 0.25;
    }
    if starts(cues::ASIDES) {
        malus += 0.12;
    }
    if cues::REFERENCES.iter().any(|w| lower.contains(w)) {
        malus += 0.3;
    }
    if cues::DEICTIC.iter().any(|w| lower.contains(w)) {
        malus += 0.12;
    }
    if sentence.form == Form::Lead {
        malus += 0.06;
    }
    if lower.starts_with('(') {
        malus += 0.25;
    }
    if sentence.text.ends_with('?') {
        malus += 0.3;
    }
    if length > 300 {
        malus += 0.08;
    }
    if length < 40 {
        malus += 0.06;
    }
    malus
}

/// Whether a sentence begins with a word that points at the one before.
fn points_back(sentence: &Sentence) -> bool {
    let lower = sentence.text.to_lowercase();
    cues::POINTERS.iter().any(|p| lower.strip_prefix(p).is_some_and(|rest| rest.starts_with([' ', ',', '\''])))
}

/// Adds the best sentences of a part to those chosen: the first, what makes it understandable, and others that add something.
fn choose(part: &Part, ranked: &[Best], room: usize, found: &Found, chosen: &mut Vec<usize>) {
    let top = &ranked[0];
    let mut taken: Vec<usize> = Vec::new();
    let mut covered: HashSet<&str> = HashSet::new();
    for candidate in ranked.iter().take(40) {
        if taken.len() >= room || chosen.len() + taken.len() >= MAX_SENTENCES {
            break;
        }
        let sentence = &found.sentences[candidate.sentence];
        if repeats(candidate.sentence, part, taken.iter().chain(chosen.iter()), found) {
            continue;
        }
        let adds = part.terms.iter().any(|t| {
            let own = !part.borrowed.contains(&t.stem);
            own && sentence.stems.contains(&t.stem) && !covered.contains(t.stem.as_str())
        });
        let same_passage = taken.iter().any(|&i| found.sentences[i].passage == sentence.passage);
        // Further sentences must be nearly as good, unless they add a word of the question or go on where another was taken.
        let needed = match (adds, same_passage) {
            (true, true) => 0.72,
            (true, false) | (false, true) => 0.8,
            (false, false) => 0.92,
        };
        let beside = taken.iter().any(|&i| i.abs_diff(candidate.sentence) == 1) && same_passage;
        let score = candidate.score + if beside { 0.12 } else { 0.0 };
        if score < top.score * needed {
            continue;
        }
        if points_back(sentence) && sentence.continues && !taken.contains(&(candidate.sentence - 1)) {
            let lead = candidate.sentence - 1;
            let fits = taken.len() + 2 <= room.max(2) && chosen.len() + taken.len() + 2 <= MAX_SENTENCES;
            let good =
                found.sentences[lead].form != Form::Fragment && found.sentences[lead].text.chars().count() <= MAX_CHARS;
            if fits && good && !chosen.contains(&lead) {
                taken.push(lead);
            } else if !taken.is_empty() && !chosen.contains(&lead) {
                continue;
            }
        }
        taken.push(candidate.sentence);
        covered.extend(part.terms.iter().filter(|t| sentence.stems.contains(&t.stem)).map(|t| t.stem.as_str()));
    }
    order(&mut taken, found);
    chosen.extend(taken);
}

/// Sentences of one passage stand together in their order; passages in the order they were taken.
fn order(taken: &mut [usize], found: &Found) {
    let first: Vec<usize> = taken.iter().map(|&i| found.sentences[i].passage).collect();
    taken.sort_by_key(|&i| {
        let passage = found.sentences[i].passage;
        (first.iter().position(|&p| p == passage), i)
    });
}

/// Whether a sentence is, or says nearly the same as, one that was taken, and has no word of the part that the other lacks.
fn repeats<'a>(candidate: usize, part: &Part, taken: impl Iterator<Item = &'a usize>, found: &Found) -> bool {
    let stems = &found.sentences[candidate].stems;
    taken.into_iter().any(|&i| {
        let other = &found.sentences[i].stems;
        let common = stems.intersection(other).count();
        let adds = part.terms.iter().any(|t| stems.contains(&t.stem) && !other.contains(&t.stem));
        i == candidate || (!adds && common * 5 >= stems.len().min(other.len()).max(1) * 4)
    })
}
