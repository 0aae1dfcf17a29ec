//! Keeps a secret out of messages.
//!
//! Redact a text *before* it is shortened: what is left of a secret behind a cut would not be recognised any more.

use std::collections::HashSet;

/// What stands in place of a secret.
const MASK: &str = "[redacted]";
/// So many bytes in a row that also stand in the secret are masked; of a longer secret fewer tell nothing.
const GRAM: usize = 8;

/// Finds a secret, and parts of it, in texts.
pub struct Redactor {
    /// The secret itself, where it is shorter than a gram.
    short: Vec<String>,
    /// Every run of [`GRAM`] bytes, in lower case, of every form of the secret.
    grams: HashSet<[u8; GRAM]>,
    /// The first two bytes of every gram, as a bit each: nearly every place of a text is passed over by it.
    heads: Vec<u64>,
}

impl Redactor {
    /// For a secret; an empty one changes nothing.
    pub fn new(secret: &str) -> Redactor {
        let secret = secret.trim();
        let mut redactor = Redactor { short: Vec::new(), grams: HashSet::new(), heads: vec![0; 1024] };
        if secret.is_empty() {
            return redactor;
        }
        let forms = forms(secret);
        if secret.len() < GRAM {
            redactor.short.push(secret.to_owned());
            // Forms of a very short one may be a character or none, which stand everywhere.
            redactor.short.extend(forms.into_iter().filter(|form| form != secret && form.len() >= secret.len().max(4)));
            // Longer forms first, since shorter ones may be a part of them.
            redactor.short.sort_by_key(|form| std::cmp::Reverse(form.len()));
            return redactor;
        }
        for form in forms {
            let bytes = form.to_ascii_lowercase().into_bytes();
            for gram in bytes.windows(GRAM) {
                let gram: [u8; GRAM] = gram.try_into().expect("a window of that length");
                let head = usize::from(gram[0]) << 8 | usize::from(gram[1]);
                redactor.heads[head / 64] |= 1 << (head % 64);
                redactor.grams.insert(gram);
            }
        }
        redactor
    }

    /// `text` with every occurrence of the secret masked: as it is, in upper or lower case, as it looks inside JSON, a URL or
    /// base64 (also behind a user name), and every part of it that is eight bytes or longer.
    pub fn redact(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for (start, end) in self.places(text.as_bytes()) {
            let start = text.ceil_char_boundary(start).max(at);
            let end = text.floor_char_boundary(end);
            if start < end {
                out.push_str(&text[at..start]);
                out.push_str(MASK);
                at = end;
            }
        }
        out.push_str(&text[at..]);
        for short in &self.short {
            out = out.replace(short, MASK);
        }
        out
    }

    /// `text` with the whole secret masked, in every form, where it is there and long enough to be told from other words: for what
    /// a model says, which may well contain eight characters of it by chance. `None`: nothing was masked.
    pub fn redact_whole(secret: &str, text: &str) -> Option<String> {
        let secret = secret.trim();
        let mut forms = if secret.len() < GRAM { Vec::new() } else { forms(secret) };
        forms.retain(|form| form.len() >= GRAM && text.contains(form.as_str()));
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        let mask = |text: String, form: &String| text.replace(form.as_str(), MASK);
        (!forms.is_empty()).then(|| forms.iter().fold(text.to_owned(), mask))
    }

    /// Where grams of the secret stand; those that touch are one place.
    fn places(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (at, window) in text.windows(GRAM).enumerate() {
            let (first, second) = (window[0].to_ascii_lowercase(), window[1].to_ascii_lowercase());
            let head = usize::from(first) << 8 | usize::from(second);
            if self.heads[head / 64] & (1 << (head % 64)) == 0 {
                continue;
            }
            let mut gram: [u8; GRAM] = window.try_into().expect("a window of that length");
            gram.make_ascii_lowercase();
            if self.grams.contains(&gram) {
                match places.last_mut() {
                    Some((_, end)) if *end >= at => *end = at + GRAM,
                    _ => places.push((at, at + GRAM)),
                }
            }
        }
        places
    }
}

/// Replaces every occurrence of `secret` in `text`, and of parts of it that providers echo ("sk-abcd1234..."); see
/// [`Redactor::redact`].
///
/// ```
/// use ragent_core::provider::redact;
/// assert_eq!(redact("bad key sk-test-1234!", "sk-test-1234"), "bad key [redacted]!");
/// ```
pub fn redact(text: &str, secret: &str) -> String {
    Redactor::new(secret).redact(text)
}

/// How a secret may be written.
fn forms(secret: &str) -> Vec<String> {
    let json = serde_json::Value::from(secret).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let code_units = |upper: bool| -> String {
        let unit = |u: u16| if upper { format!("\\u{u:04X}") } else { format!("\\u{u:04x}") };
        secret.encode_utf16().map(unit).collect()
    };
    let non_ascii: String = secret
        .chars()
        .map(|c| {
            let mut units = [0; 2];
            match c.is_ascii() {
                true => c.to_string(),
                false => c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")).collect(),
            }
        })
        .collect();
    let percent = |keep: fn(u8) -> bool| -> String {
        secret.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
    };
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let encoded = percent(unreserved);
    let mut forms = vec![
        secret.to_owned(),
        json.replace('/', "\\/"),
        json,
        code_units(false),
        code_units(true),
        non_ascii,
        encoded.replace('%', "%25"),
        encoded.replace("%20", "+"),
        encoded,
        percent(|b| b.is_ascii_alphanumeric()),
        percent(|_| false),
    ];
    // Where the secret begins within a group of three bytes (behind "user:", say) decides how base64 writes it.
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret.as_bytes());
        for url in [false, true] {
            let encoded = base64(&bytes, url);
            // The first characters hold bits of what stands before, the last ones of what stands behind.
            let whole = &encoded[(before * 8).div_ceil(6)..encoded.len() - usize::from(bytes.len() % 3 != 0)];
            forms.push(whole.to_owned());
        }
    }
    forms.dedup();
    forms
}

/// Base64 without padding.
fn base64(bytes: &[u8], url: bool) -> String {
    const PLAIN: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let symbol = |bits: u32| match (PLAIN[(bits & 63) as usize], url) {
        (b'+', true) => '-',
        (b'/', true) => '_',
        (other, _) => char::from(other),
    };
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().enumerate().fold(0u32, |bits, (i, b)| bits | u32::from(*b) << (16 - 8 * i));
        for i in 0..=group.len() {
            out.push(symbol(bits >> (18 - 6 * i)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_model_says_only_the_whole_secret_is_masked() {
        let key = "sk-test-12345678";
        assert_eq!(Redactor::redact_whole(key, "sk-test-12 is how keys begin"), None);
        assert_eq!(Redactor::redact_whole(key, "it is sk-test-12345678."), Some("it is [redacted].".to_owned()));
        assert_eq!(Redactor::redact_whole("short", "a short text"), None);
    }

    #[test]
    fn a_key_of_one_character_does_not_stand_between_all_others() {
        assert_eq!(redact("not found", "x"), "not found");
        assert_eq!(redact("key x", "x"), "key [redacted]");
    }

    const KEY: &str = "sk-proj-a/b+c=d.ABCDEF1234567890";

    #[test]
    fn a_secret_is_masked_wherever_it_stands() {
        assert_eq!(redact("k=abc, k=abc", "abc"), "k=[redacted], k=[redacted]");
        assert_eq!(redact("nothing here", "abc"), "nothing here");
        assert_eq!(redact("nothing here", ""), "nothing here");
        assert_eq!(redact("nothing here", " \n"), "nothing here");
        let twice = format!("x{KEY}{KEY}y {KEY}");
        assert_eq!(redact(&twice, KEY), "x[redacted]y [redacted]");
    }

    #[test]
    fn a_secret_with_quotes_is_masked_inside_json_too() {
        assert_eq!(redact(r#"{"key":"a\"b"}"#, "a\"b"), r#"{"key":"[redacted]"}"#);
    }

    #[test]
    fn parts_of_a_secret_that_a_provider_or_a_cut_leaves_are_masked() {
        assert_eq!(
            redact("Incorrect API key provided: sk-proj-abcd****", "sk-proj-abcdefgh1234"),
            "Incorrect API key provided: [redacted]****"
        );
        assert_eq!(redact("sk-proj is a prefix of many", "sk-proj-abcdefgh1234"), "sk-proj is a prefix of many");
        for from in 0..KEY.len() {
            for to in from + GRAM..=KEY.len() {
                assert_eq!(redact(&format!("<{}>", &KEY[from..to]), KEY), "<[redacted]>");
            }
        }
    }

    #[test]
    fn a_secret_is_masked_in_every_form_it_is_written_in() {
        // "user:" and KEY, and KEY alone, as `base64` writes them.
        let basic = base64(format!("user:{KEY}").as_bytes(), false);
        assert_eq!(base64(b"any carnal pleas", false), "YW55IGNhcm5hbCBwbGVhcw");
        for written in [
            KEY.to_uppercase(),
            KEY.replace('/', "\\/"),
            KEY.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D"),
            KEY.replace('/', "%2f").replace('+', "%2b").replace('=', "%3d"),
            KEY.chars().map(|c| format!("\\u{:04x}", c as u32)).collect(),
            base64(KEY.as_bytes(), false),
            base64(format!(":{KEY}").as_bytes(), true),
            basic,
        ] {
            let said = redact(&format!("Authorization: Basic {written}== sent"), KEY);
            let mut runs = written.as_bytes().windows(10);
            assert!(said.contains(MASK), "{said}");
            assert!(!runs.any(|run| said.contains(std::str::from_utf8(run).unwrap())), "{written}: {said}");
        }
    }

    #[test]
    fn multibyte_text_and_secrets_do_not_break() {
        assert_eq!(redact("ключ пароль-секрет-1 ёж", "пароль-секрет-1"), "ключ [redacted] ёж");
        assert_eq!(redact("пароль-сек… ёж", "пароль-секрет-1"), "[redacted]… ёж");
        assert_eq!(redact("пароль-рек", "пароль-секрет-1"), "[redacted]рек");
    }
}
