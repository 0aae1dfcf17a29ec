//! Counting the tokens of a text where the model's tokeniser is not at hand.

/// About how many tokens a text has, for models whose tokeniser is not at hand; rather too many than too few.
/// Words of ASCII letters count one token for each four letters begun, digits one for each three, letters of other alphabets one
/// for two, ideographs, other characters and punctuation one each.
///
/// ```
/// use ragent_core::ingest::chunk::approximate_tokens;
/// assert_eq!(approximate_tokens("A short sentence."), 6);
/// ```
pub fn approximate_tokens(text: &str) -> usize {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Letter,
        Digit,
        Alphabet,
    }
    let mut tokens = 0;
    let mut run: Option<(Kind, usize)> = None;
    for c in text.chars() {
        let kind = match c {
            'a'..='z' | 'A'..='Z' => Some(Kind::Letter),
            '0'..='9' => Some(Kind::Digit),
            // Alphabets (Latin supplements, Greek, Cyrillic, Hebrew, Arabic, Indic) lie below the ideographs.
            c if c.is_alphanumeric() && (c as u32) < 0x1100 => Some(Kind::Alphabet),
            _ => None,
        };
        let Some(kind) = kind else {
            tokens += usize::from(!c.is_whitespace());
            run = None;
            continue;
        };
        let length = match run {
            Some((previous, length)) if previous == kind => length + 1,
            _ => 1,
        };
        run = Some((kind, length));
        let per_token = match kind {
            Kind::Letter => 4,
            Kind::Digit => 3,
            Kind::Alphabet => 2,
        };
        tokens += usize::from(length % per_token == 1);
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approximation_counts_each_script_by_its_kind() {
        assert_eq!(approximate_tokens(""), 0);
        assert_eq!(approximate_tokens(" \n"), 0);
        assert_eq!(approximate_tokens("word words"), 3);
        assert_eq!(approximate_tokens("1234567"), 3);
        assert_eq!(approximate_tokens("日本語"), 3);
        assert_eq!(approximate_tokens("привет"), 3);
        assert_eq!(approximate_tokens("a+b"), 3);
    }
}
