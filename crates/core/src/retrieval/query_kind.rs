//! What kind of query somebody wrote, and which arm it leans on: what mode `adaptive` decides by.

use super::phrase::phrases;
use super::terms::{shape, stripped};
use crate::text::{is_stop_word, words};

/// What a query looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKind {
    /// A name, code, version or address that stands in texts as it is: `ERR-1042`, `pg_stat_io`, "what does 40P01 mean".
    Identifier,
    /// Words in quotation marks, which must stand in the text like that.
    Phrase,
    /// A few words without a sentence: `autovacuum wraparound`.
    Keywords,
    /// A sentence: "how do I undo a deleted row?"
    Question,
}

/// Words a question begins with, in lower case.
const OPENERS: &[&str] = &[
    "are", "can", "could", "describe", "did", "do", "does", "explain", "had", "has", "have", "how", "is", "may",
    "must", "should", "was", "were", "what", "whats", "when", "where", "which", "who", "whom", "whose", "why", "will",
    "would",
];

/// Most words of which keywords consist.
const MOST_KEYWORDS: usize = 4;
/// A query longer than so many words is about more than the identifier in it.
const MOST_BESIDE_IDENTIFIER: usize = 8;
/// No more of a query is looked at, in bytes: a page of text is a question.
const LOOKED_AT: usize = 2000;

impl QueryKind {
    /// The kind of a query. The rules, the first that holds:
    ///
    /// 1. it has a quoted phrase of two words or more, or one with an identifier in it: [`QueryKind::Phrase`];
    /// 2. it has an identifier, and no more than 8 words: [`QueryKind::Identifier`];
    /// 3. it ends with a question mark, begins as questions do, or has more than 4 words: [`QueryKind::Question`];
    /// 4. of several words half or more say nothing by themselves ("of the"): [`QueryKind::Question`];
    /// 5. else [`QueryKind::Keywords`].
    pub fn of(query: &str) -> Self {
        let mut end = query.len().min(LOOKED_AT);
        while !query.is_char_boundary(end) {
            end -= 1;
        }
        let head = query[..end].trim();
        let words = words(head);
        let is_phrase = |phrase: &str| phrase.split_whitespace().nth(1).is_some() || shape(phrase.trim()).is_some();
        if phrases(head).iter().any(|phrase| is_phrase(phrase)) {
            return Self::Phrase;
        }
        let is_identifier = |word: &str| shape(stripped(word)).is_some();
        if words.len() <= MOST_BESIDE_IDENTIFIER && head.split_whitespace().any(is_identifier) {
            return Self::Identifier;
        }
        let opens = words.first().is_some_and(|(_, w)| OPENERS.binary_search(&w.as_str()).is_ok()) && words.len() > 1;
        if head.ends_with(['?', '？']) || opens || words.len() > MOST_KEYWORDS || query.len() > LOOKED_AT {
            return Self::Question;
        }
        let empty = words.iter().filter(|(_, w)| is_stop_word(w)).count();
        if words.len() > 1 && empty * 2 >= words.len() { Self::Question } else { Self::Keywords }
    }

    /// How much the vector arm's score counts in mode `adaptive`, 0 to 1; the text arm's has the rest.
    ///
    /// That of questions and keywords is the default of mode `hybrid`, which was measured with questions ([`super::fuse`]). The
    /// others lean to the text arm by judgement: an identifier means to a sentence encoder little more than its letters, and a
    /// phrase must be there word for word.
    pub fn vector_weight(self) -> f64 {
        match self {
            Self::Identifier => 0.2,
            Self::Phrase => 0.3,
            Self::Keywords | Self::Question => super::fuse::VECTOR_WEIGHT,
        }
    }

    /// Its name, as `rag.explain_search` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identifier => "identifier",
            Self::Phrase => "phrase",
            Self::Keywords => "keywords",
            Self::Question => "question",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openers_are_sorted_for_the_search_in_them() {
        assert!(OPENERS.is_sorted());
    }

    #[test]
    fn queries_are_of_the_kind_that_people_would_say() {
        use QueryKind::{Identifier, Keywords, Phrase, Question};
        for (query, expected) in [
            ("ERR-1042", Identifier),
            ("pg_stat_io", Identifier),
            ("v4.2.1 release notes", Identifier),
            ("what does 40P01 mean?", Identifier),
            ("jane.doe@example.com", Identifier),
            ("postgresql.conf", Identifier),
            ("\"ERR-1042\"", Phrase),
            ("\"could not connect to server\"", Phrase),
            ("why do I see “no space left on device”?", Phrase),
            ("autovacuum wraparound", Keywords),
            ("defualt isolaton levle", Keywords),
            ("sso", Keywords),
            ("\"sso\"", Keywords),
            ("it's a dog's life", Question),
            ("how do I undo a deleted row", Question),
            ("Can agents be persuaded?", Question),
            ("isolation levels?", Question),
            (
                "what similarity laws must be obeyed when constructing aeroelastic models of heated high speed aircraft .",
                Question,
            ),
            ("structural and aeroelastic problems associated with flight", Question),
            ("what", Keywords),
            ("of the", Question),
            ("what does the function pg_stat_get_io say about the time that backends waited for writes", Question),
            ("e.g. this", Keywords),
            ("データベース", Keywords),
            ("", Keywords),
            ("10 20", Keywords),
        ] {
            assert_eq!(QueryKind::of(query), expected, "{query}");
        }
        assert_eq!(QueryKind::of(&"word ".repeat(100_000)), Question);
        assert_eq!(QueryKind::of(&"ж".repeat(100_000)), Question);
    }

    #[test]
    fn what_stands_in_texts_as_it_is_leans_on_the_text_arm() {
        let weight = |query| QueryKind::of(query).vector_weight();
        assert!(weight("40P01") < weight("autovacuum wraparound"));
        assert!(weight("autovacuum wraparound") <= weight("how do I undo this?"));
    }
}
