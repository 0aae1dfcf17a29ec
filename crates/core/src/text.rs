//! Sentences, words and stems: plain text handling without a language model.
//!
//! It is written for English prose with code in it; text of other scripts is split on its own full stops and spaces and
//! compared word for word.

use std::ops::Range;

/// Called in long work: where the caller wants it to stop, it does not return, but unwinds.
pub type Pulse<'a> = &'a dyn Fn();

/// Words that end in a full stop without ending a sentence (lower case, without the stop).
const ABBREVIATIONS: &[&str] = &[
    "al", "approx", "art", "ca", "cf", "ch", "dept", "dr", "e.g", "ed", "eg", "eq", "esp", "est", "fig", "gen", "i.e",
    "ie", "incl", "jr", "lt", "mr", "mrs", "ms", "mt", "no", "nos", "pp", "prof", "resp", "rev", "sec", "sgt", "sr",
    "st", "u.k", "u.s", "viz", "vol", "vs",
];

/// Byte ranges of the sentences of `text`, trimmed, in order, never empty; together they hold every character that is no
/// white space.
///
/// A sentence ends at `.`, `!`, `?`, `…` or a full-width stop, with the closing quotes and brackets behind it; at a blank
/// line; and at a line break, unless the line is prose that was wrapped in the middle of a sentence.
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut place = Sentences::new(usize::MAX / 2);
    std::iter::from_fn(|| place.next(text)).map(|sentence| sentence.range).collect()
}

/// The sentences of a text one after the other, as [`sentences`] has them, those that do not end in parts.
#[derive(Debug, Clone)]
pub struct Sentences {
    /// Bytes from which on a sentence ends at white space, and at twice which it ends anyway.
    longest: usize,
    /// Where the next one begins.
    start: usize,
    /// Whether it goes on with a sentence that was too long.
    goes_on: bool,
}

/// A sentence, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    /// Where it stands.
    pub range: Range<usize>,
    /// It is no part.
    pub is_whole: bool,
}

impl Sentences {
    /// From the beginning of a text. A sentence of more than `longest` bytes comes in parts.
    pub fn new(longest: usize) -> Self {
        Self { longest: longest.max(1), start: 0, goes_on: false }
    }

    /// The next sentence of `text`, which is the same text each time.
    pub fn next(&mut self, text: &str) -> Option<Sentence> {
        loop {
            let start = skip_blank(text, self.start);
            if start == text.len() {
                self.start = start;
                return None;
            }
            let goes_on = self.goes_on;
            let (end, is_end) = self.end(text, start);
            self.start = end;
            self.goes_on = !is_end;
            if let Some(range) = trimmed(text, start..end) {
                return Some(Sentence { range, is_whole: is_end && !goes_on });
            }
        }
    }

    /// Where the sentence that begins at `start` ends, and whether it does or is only too long.
    fn end(&self, text: &str, start: usize) -> (usize, bool) {
        let mut at = start;
        while let Some(c) = text[at..].chars().next() {
            let next = at + c.len_utf8();
            // Stops in a row ("...") are looked at together, or a megabyte of them would take its square.
            let (end, ends) = match c {
                '.' | '!' | '?' | '…' => {
                    let end = after_closers(text, next);
                    (end, stop_ends(text, start, at, end))
                }
                '。' | '！' | '？' | '｡' => (after_closers(text, next), true),
                '\n' => (next, line_break_ends(text, start, at)),
                _ => (next, false),
            };
            at = end;
            if ends {
                return (at, true);
            }
            let length = at - start;
            if length >= self.longest && (c.is_whitespace() || length >= 2 * self.longest) {
                return (at, at == text.len());
            }
        }
        (at, true)
    }
}

fn skip_blank(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_start().len()
}

/// A range without the white space at its ends; `None` when nothing else is in it.
fn trimmed(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let piece = &text[range.clone()];
    let start = range.start + (piece.len() - piece.trim_start().len());
    let end = start + piece.trim().len();
    (start < end).then_some(start..end)
}

/// Whether the sentence that begins at `start` ends with the stop at `at`, whose closers reach to `end`.
fn stop_ends(text: &str, start: usize, at: usize, end: usize) -> bool {
    let mut rest = text[end..].chars();
    match rest.next() {
        None => return true,
        Some(c) if c.is_whitespace() => {}
        Some(_) => return false,
    }
    if !text[at..].starts_with('.') {
        return true;
    }
    let following = rest.find(|c| !c.is_whitespace());
    // A small letter may begin a sentence ("jsonb also supports…"), but not behind an ellipsis.
    let ellipsis = end - at > 1 && text[at..end].starts_with("..");
    if ellipsis && following.is_some_and(char::is_lowercase) {
        return false;
    }
    // Backwards from the stop, so the blank before the last word is met soon.
    let word = text[start..at].rsplit(|c: char| c.is_whitespace() || c == '(' || c == '"').next().unwrap_or_default();
    let initial = word.chars().count() == 1 && word.chars().all(char::is_uppercase);
    // "1. First item": the number of a list's item is no sentence.
    let item = word.len() == at - start && (1..=3).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit());
    !(initial || item || is_abbreviation(word, following))
}

/// Whether `word`, before a full stop and `following`, is an abbreviation.
fn is_abbreviation(word: &str, following: Option<char>) -> bool {
    // The longest has six letters: longer words need no lower-casing.
    if word.len() > 6 {
        return false;
    }
    let lower = word.to_lowercase();
    // "No. 5" is one, "The answer is no. Then" is not.
    let also_a_word = matches!(lower.as_str(), "no" | "nos" | "art" | "mt");
    ABBREVIATIONS.contains(&lower.as_str()) && (!also_a_word || following.is_some_and(char::is_numeric))
}

fn after_closers(text: &str, mut at: usize) -> usize {
    while let Some(c) = text[at..].chars().next() {
        if matches!(
            c,
            '.' | '!' | '?' | '…' | '"' | '\'' | '”' | '’' | ')' | ']' | '}' | '»' | '」' | '』' | '）' | '】'
        ) {
            at += c.len_utf8();
        } else {
            break;
        }
    }
    at
}

/// Whether the line break at `at` ends the sentence that began at `start`: always, unless a long line goes on in the
/// next one with a small letter (wrapped prose).
fn line_break_ends(text: &str, start: usize, at: usize) -> bool {
    const WRAPPED: usize = 45;
    let line_start = text[start..at].rfind('\n').map_or(start, |i| start + i + 1);
    let line = text[line_start..at].trim();
    let rest = &text[at + 1..];
    let next = rest.trim_start_matches([' ', '\t', '\r']);
    let goes_on = next.starts_with(|c: char| c.is_lowercase() || c == '(');
    !(goes_on && line.len() >= WRAPPED && !line.ends_with([':', ';', '{', '}']))
}

/// The words of `text` with their byte ranges: runs of letters, digits and `_`, lower-cased. An apostrophe inside a word
/// and what follows it is left out (`doesn't` → `doesn`, `VACUUM's` → `vacuum`).
pub fn words(text: &str) -> Vec<(Range<usize>, String)> {
    let mut out: Vec<(Range<usize>, String)> = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((start, c)) = chars.next() {
        if !is_word(c) {
            continue;
        }
        let mut end = start + c.len_utf8();
        while let Some(&(at, c)) = chars.peek() {
            if !is_word(c) {
                break;
            }
            end = at + c.len_utf8();
            chars.next();
        }
        let suffix = matches!(text[end..].chars().next(), Some('\'' | '’'));
        if suffix && text[end..].chars().nth(1).is_some_and(is_word) {
            chars.next();
            while chars.peek().is_some_and(|&(_, c)| is_word(c)) {
                chars.next();
            }
        }
        out.push((start..end, text[start..end].to_lowercase()));
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Words that say little about what a text is about.
const STOP_WORDS: &[&str] = &[
    "a", "about", "above", "after", "again", "all", "also", "am", "an", "and", "any", "are", "aren", "as", "at", "be",
    "because", "been", "before", "being", "between", "both", "but", "by", "can", "cannot", "could", "couldn", "did",
    "didn", "do", "does", "doesn", "doing", "don", "done", "down", "during", "each", "either", "else", "etc", "ever",
    "every", "few", "for", "from", "further", "get", "gets", "give", "given", "go", "goes", "had", "has", "have",
    "haven", "having", "he", "her", "here", "hers", "him", "his", "how", "however", "i", "if", "in", "into", "is",
    "isn", "it", "its", "just", "let", "ll", "made", "make", "makes", "many", "may", "me", "might", "more", "most",
    "much", "must", "my", "need", "needed", "needs", "no", "nor", "not", "now", "of", "off", "on", "once", "one",
    "ones", "only", "or", "other", "our", "out", "over", "own", "per", "please", "re", "s", "same", "shall", "she",
    "should", "so", "some", "such", "t", "tell", "than", "that", "the", "their", "theirs", "them", "then", "there",
    "these", "they", "thing", "things", "this", "those", "through", "thus", "to", "too", "under", "until", "up",
    "upon", "us", "use", "used", "uses", "using", "ve", "very", "via", "want", "was", "way", "ways", "we", "were",
    "what", "when", "where", "whether", "which", "while", "who", "whom", "whose", "why", "will", "with", "within",
    "without", "would", "yes", "yet", "you", "your",
];

/// Whether a lower-case word says little about what a text is about.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Endings that [`stem`] takes off, each with the letters that must stay before it.
const ENDINGS: &[(&str, usize)] = &[
    ("iveness", 4),
    ("fulness", 4),
    ("ively", 4),
    ("ement", 5),
    ("ment", 5),
    ("ness", 4),
    ("able", 4),
    ("ible", 4),
    ("ally", 4),
    ("edly", 3),
    ("ing", 3),
    ("ion", 4),
    ("ive", 4),
    ("iz", 4),
    ("is", 4),
    ("ity", 4),
    ("ery", 5),
    ("ed", 3),
    ("ly", 4),
    ("er", 5),
    ("or", 5),
    ("al", 4),
];

/// A light stem of a lower-case word, so that "indexes", "indexing" and "indexed" meet "index". It only has to bring
/// forms of one word together; what it gives need not be a word. Words with digits or `_` stay as they are.
///
/// ```
/// use ragent_core::text::stem;
/// assert_eq!(stem("recovering"), stem("recovered"));
/// ```
pub fn stem(word: &str) -> String {
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    let mut stem = tidy(plural(word));
    // Endings stack ("transaction-al-ly"); three are more than English words of manuals have.
    for _ in 0..3 {
        let Some((ending, _)) = ENDINGS.iter().find(|(ending, shortest)| fits(&stem, ending, *shortest)) else {
            break;
        };
        stem.truncate(stem.len() - ending.len());
        stem = tidy(stem);
    }
    stem
}

/// Whether `ending` can come off: enough letters stay, a vowel among them ("string" keeps its "ing").
fn fits(stem: &str, ending: &str, shortest: usize) -> bool {
    stem.len() >= ending.len() + shortest
        && stem.ends_with(ending)
        && stem[..stem.len() - ending.len()].contains(['a', 'e', 'i', 'o', 'u', 'y'])
}

fn plural(word: &str) -> String {
    let cut = |n: usize| word[..word.len() - n].to_owned();
    if word.ends_with("ies") && word.len() > 4 {
        return cut(3) + "y";
    }
    if ["sses", "xes", "ches", "shes", "zes"].iter().any(|e| word.ends_with(e)) {
        return cut(2);
    }
    if word.ends_with('s') && !["ss", "us", "is"].iter().any(|e| word.ends_with(e)) {
        return cut(1);
    }
    word.to_owned()
}

/// Undoes what endings do to the letters before them: doubled consonants, a silent e, y for i.
fn tidy(mut stem: String) -> String {
    let bytes = stem.as_bytes();
    let n = bytes.len();
    let doubled = n > 3 && bytes[n - 1] == bytes[n - 2] && !b"aeiouls".contains(&bytes[n - 1]);
    let silent_e = n > 4 && bytes[n - 1] == b'e';
    if doubled || silent_e {
        stem.pop();
    } else if n > 2 && bytes[n - 1] == b'i' {
        stem.pop();
        stem.push('y');
    }
    stem
}

/// The stems of the words of `text` that are no stop words, in order, with repetitions.
pub fn terms(text: &str) -> Vec<String> {
    words(text).into_iter().filter(|(_, w)| !is_stop_word(w)).map(|(_, w)| stem(&w)).collect()
}

/// `text` with white space collapsed to single blanks and case folded: texts that read the same compare equal.
pub fn normalise(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// At most `max` characters of `text`, cut at a blank where there is one near, with an ellipsis when something is left out.
pub fn shorten(text: &str, max: usize) -> String {
    let Some((cut, _)) = text.char_indices().nth(max) else {
        return text.to_owned();
    };
    if max == 0 {
        return String::new();
    }
    let cut = text[..cut].char_indices().next_back().map_or(0, |(i, _)| i);
    let head = &text[..cut];
    let end = match head.rfind(char::is_whitespace) {
        Some(blank) if blank * 2 >= cut => blank,
        _ => cut,
    };
    format!("{}…", text[..end].trim_end())
}

/// `text` on one line without control characters, at most `max` characters.
pub fn one_line(text: &str, max: usize) -> String {
    // White space only shrinks, so no more than this can be shown.
    let head: String = text.chars().take(max.saturating_mul(8)).map(|c| if c.is_control() { ' ' } else { c }).collect();
    shorten(&head.split_whitespace().collect::<Vec<_>>().join(" "), max)
}

/// Whether a text has nothing to see in it: white space, control characters, and those that only shape the text around them or
/// are drawn as nothing (zero-width blanks, marks of byte order and direction, fillers, variation selectors, tags). Providers
/// refuse such texts.
///
/// ```
/// use ragent_core::text::is_blank;
/// assert!(is_blank(" \u{200b}\u{feff}\n") && !is_blank("-"));
/// ```
pub fn is_blank(text: &str) -> bool {
    is_blank_within(text, &|| ())
}

/// As [`is_blank`], for a text that may be long: `pulse` is called every few kilobytes.
pub fn is_blank_within(text: &str, pulse: &dyn Fn()) -> bool {
    const WINDOW: usize = 64 << 10;
    let mut rest = text;
    while !rest.is_empty() {
        let (window, after) = rest.split_at(rest.floor_char_boundary(WINDOW));
        if !window.chars().all(is_invisible) {
            return false;
        }
        pulse();
        rest = after;
    }
    true
}

/// Whether a character shows nothing: Unicode's White_Space, control characters and Default_Ignorable_Code_Point, the marks of
/// interlinear annotation, and the blank of Braille.
fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A text as PostgreSQL can store it: U+0000, which text there cannot hold, becomes U+FFFD.
///
/// ```
/// use ragent_core::text::storable;
/// assert_eq!(storable("a\0b".to_owned()), "a\u{fffd}b");
/// ```
pub fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// The first so many of some names, separated by commas, and "..." for the others.
///
/// ```
/// use ragent_core::text::list;
/// assert_eq!(list(["a", "b", "c"], 3), "a, b, c");
/// assert_eq!(list(["a", "b", "c"], 2), "a, b, ...");
/// ```
pub fn list<T: Into<String>>(names: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut names = names.into_iter();
    let mut listed: Vec<String> = names.by_ref().take(most).map(Into::into).collect();
    if names.next().is_some() {
        listed.push("...".to_owned());
    }
    listed.join(", ")
}

/// A number with its noun: "1 round", "2 rounds".
pub fn counted(n: i64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        sentences(text).into_iter().map(|r| &text[r]).collect()
    }

    #[test]
    fn sentences_end_at_stops_and_keep_their_closers() {
        assert_eq!(split("One. Two! \"Three?\" (Four.) Five"), ["One.", "Two!", "\"Three?\"", "(Four.)", "Five"]);
        assert_eq!(split("一つ。二つ！三つ"), ["一つ。", "二つ！", "三つ"]);
        assert!(split(" \n\t ").is_empty());
    }

    #[test]
    fn abbreviations_initials_numbers_and_names_do_not_end_one() {
        for whole in [
            "Use it, e.g. VACUUM, with care.",
            "See Fig. 3 and No. 5 of J. R. Smith.",
            "Version 15.4 of postgresql.conf is 3.5 MB.",
            "Mr. Jones met Dr. Who vs. nobody.",
            "1. First do this.",
            "It ran... then it stopped.",
        ] {
            assert_eq!(split(whole), [whole]);
        }
        assert_eq!(
            split("The answer is no. Then stop. jsonb starts one too."),
            ["The answer is no.", "Then stop.", "jsonb starts one too."]
        );
    }

    #[test]
    fn line_breaks_end_one_unless_the_line_is_wrapped_prose() {
        let wrapped = "This sentence goes over the end of its line and\nthen it goes on here. Next.";
        assert_eq!(split(wrapped).len(), 2);
        assert_eq!(split("Heading\nText of it."), ["Heading", "Text of it."]);
        assert_eq!(split("Heading\r\nText."), ["Heading", "Text."]);
        assert_eq!(
            split("para one that is long enough to be wrapped by someone\n\npara two"),
            ["para one that is long enough to be wrapped by someone", "para two"]
        );
    }

    #[test]
    fn sentences_hold_every_visible_character() {
        let text = "A. B\n\nc d e.f?g !\" x\u{0}y 。z …  (a.) .";
        let kept: String = split(text).concat().split_whitespace().collect();
        assert_eq!(kept, text.split_whitespace().collect::<String>());
    }

    #[test]
    fn words_are_lower_case_with_their_places() {
        let text = "Don't SET max_connections=100, naïve-Ätna";
        let found = words(text);
        assert_eq!(
            found.iter().map(|(_, w)| w.as_str()).collect::<Vec<_>>(),
            ["don", "set", "max_connections", "100", "naïve", "ätna"]
        );
        assert!(found.iter().all(|(r, w)| text[r.clone()].to_lowercase() == *w));
    }

    #[test]
    fn stop_words_are_sorted_for_the_search_in_them() {
        assert!(STOP_WORDS.is_sorted());
        assert!(is_stop_word("which") && !is_stop_word("vacuum"));
    }

    #[test]
    fn forms_of_one_word_share_a_stem_and_other_words_do_not() {
        for forms in [
            ["index", "indexes", "indexing", "indexed"],
            ["recover", "recovery", "recovering", "recovered"],
            ["create", "creates", "creating", "created"],
            ["lock", "locks", "locking", "locked"],
            ["run", "running", "runs", "run"],
            ["query", "queries", "querying", "queried"],
            ["isolation", "isolate", "isolated", "isolations"],
        ] {
            let stems: std::collections::HashSet<_> = forms.iter().map(|f| stem(f)).collect();
            assert_eq!(stems.len(), 1, "{forms:?} → {stems:?}");
        }
        for (a, b) in [
            ("table", "tab"),
            ("process", "proceed"),
            ("user", "use"),
            ("json", "jsonb"),
            ("string", "str"),
            ("thing", "th"),
            ("class", "clas"),
            ("wal", "wales"),
        ] {
            assert_ne!(stem(a), stem(b), "{a} and {b}");
        }
    }

    #[test]
    fn a_text_of_invisible_characters_is_blank_however_long() {
        for blank in
            ["", " \t\n", "\u{200b}", "\u{feff}\u{202e}", "\u{1}\u{0}", "\u{3164}", "\u{2800}", "\u{fe0f}\u{e0020}"]
        {
            assert!(is_blank(blank), "{blank:?}");
        }
        for seen in ["-", "\u{fffd}", "\u{feff}a", "❤\u{fe0f}", "ᅠx"] {
            assert!(!is_blank(seen), "{seen:?}");
        }
        let pulses = std::cell::Cell::new(0);
        let long = "\u{200b}".repeat(100_000);
        assert!(is_blank_within(&long, &|| pulses.set(pulses.get() + 1)) && pulses.get() >= 4);
        assert!(!is_blank(&(long + "x")));
    }

    #[test]
    fn shortening_counts_characters_and_prefers_blanks() {
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("some longer words here", 16), "some longer…");
        assert_eq!(shorten("жжжжжж", 4), "жжж…");
        assert_eq!(shorten("abc", 0), "");
    }
}
