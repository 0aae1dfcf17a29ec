//! Keeps secrets out of messages.

/// What stands in place of a secret.
const MASK: &str = "[redacted]";

/// Replaces every occurrence of `secret` in `text`: as it is, as it looks inside JSON, and
/// the beginnings of eight characters or more that providers echo ("sk-abcd1234...").
/// An empty secret changes nothing.
///
/// ```
/// use ragent_core::provider::redact;
/// assert_eq!(redact("bad key sk-test-1234!", "sk-test-1234"), "bad key [redacted]!");
/// ```
pub fn redact(text: &str, secret: &str) -> String {
    let secret = secret.trim();
    if secret.is_empty() {
        return text.to_owned();
    }
    let mut out = text.replace(secret, MASK);
    let quoted = serde_json::Value::from(secret).to_string();
    let inside = &quoted[1..quoted.len() - 1];
    if inside != secret {
        out = out.replace(inside, MASK);
    }
    redact_prefixes(&out, secret)
}

/// Masks beginnings of the secret, the longest first at each place.
fn redact_prefixes(text: &str, secret: &str) -> String {
    const SHORTEST: usize = 8;
    let Some((head_end, last)) = secret.char_indices().nth(SHORTEST - 1) else {
        return text.to_owned();
    };
    let head = &secret[..head_end + last.len_utf8()];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(head) {
        out.push_str(&rest[..at]);
        out.push_str(MASK);
        let common = rest[at..]
            .chars()
            .zip(secret.chars())
            .take_while(|(a, b)| a == b)
            .map(|(a, _)| a.len_utf8())
            .sum::<usize>();
        rest = &rest[at + common..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        assert_eq!(redact("k=abc, k=abc", "abc"), "k=[redacted], k=[redacted]");
        assert_eq!(redact("nothing here", "abc"), "nothing here");
        assert_eq!(redact("nothing here", ""), "nothing here");
        assert_eq!(redact("nothing here", " \n"), "nothing here");
    }

    #[test]
    fn a_secret_with_quotes_is_masked_inside_json_too() {
        assert_eq!(redact(r#"{"key":"a\"b"}"#, "a\"b"), r#"{"key":"[redacted]"}"#);
    }

    #[test]
    fn the_beginning_of_a_secret_that_a_provider_echoes_is_masked() {
        assert_eq!(
            redact("Incorrect API key provided: sk-proj-abcd****", "sk-proj-abcdefgh1234"),
            "Incorrect API key provided: [redacted]****"
        );
        assert_eq!(redact("sk-proj is a prefix of many", "sk-proj-abcdefgh1234"), "sk-proj is a prefix of many");
    }

    #[test]
    fn multibyte_text_and_secrets_do_not_break() {
        assert_eq!(redact("ключ пароль-секрет-1 ёж", "пароль-секрет-1"), "ключ [redacted] ёж");
        assert_eq!(redact("пароль-сек… ёж", "пароль-секрет-1"), "[redacted]… ёж");
    }
}
