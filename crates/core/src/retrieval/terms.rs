//! What of a text is indexed beside the lexemes that PostgreSQL's text search configuration makes of it.
//!
//! A configuration takes names and codes apart in ways that people do not expect: `ERR-1042` becomes `err` and the number
//! −1042, `a.b_c` a host name. So names, codes, versions, addresses and paths are found here, and are indexed twice: *whole*,
//! as a term of their own (`=err-1042`), and *by part*: the configuration is given the text with their separators blanked
//! (`ERR 1042`), so that parts are stemmed, and stop words dropped, as all other words. Texts and queries go the same way.
//!
//! Every word that letters alone make is also kept as it is written (`~isolation`), once for each segment: of these a
//! misspelt word's alternatives are found, since stems are no words ([`super::spelling`]).
//!
//! ```
//! use ragent_core::retrieval::terms::Terms;
//! let terms = Terms::of("Error ERR-1042 in pg_catalog.pg_stat_io", &|| ());
//! assert_eq!(terms.text, "Error ERR 1042 in pg catalog pg stat io");
//! let exact: Vec<&str> = terms.exact.keys().map(String::as_str).collect();
//! assert_eq!(exact, ["=err-1042", "=pg_catalog", "=pg_catalog.pg_stat_io", "=pg_stat_io"]);
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::text::Pulse;

/// What a term begins with that stands for a name, code, version, address or path as a whole.
pub const EXACT_MARK: char = '=';
/// What a term begins with that stands for a word as it is written.
pub const WORD_MARK: char = '~';

/// Longest identifier, in bytes: what is longer is data, such as a key or an image.
const LONGEST: usize = 200;
/// Most parts of an identifier that are looked at as identifiers of their own.
const MOST_PARTS: usize = 8;
/// Most distinct terms of either kind from one text: what is beyond is left to the configuration.
const MOST_TERMS: usize = 20_000;
/// Bytes between two calls of `pulse`.
const STRETCH: usize = 8 << 10;

/// What an identifier looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `jane.doe@example.com`
    Address,
    /// `v4.2.1`, `15.4.2`, also a network address
    Version,
    /// `pg_stat_io`
    Name,
    /// `postgresql.conf`
    Dotted,
    /// `/etc/hosts`, `std::vec`, `https://example.com/a`
    Path,
    /// `ERR-1042`, `40P01`, `2024-01-15`
    Code,
}

/// A text's terms beside those of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms<'a> {
    /// What the configuration is given: the text with the separators in identifiers blanked.
    pub text: Cow<'a, str>,
    /// Identifiers as terms, marked by [`EXACT_MARK`], lower-case, with how often each is there. They do not count in the
    /// length of the document: their parts do.
    pub exact: BTreeMap<String, usize>,
    /// Words as terms, marked by [`WORD_MARK`], lower-case.
    pub words: BTreeSet<String>,
}

impl<'a> Terms<'a> {
    /// Of a text. `pulse` is called every few kilobytes; memory is bounded but for a copy of the text.
    pub fn of(text: &'a str, pulse: Pulse<'_>) -> Self {
        let mut terms = Self { text: Cow::Borrowed(text), exact: BTreeMap::new(), words: BTreeSet::new() };
        let mut seen = 0;
        for_each_word(text, pulse, |start, word| {
            if start - seen >= STRETCH {
                seen = start;
                pulse();
            }
            terms.word(start, word);
        });
        terms
    }

    fn word(&mut self, start: usize, word: &str) {
        let Some(shape) = shape(word) else { return self.plain(word) };
        for whole in wholes(word, shape) {
            if self.exact.len() < MOST_TERMS {
                *self.exact.entry(format!("{EXACT_MARK}{}", whole.to_lowercase())).or_default() += 1;
            }
        }
        // Separators are ASCII: blanks in their place leave everything else where it is.
        if word.contains(is_separator) {
            let blanked = word.replace(is_separator, " ");
            self.text.to_mut().replace_range(start..start + word.len(), &blanked);
        }
        word.split(is_separator).for_each(|part| self.plain(part));
    }

    fn plain(&mut self, word: &str) {
        for part in word.split(|c: char| !c.is_alphanumeric()) {
            let length = part.chars().count();
            if super::spelling::LENGTHS.contains(&length)
                && part.chars().all(char::is_alphabetic)
                && self.words.len() < MOST_TERMS
            {
                self.words.insert(format!("{WORD_MARK}{}", part.to_lowercase()));
            }
        }
    }
}

/// Runs of what identifiers are made of, without what stands around them, with their places. Longer ones than
/// [`LONGEST`] are left out.
fn for_each_word(text: &str, pulse: Pulse<'_>, mut each: impl FnMut(usize, &str)) {
    let mut start = None;
    let mut seen = 0;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if at - seen >= STRETCH {
            seen = at;
            pulse();
        }
        match (start, is_part(c)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                start = None;
                if at - from <= 2 * LONGEST {
                    let word = stripped(&text[from..at]);
                    if !word.is_empty() && word.len() <= LONGEST {
                        let lead = text[from..at].find(word).unwrap_or_default();
                        each(from + lead, word);
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, '_' | '-' | '.' | '@' | ':' | '/' | '+' | '\\')
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || is_separator(c)
}

/// A word without the punctuation around it; a leading slash stays.
pub(super) fn stripped(word: &str) -> &str {
    let word = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '_' && c != '/');
    // Of "(//x" one slash is as good as none.
    if word.starts_with("//") { word.trim_start_matches('/') } else { word }
}

/// What identifier a word is; `None` for words and plain numbers.
pub fn shape(word: &str) -> Option<Shape> {
    if word.is_empty() || word.len() > LONGEST || !word.chars().all(is_part) {
        return None;
    }
    let is_inner = |separator: char| {
        let mut parts = word.split(separator);
        parts.clone().count() > 1 && parts.any(|p| p.contains(char::is_alphanumeric))
    };
    let has_digit = word.contains(|c: char| c.is_numeric());
    let has_letter = word.contains(char::is_alphabetic);
    if let Some((local, host)) = word.split_once('@') {
        let is_host = host.contains('.') && !host.contains('@') && host.ends_with(char::is_alphanumeric);
        return (is_host && local.contains(char::is_alphanumeric)).then_some(Shape::Address);
    }
    if word.contains("://") || word.contains("::") || word.matches(['/', '\\']).count() > 1 {
        return (has_letter || has_digit).then_some(Shape::Path);
    }
    if word.contains(['/', '\\', ':']) {
        // "and/or", "12:30", "note:this" are none; "/tmp" is.
        return (word.starts_with('/') && has_letter).then_some(Shape::Path);
    }
    if is_version(word) {
        return Some(Shape::Version);
    }
    if is_inner('_') {
        return Some(Shape::Name);
    }
    if word.contains('.') {
        // "3.5" is a number, "e.g" and "U.S" are abbreviations.
        let longest = word.split('.').map(|p| p.chars().count()).max().unwrap_or_default();
        return (has_letter && longest > 1).then_some(Shape::Dotted);
    }
    let hyphens = word.matches('-').count();
    if has_digit && has_letter {
        return (!is_measure(word)).then_some(Shape::Code);
    }
    (has_digit && hyphens > 1).then_some(Shape::Code)
}

/// Numbers with dots, two or more, or one and a leading v; something may follow (`v2.0-rc1`).
fn is_version(word: &str) -> bool {
    let rest = word.strip_prefix(['v', 'V']);
    let number = rest.unwrap_or(word);
    let parts = number.split('.').take_while(|p| p.starts_with(|c: char| c.is_ascii_digit())).count();
    let all = number.split('.').count();
    if word.contains('_') || parts + 1 < all {
        return false;
    }
    if rest.is_some() { parts >= 1 } else { parts >= 3 }
}

/// A number and one or two letters: `3d`, `10th`, `100ms`. PostgreSQL's parser keeps them together by itself.
fn is_measure(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_numeric());
    unit.len() < word.len() && unit.chars().count() <= 2 && unit.chars().all(char::is_alphabetic)
}

/// An identifier and those it is made of.
fn wholes(word: &str, shape: Shape) -> Vec<&str> {
    let mut wholes = vec![word];
    // "v4.2.1" and "4.2.1" are the same version.
    if shape == Shape::Version && word.contains('.') {
        wholes.extend(word.strip_prefix(['v', 'V']).filter(|number| self::shape(number).is_some()));
    }
    let outer: &[char] = match shape {
        Shape::Address => &['@'],
        Shape::Path => &['/', '\\', ':'],
        Shape::Dotted => &['.'],
        Shape::Name => &['.', '-', '+'],
        Shape::Version | Shape::Code => &[],
    };
    if !outer.is_empty() {
        let parts = word.split(outer).map(stripped).filter(|p| *p != word && self::shape(p).is_some());
        wholes.extend(parts.take(MOST_PARTS));
    }
    wholes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn exact(text: &str) -> Vec<String> {
        Terms::of(text, &|| ()).exact.into_keys().map(|t| t[1..].to_owned()).collect()
    }

    #[test]
    fn identifiers_have_a_shape_and_words_have_none() {
        use Shape::{Address, Code, Dotted, Name, Path, Version};
        for (word, expected) in [
            ("ERR-1042", Some(Code)),
            ("40P01", Some(Code)),
            ("sha256", Some(Code)),
            ("2024-01-15", Some(Code)),
            ("pg_stat_io", Some(Name)),
            ("_private", Some(Name)),
            ("schema.my_table", Some(Name)),
            ("v4.2.1", Some(Version)),
            ("v4", Some(Version)),
            ("15.4.2", Some(Version)),
            ("v2.0-rc1", Some(Version)),
            ("postgresql.conf", Some(Dotted)),
            ("org.example.Class", Some(Dotted)),
            ("jane.doe@example.com", Some(Address)),
            ("/etc/hosts", Some(Path)),
            ("https://example.com/a_b", Some(Path)),
            ("std::vec", Some(Path)),
            ("Größe_2", Some(Name)),
            ("word", None),
            ("Word", None),
            ("two-dimensional", None),
            ("US-ASCII", None),
            ("and/or", None),
            ("12:30", None),
            ("3.14", None),
            ("1042", None),
            ("1-2", None),
            ("3d", None),
            ("10th", None),
            ("100ms", None),
            ("e.g", None),
            ("U.S", None),
            ("a@b", None),
            ("_", None),
            ("", None),
            ("日本語", None),
        ] {
            assert_eq!(shape(word), expected, "{word}");
        }
        assert_eq!(shape(&"a_".repeat(1000)), None);
    }

    #[test]
    fn identifiers_are_terms_as_a_whole_and_by_what_they_are_made_of() {
        for (text, expected) in [
            ("See ERR-1042, please.", vec!["err-1042"]),
            ("(pg_stat_io)", vec!["pg_stat_io"]),
            ("max_connections=100;", vec!["max_connections"]),
            ("v4.2.1.", vec!["4.2.1", "v4.2.1"]),
            ("\"40P01\"", vec!["40p01"]),
            ("mail jane.doe@example.com", vec!["example.com", "jane.doe", "jane.doe@example.com"]),
            ("in /etc/postgresql/pg_hba.conf:", vec!["/etc/postgresql/pg_hba.conf", "pg_hba.conf"]),
            ("plain words, of course - nothing else...", vec![]),
        ] {
            assert_eq!(exact(text), expected, "{text}");
        }
        assert_eq!(Terms::of("a_b A_B", &|| ()).exact, BTreeMap::from([("=a_b".to_owned(), 2)]));
    }

    #[test]
    fn the_configuration_is_given_their_parts() {
        for (text, expected) in [
            ("ERR-1042 is two-dimensional.", "ERR 1042 is two-dimensional."),
            ("see pg_stat_io, ärger_über", "see pg stat io, ärger über"),
            ("jane@example.com", "jane example com"),
            ("nothing to do", "nothing to do"),
        ] {
            let terms = Terms::of(text, &|| ());
            assert_eq!((terms.text.as_ref(), terms.text.len()), (expected, text.len()));
        }
        assert!(matches!(Terms::of("nothing", &|| ()).text, Cow::Borrowed(_)));
    }

    #[test]
    fn words_are_kept_as_they_are_written() {
        let terms = Terms::of("Isolation levels, of pg_class and 40P01: naïve ÄRGER", &|| ());
        let words: Vec<&str> = terms.words.iter().map(|w| &w[1..]).collect();
        assert_eq!(words, ["class", "isolation", "levels", "naïve", "ärger"]);
    }

    #[test]
    fn a_text_without_a_blank_costs_no_more_than_another() {
        for text in ["x".repeat(1 << 20), "a_b.".repeat(1 << 18), "ж".repeat(1 << 18), "_".repeat(1 << 18)] {
            let calls = Cell::new(0);
            let terms = Terms::of(&text, &|| calls.set(calls.get() + 1));
            assert!(terms.exact.is_empty() && terms.words.is_empty() && calls.get() >= text.len() / STRETCH / 2);
        }
        let many: String = (0..40_000).map(|i| format!("a_{i} ")).collect();
        assert_eq!(Terms::of(&many, &|| ()).exact.len(), MOST_TERMS);
    }
}
