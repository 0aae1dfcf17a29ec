//! A question: what it asks for, its parts, the words that matter.

use crate::text::{is_stop_word, shorten, stem, words};

/// What kind of sentence answers a part of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// "What is X", "what does X do": a sentence with X as its subject.
    Definition,
    /// "Why": a reason.
    Reason,
    /// "How do I": a means.
    Means,
    /// "Difference between A and B": a contrast.
    Contrast,
    /// "When", "how many": a number or date may stand in it.
    Number,
    /// Anything else.
    Fact,
}

/// A word of the question that matters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Term {
    /// As it stands in the question.
    pub word: String,
    /// To compare by.
    pub stem: String,
    /// How much it says, 0 to 1.5: a name more, a word such as "work" less.
    pub weight: f64,
}

/// One part of a question.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// As it stands in the question.
    pub asked: String,
    /// Its own words, and what it takes from the part before where it only points back ("it").
    pub text: String,
    pub kind: Kind,
    /// In order, each stem once.
    pub terms: Vec<Term>,
    /// Terms of `terms` that were taken from the part before.
    pub borrowed: Vec<String>,
}

/// A question, taken apart.
#[derive(Debug)]
pub(super) struct Question {
    pub text: String,
    /// At least one, at most four.
    pub parts: Vec<Part>,
    /// All terms, each stem once.
    pub terms: Vec<Term>,
    /// Sides of a comparison, as written.
    pub sides: Vec<String>,
    /// Names of several words, as written.
    pub names: Vec<String>,
    small_talk: Option<&'static str>,
}

const MAX_PARTS: usize = 4;
/// The part of a question that is read, in characters.
const MAX_CHARS: usize = 1_000;

/// Content words that say little about what is asked for; a passage may well not have them.
const LIGHT: &[&str] = &[
    "actually",
    "amount",
    "best",
    "better",
    "call",
    "called",
    "change",
    "choose",
    "common",
    "correct",
    "compare",
    "compared",
    "describe",
    "differ",
    "difference",
    "differences",
    "different",
    "easily",
    "efficient",
    "efficiently",
    "example",
    "exactly",
    "exist",
    "explain",
    "fast",
    "find",
    "generally",
    "good",
    "happen",
    "happens",
    "help",
    "helpful",
    "important",
    "keep",
    "kind",
    "know",
    "known",
    "large",
    "let",
    "like",
    "list",
    "look",
    "lot",
    "main",
    "mean",
    "means",
    "meaning",
    "name",
    "named",
    "new",
    "people",
    "possible",
    "properly",
    "purpose",
    "put",
    "quick",
    "quickly",
    "rather",
    "really",
    "right",
    "safely",
    "say",
    "see",
    "set",
    "show",
    "simple",
    "sort",
    "start",
    "take",
    "takes",
    "tell",
    "time",
    "type",
    "understand",
    "useful",
    "usually",
    "various",
    "versus",
    "vs",
    "work",
    "works",
];

impl Question {
    pub(super) fn read(text: &str) -> Question {
        // Each sentence found is compared with every word of the question, so a pasted page is cut.
        let text = shorten(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_CHARS);
        let mut parts: Vec<Part> = Vec::new();
        for piece in split_parts(&text) {
            let part = read_part(&piece, parts.first());
            if !part.terms.is_empty() && parts.len() < MAX_PARTS {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            parts.push(read_part(&text, None));
        }
        let mut terms: Vec<Term> = Vec::new();
        for term in parts.iter().flat_map(|part| &part.terms) {
            if !terms.iter().any(|known| known.stem == term.stem) {
                terms.push(term.clone());
            }
        }
        let sides = sides(&text);
        let names = names(&text);
        let small_talk = small_talk(&text);
        Question { text, parts, terms, sides, names, small_talk }
    }

    /// The reply to a greeting, thanks or a question about the model itself; `None` for anything else.
    pub(super) fn small_talk(&self) -> Option<&'static str> {
        self.small_talk
    }
}

/// The parts of a question as written: sentences, and clauses that begin a question of their own.
fn split_parts(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    for sentence in text.split_inclusive(['?', ';']) {
        let mut rest = sentence.trim().trim_end_matches(['?', ';', '.', ' ']);
        while let Some((head, tail)) = split_clause(rest) {
            pieces.push(head.to_owned());
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(rest.to_owned());
        }
    }
    pieces
}

const OPENERS: &[&str] = &[
    "what", "what's", "how", "why", "which", "when", "where", "who", "whose", "whom", "does", "do", "did", "can",
    "could", "should", "is", "are", "was", "were", "will",
];

/// Splits before "and what…", "and also…", ", how…".
fn split_clause(text: &str) -> Option<(&str, &str)> {
    let lower = text.to_ascii_lowercase();
    let mut at = 0;
    while let Some(offset) = lower[at..].find(" and ") {
        let start = at + offset;
        let mut after = start + " and ".len();
        let also = lower[after..].starts_with("also ");
        if also {
            after += "also ".len();
        }
        let next = lower[after..].split(' ').next().unwrap_or_default();
        let head = text[..start].trim_end_matches([',', ' ']);
        // "What is and is not" is one question.
        if (also || OPENERS.contains(&next)) && head.contains(' ') && text[after..].contains(' ') {
            return Some((head, &text[after..]));
        }
        at = after;
    }
    None
}

fn read_part(text: &str, first: Option<&Part>) -> Part {
    let mut terms = read_terms(text);
    // In "how does X work" the last word only completes the phrase.
    if text.to_ascii_lowercase().starts_with("how ") && terms.len() > 1 {
        terms.pop_if(|last| {
            last.stem == "work" && text.trim_end().to_ascii_lowercase().ends_with(&last.word.to_ascii_lowercase())
        });
    }
    let mut borrowed = Vec::new();
    let mut query = text.to_owned();
    if let Some(first) = first
        && points_back(text, &terms)
    {
        // What the first part is about: all of its own words that say something.
        for term in first.terms.iter().filter(|t| t.weight >= 1.0) {
            if !terms.iter().any(|known| known.stem == term.stem) {
                borrowed.push(term.stem.clone());
                query.push(' ');
                query.push_str(&term.word);
                terms.push(term.clone());
            }
        }
    }
    Part { asked: text.to_owned(), kind: kind(text), text: query, terms, borrowed }
}

/// Whether a part cannot stand alone: it has a pronoun or next to no words of its own.
fn points_back(text: &str, terms: &[Term]) -> bool {
    const POINTERS: &[&str] = &[
        "it", "its", "they", "them", "their", "this", "that", "these", "those", "one", "ones", "he", "she", "his",
        "her",
    ];
    terms.len() < 2 || words(text).iter().any(|(_, word)| POINTERS.contains(&word.as_str()))
}

fn read_terms(text: &str) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for (n, (range, lower)) in words(text).into_iter().enumerate() {
        let written = &text[range];
        let name = n > 0 && written.starts_with(char::is_uppercase);
        // A stop word in capitals is a name ("the IN operator", "US").
        let capitals = written.len() > 1
            && written.chars().all(|c| c.is_uppercase() || c == '_')
            && text.chars().any(char::is_lowercase);
        if (is_stop_word(&lower) && !capitals) || (lower.chars().count() < 2 && !lower.chars().any(char::is_numeric)) {
            continue;
        }
        let stem = stem(&lower);
        if terms.iter().any(|known| known.stem == stem) {
            continue;
        }
        let weight = match () {
            () if capitals || name || lower.contains('_') => 1.25,
            () if LIGHT.contains(&lower.as_str()) => 0.4,
            () => 1.0,
        };
        terms.push(Term { word: written.to_owned(), stem, weight });
    }
    terms
}

fn kind(text: &str) -> Kind {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|w| !w.is_empty()).collect();
    let has = |w: &str| words.contains(&w);
    let starts = |heads: &[&str]| heads.iter().any(|h| lower.trim_start_matches("and ").starts_with(h));
    if has("difference")
        || has("differences")
        || has("differ")
        || has("vs")
        || has("versus")
        || has("compare")
        || has("compared")
        || lower.contains("rather than")
    {
        Kind::Contrast
    } else if has("why") || lower.contains("what for") || lower.contains("reason") || lower.contains("purpose") {
        Kind::Reason
    } else if starts(&["what is ", "what's ", "what are ", "define ", "explain ", "describe ", "who is ", "who was "])
        || (starts(&["what does ", "what do ", "what did "])
            && (has("do") && words.last() != Some(&"with") || has("mean")))
        || (starts(&["how does ", "how do "]) && words.last() == Some(&"work"))
    {
        Kind::Definition
    } else if starts(&[
        "how many",
        "how much",
        "how long",
        "how old",
        "how large",
        "how big",
        "when ",
        "what year",
        "in which year",
        "in what year",
    ]) {
        Kind::Number
    } else if starts(&["how "]) || lower.contains(" how to ") || starts(&["what is the best way", "which command"]) {
        Kind::Means
    } else {
        Kind::Fact
    }
}

/// The two sides of "difference between A and B", "A vs B", "compare A with B", "are A and B both", "A or B".
fn sides(text: &str) -> Vec<String> {
    let lower = text.to_ascii_lowercase();
    let clean = |s: &str| s.trim_matches(|c: char| !c.is_alphanumeric() && c != ')' && c != '"').to_owned();
    let after = |lead: &str| lower.find(lead).map(|at| at + lead.len());
    let pairs: [(Option<usize>, &[&str]); 5] = [
        (after("between "), &[" and "]),
        (after("compare "), &[" and ", " with ", " to "]),
        (after("are ").filter(|_| lower.starts_with("are ")), &[" and "]),
        (after("were ").filter(|_| lower.starts_with("were ")), &[" and "]),
        (Some(0), &[" vs. ", " vs ", " versus "]),
    ];
    for (start, joins) in pairs {
        let Some(start) = start else { continue };
        for join in joins {
            let Some(at) = lower[start..].find(join).map(|at| start + at) else {
                continue;
            };
            let left = clean(last_words(&text[start..at], 6));
            let right = &text[at + join.len()..];
            let end = ["?", ",", " both", " in ", " as ", " for ", " of the same", " the same", ";"]
                .iter()
                .filter_map(|stop| right.find(stop))
                .min()
                .unwrap_or(right.len());
            let right = clean(first_words(&right[..end], 6));
            if !left.is_empty() && !right.is_empty() {
                return vec![left, right];
            }
        }
    }
    Vec::new()
}

fn last_words(text: &str, n: usize) -> &str {
    let start = text.rmatch_indices(' ').nth(n - 1).map_or(0, |(i, _)| i + 1);
    &text[start..]
}

fn first_words(text: &str, n: usize) -> &str {
    let end = text.match_indices(' ').nth(n - 1).map_or(text.len(), |(i, _)| i);
    &text[..end]
}

/// Names of two words or more: runs of words with capitals, not counting the question's first word.
fn names(text: &str) -> Vec<String> {
    let found = words(text);
    let mut names = Vec::new();
    let mut run: Option<(usize, usize, usize)> = None;
    for (n, (range, lower)) in found.iter().enumerate() {
        let capital = text[range.clone()].starts_with(char::is_uppercase) && !(n == 0 && is_stop_word(lower));
        let number = lower.chars().all(char::is_numeric);
        let close = |run: Option<(usize, usize, usize)>, names: &mut Vec<String>| {
            if let Some((start, end, count)) = run
                && count > 1
            {
                names.push(text[start..end].to_owned());
            }
        };
        let adjacent = run.is_some_and(|(_, end, _)| {
            text[end..range.start].chars().all(|c| c == ' ' || c == '-' || c == '\'' || c == '.')
        });
        run = match run {
            Some((start, _, count)) if adjacent && (capital || number) => Some((start, range.end, count + 1)),
            open => {
                close(open, &mut names);
                capital.then_some((range.start, range.end, 1))
            }
        };
        if n + 1 == found.len() {
            close(run, &mut names);
        }
    }
    names
}

const HELLO: &str = "Hello! I am local/extractive, a small program inside this database and no language model. Ask me about the data \
                     in its collections: I look it up and answer with the sentences I find, and where they come from.";
const THANKS: &str = "You are welcome. Ask me anything else about the data in this database.";
const SELF: &str = "I am local/extractive, a small program inside this database. I am no language model: I search its collections for the \
                    words of a question, pick the sentences that cover them best and say where they come from. If nothing \
                    fits, I say that I don't know. For answers in free words, set rag.chat_model to a language model.";

/// Recognises what needs no search: every word of it must belong to a greeting, to thanks or to a question about the model.
fn small_talk(text: &str) -> Option<&'static str> {
    const GREETINGS: &[&str] = &["hello", "hi", "hey", "hallo", "howdy", "greetings", "moin", "welcome"];
    const GREETING_FILL: &[&str] = &[
        "there",
        "good",
        "morning",
        "afternoon",
        "evening",
        "day",
        "all",
        "everyone",
        "how",
        "are",
        "you",
        "doing",
        "today",
        "is",
        "it",
        "going",
        "nice",
        "to",
        "meet",
        "what",
        "s",
        "up",
    ];
    const THANKING: &[&str] = &["thanks", "thank", "thx", "cheers"];
    const THANKS_FILL: &[&str] = &[
        "you", "a", "lot", "very", "much", "so", "many", "for", "your", "the", "help", "that", "was", "helpful",
        "great", "good", "ok", "okay", "bye", "goodbye", "all", "again", "nice", "perfect",
    ];
    const ABOUT_SELF: &[&str] = &[
        "who are you",
        "what are you",
        "what can you do",
        "what do you do",
        "how do you work",
        "help",
        "are you a language model",
        "are you a bot",
        "are you a robot",
        "are you human",
        "are you an ai",
        "what is your name",
        "what's your name",
        "introduce yourself",
        "what model are you",
        "which model are you",
        "how are you",
        "how are you doing",
        "how are you today",
        "bye",
        "goodbye",
        "good bye",
        "what can i ask you",
        "what can i ask",
    ];
    let words: Vec<String> = words(text).into_iter().map(|(_, w)| w).collect();
    let any = |list: &[&str]| words.iter().any(|w| list.contains(&w.as_str()));
    let all = |a: &[&str], b: &[&str]| words.iter().all(|w| a.contains(&w.as_str()) || b.contains(&w.as_str()));
    let mut plain = text.to_ascii_lowercase();
    plain.retain(|c| c.is_alphanumeric() || c == ' ' || c == '\'');
    let mut plain = plain.trim();
    for greeting in GREETINGS {
        plain = plain.strip_prefix(greeting).filter(|rest| rest.starts_with(' ')).unwrap_or(plain).trim_start();
    }
    if ABOUT_SELF.contains(&plain.trim_start_matches("please ")) {
        Some(if plain.starts_with("how are you") { HELLO } else { SELF })
    } else if words.is_empty()
        || (any(GREETINGS) && all(GREETINGS, GREETING_FILL))
        || matches!(plain, "good morning" | "good afternoon" | "good evening" | "good day")
    {
        Some(HELLO)
    } else if any(THANKING) && all(THANKING, THANKS_FILL) {
        Some(THANKS)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<(String, Kind)> {
        Question::read(text).parts.into_iter().map(|p| (p.text, p.kind)).collect()
    }

    #[test]
    fn small_talk_is_recognised_and_questions_are_not() {
        for talk in [
            "Hello!",
            "hi there",
            "Good morning",
            "Thank you very much!",
            "thanks",
            "Who are you?",
            "hello, what can you do?",
            "",
            "?!",
            "how are you?",
        ] {
            assert!(Question::read(talk).small_talk().is_some(), "{talk}");
        }
        for question in [
            "What is VACUUM?",
            "hello world program in C",
            "How do you work around bloat?",
            "Help with COPY",
            "Thank you page design",
            "hi latency queries",
            "who are the maintainers",
        ] {
            assert!(Question::read(question).small_talk().is_none(), "{question}");
        }
    }

    #[test]
    fn a_question_is_split_into_its_parts_and_they_borrow_what_they_point_at() {
        assert_eq!(
            parts("What does VACUUM do and why is it needed?"),
            [("What does VACUUM do".into(), Kind::Definition), ("why is it needed VACUUM".into(), Kind::Reason),]
        );
        assert_eq!(
            parts("What is a transaction isolation level and which one is the default?"),
            [
                ("What is a transaction isolation level".into(), Kind::Definition),
                ("which one is the default transaction isolation level".into(), Kind::Fact),
            ]
        );
        assert_eq!(parts("How do I drop a table; how do I drop a view?").len(), 2);
        assert_eq!(parts("What are tables and views?").len(), 1);
        assert!(parts(&"What is a tree and what is a leaf? ".repeat(9)).len() <= MAX_PARTS);
    }

    #[test]
    fn kinds_follow_the_question_words() {
        for (text, expected) in [
            ("What is the difference between json and jsonb?", Kind::Contrast),
            ("json vs jsonb", Kind::Contrast),
            ("Why is my query slow?", Kind::Reason),
            ("What is an index?", Kind::Definition),
            ("How do I create an index?", Kind::Means),
            ("How many connections are allowed?", Kind::Number),
            ("Which lock does it take?", Kind::Fact),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn sides_and_names_are_found() {
        let sides = |text: &str| Question::read(text).sides;
        assert_eq!(sides("What is the difference between json and jsonb?"), ["json", "jsonb"]);
        assert_eq!(
            sides("Are Christopher Nolan and Sathish Kalathil both film directors?"),
            ["Christopher Nolan", "Sathish Kalathil"]
        );
        assert_eq!(sides("json vs. jsonb"), ["json", "jsonb"]);
        assert!(sides("How do I create an index?").is_empty());
        assert_eq!(
            Question::read("Which band was formed first The Exies or Circus Diablo ?").names,
            ["The Exies", "Circus Diablo"]
        );
        assert_eq!(Question::read("Who won the World Cup 1998?").names, ["World Cup 1998"]);
    }
}
