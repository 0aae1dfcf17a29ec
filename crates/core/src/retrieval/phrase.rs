//! Quoted phrases: words that must stand in a text in this order.
//!
//! Postings do not say where a word stands: an index that does is some three times as large, and adjacent pairs of words as
//! terms of their own would double it. So the words of a phrase are *required* terms, which few documents have together, and
//! those few are looked at with [`Phrase::is_in`], since their text is read anyway.

/// Most phrases of a query that count.
const MOST: usize = 8;

/// The phrases that a query has in quotation marks, `"like this"` or `“like this”`, without the marks; those without any
/// word left out, at most 8. An opening mark without a closing one quotes nothing.
///
/// ```
/// use ragent_core::retrieval::phrase::phrases;
/// assert_eq!(phrases(r#"why "no space left" and 5" pipes"#), ["no space left"]);
/// ```
pub fn phrases(query: &str) -> Vec<&str> {
    let mut phrases = Vec::new();
    let mut rest = query;
    while phrases.len() < MOST {
        let Some((start, open)) = rest.char_indices().find(|(_, c)| matches!(c, '"' | '“' | '„' | '«')) else {
            break;
        };
        // A mark behind a letter or digit opens nothing: 5", o"clock.
        let opens = !rest[..start].chars().next_back().is_some_and(char::is_alphanumeric);
        let inner = &rest[start + open.len_utf8()..];
        let closers: &[char] = match open {
            '“' => &['”'],
            '„' => &['“', '”'],
            '«' => &['»'],
            _ => &['"'],
        };
        match inner.char_indices().find(|(_, c)| closers.contains(c)) {
            Some((end, close)) if opens => {
                let phrase = inner[..end].trim();
                if phrase.chars().any(char::is_alphanumeric) {
                    phrases.push(phrase);
                }
                rest = &inner[end + close.len_utf8()..];
            }
            _ => rest = inner,
        }
    }
    phrases
}

/// A phrase to be looked for in texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phrase {
    /// Its words, in lower case.
    words: Vec<String>,
}

impl Phrase {
    /// Of a text between quotation marks.
    pub fn new(phrase: &str) -> Self {
        Self { words: Words(phrase).map(str::to_lowercase).collect() }
    }

    /// Whether a text has the words in this order, with nothing but white space and punctuation between them, whatever their
    /// case. A phrase without words is in every text.
    ///
    /// ```
    /// use ragent_core::retrieval::phrase::Phrase;
    /// let phrase = Phrase::new("left on device");
    /// assert!(phrase.is_in("No space\nleft on  Device.") && !phrase.is_in("left one device"));
    /// ```
    pub fn is_in(&self, text: &str) -> bool {
        let Some((first, rest)) = self.words.split_first() else { return true };
        let mut words = Words(text);
        while let Some(word) = words.next() {
            if is_same(word, first) {
                let mut following = words.clone();
                if rest.iter().all(|word| following.next().is_some_and(|next| is_same(next, word))) {
                    return true;
                }
            }
        }
        false
    }
}

/// Whether a word is one in lower case. Without memory of its own for words of any length.
fn is_same(word: &str, lower: &str) -> bool {
    word == lower || word.chars().flat_map(char::to_lowercase).eq(lower.chars())
}

/// Runs of letters and digits.
#[derive(Debug, Clone)]
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start_matches(|c: char| !c.is_alphanumeric());
        let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_what_stands_between_marks() {
        let cases: [(&str, &[&str]); 9] = [
            ("", &[]),
            ("no marks", &[]),
            ("\"a b\" c \"d\"", &["a b", "d"]),
            ("“curly” „german“ «french»", &["curly", "german", "french"]),
            ("\"never closed", &[]),
            ("\" \" \"...\" \"x\"", &["x"]),
            ("a 5\" pipe and a 6\" pipe", &[]),
            ("(\"in brackets\")", &["in brackets"]),
            ("it's 'single'", &[]),
        ];
        for (query, expected) in cases {
            assert_eq!(phrases(query), expected, "{query}");
        }
        assert_eq!(phrases(&"\"x\" ".repeat(1000)).len(), MOST);
    }

    #[test]
    fn a_phrase_is_found_whatever_stands_between_its_words_but_words() {
        for (phrase, text, expected) in [
            ("shared buffers", "set shared_buffers = 1GB", true),
            ("shared buffers", "SHARED  Buffers", true),
            ("shared buffers", "shared memory buffers", false),
            ("a a b", "a a a b", true),
            ("ERR-1042", "see err 1042.", true),
            ("naïve Ärger", "NAÏVE ÄRGER", true),
            ("left", "leftover", false),
            ("...", "anything", true),
            ("x", "", false),
        ] {
            assert_eq!(Phrase::new(phrase).is_in(text), expected, "{phrase} in {text}");
        }
    }
}
