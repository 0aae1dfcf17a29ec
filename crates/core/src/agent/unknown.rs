//! Recognising an answer that says that it does not know.

use crate::prompt::instructions::DONT_KNOW;

/// How answers that know nothing begin: lower case, straight apostrophes, without apologies before them.
const BEGINNINGS: &[&str] = &[
    "i don't know",
    "i do not know",
    "i can't answer",
    "i cannot answer",
    "i can't find",
    "i cannot find",
    "i can't determine",
    "i cannot determine",
    "i could not find",
    "i couldn't find",
    "i did not find",
    "i didn't find",
    "i found no ",
    "i have no information",
    "i don't have ",
    "i do not have ",
    "i was unable to",
    "i wasn't able to",
    "i was not able to",
    "i am unable to",
    "i'm unable to",
    "i am not able to",
    "i'm not able to",
    "i am not sure",
    "i'm not sure",
    "it is not clear from",
    "it is unknown",
    "it is not possible to",
    "not enough information",
    "insufficient information",
    "unknown",
    "no information",
    "no relevant",
    "no answer",
    "there is no information",
    "there is no mention",
    "there is not enough",
    "there isn't enough",
    "there is no relevant",
    "nothing was found",
    "nothing in the",
    "none of the passages",
    "none of the retrieved",
    "none of the provided",
];

/// Subjects that, followed by a denial, say the same: "The passages do not mention…".
const SUBJECTS: &[&str] = &[
    "passage",
    "data",
    "context",
    "document",
    "search result",
    "result",
    "information",
    "collection",
    "text",
    "source",
    "evidence",
];
const DENIALS: &[&str] = &[
    "do not",
    "does not",
    "don't",
    "doesn't",
    "did not",
    "didn't",
    "contain no",
    "contains no",
    "is not sufficient",
    "are not sufficient",
    "is insufficient",
    "are insufficient",
    "is not enough",
    "are not enough",
    "cannot",
    "can't",
];
/// Words before the point.
const LEADS: &[&str] = &[
    "unfortunately",
    "sorry",
    "i'm sorry",
    "i am sorry",
    "i apologize",
    "i apologise",
    "regrettably",
    "but",
    "however",
    "from",
    "based on the available data",
    "based on the data",
    "based on the provided passages",
    "based on the passages",
    "based on the available passages",
    "based on the provided information",
    "based on the available information",
    "based on the provided context",
    "based on the search results",
    "according to the passages",
];

/// Whether a short answer begins by saying that it does not know. `cites` tells whether it has valid markers: a longer answer with
/// citations that begins so is taken for a partial answer, and so is any long one.
pub(super) fn says_unknown(text: &str, cites: bool) -> bool {
    let length = text.chars().count();
    if length > 600 || (cites && length > 200) {
        return false;
    }
    let plain = text.replace(['’', '‘', 'ʼ'], "'").to_lowercase();
    let mut rest = plain.trim_start_matches(|c: char| !c.is_alphanumeric());
    if rest.starts_with(&DONT_KNOW.to_lowercase()) {
        return true;
    }
    while let Some(lead) = LEADS
        .iter()
        .find(|lead| rest.strip_prefix(**lead).is_some_and(|after| after.starts_with(|c: char| !c.is_alphanumeric())))
    {
        rest = rest[lead.len()..].trim_start_matches(|c: char| !c.is_alphanumeric());
    }
    if BEGINNINGS.iter().any(|beginning| rest.starts_with(beginning) && ends_at_word(rest, beginning)) {
        return true;
    }
    denies(rest)
}

/// "unknown" is a beginning, "unknown-type literals are…" is not.
fn ends_at_word(text: &str, beginning: &str) -> bool {
    if beginning != "unknown" && beginning != "no answer" && beginning != "no relevant" {
        return true;
    }
    let after = text[beginning.len()..].trim_start_matches(' ');
    beginning == "no relevant" || after.is_empty() || after.starts_with(['.', ',', '!', ':'])
}

/// "The (provided, retrieved, available…) passages do not…" within the first words, about answering and not about something else.
fn denies(text: &str) -> bool {
    let sentence = text.split(['.', '!', '?', '\n']).next().unwrap_or_default();
    let Some(rest) = sentence.strip_prefix("the ").or_else(|| sentence.strip_prefix("these ")) else {
        return false;
    };
    let head: String = rest.split_whitespace().take(7).collect::<Vec<_>>().join(" ");
    const TALK: &[&str] = &[
        "mention",
        "contain",
        "answer",
        "say",
        "include",
        "provide",
        "specify",
        "state",
        "tell",
        "give",
        "describe",
        "cover",
        "address",
        "explain",
        "sufficient",
        "enough",
        "information",
    ];
    const MEANT: &[&str] =
        &["provided", "available", "retrieved", "given", "passages", "search results", "context", "collections"];
    SUBJECTS.iter().any(|subject| head.contains(subject))
        && MEANT.iter().any(|word| head.contains(word))
        && DENIALS.iter().any(|denial| head.contains(denial))
        && TALK.iter().any(|word| rest.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_denials_are_unknown() {
        for text in [
            DONT_KNOW,
            "I don’t know.",
            "**I do not know.**",
            "Unfortunately, I could not find anything about that.",
            "I'm sorry, but I cannot answer this from the data.",
            "Based on the provided passages, I don't know.",
            "The provided passages do not mention the capital of France.",
            "The available data doesn't contain this.",
            "The passages contain no information about it.",
            "The retrieved documents do not answer the question.",
            "There is no information about that in the manual.",
            "Unknown.",
            "I was unable to find it.",
        ] {
            assert!(says_unknown(text, false), "{text}");
        }
    }

    #[test]
    fn answers_are_not() {
        for text in [
            "VACUUM reclaims storage.",
            "Unknown-type literals are taken as text.",
            "The data directory does not contain the logs.",
            "The index does not lock writes.",
            "No. Plain VACUUM does not lock the table.",
            "The text type does not have a length limit.",
            "The source table cannot be altered meanwhile.",
            "If you don't know the value, use DEFAULT.",
            "Informationally, I don't know is what the server sends.",
        ] {
            assert!(!says_unknown(text, false), "{text}");
        }
    }

    #[test]
    fn a_partial_answer_with_citations_and_a_long_answer_are_answers() {
        let partial =
            format!("I don't know which came first. {} [1]", "The manual says a lot about the other part. ".repeat(5));
        assert!(says_unknown(&partial, false) && !says_unknown(&partial, true));
        assert!(!says_unknown(&format!("I don't know. {}", "But here is more. ".repeat(60)), false));
    }
}
