//! JSON that somebody else wrote, read one level at a time: never as a tree, and no more of it than is of use.
//!
//! What is not looked into stays a slice of the body, so sixteen megabytes of nonsense cost no more than the body itself, and
//! nesting costs nothing at all.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::text::storable;

/// Most fields of an object that are kept.
const MAX_FIELDS: usize = 128;
/// Longest name of a field that is kept, in bytes.
const MAX_NAME: usize = 128;

/// A body as text: without a byte order mark, with U+FFFD for what is no UTF-8.
pub fn readable(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body))
}

/// The fields of an object, each with its value as it was written. Of fields with one name the last counts.
#[derive(Debug, Default)]
pub struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The fields of a value that is an object.
    pub fn of(value: &'a RawValue) -> Option<Fields<'a>> {
        serde_json::from_str(value.get()).ok()
    }

    /// A field's value, unless it is missing or null.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let value = self.0.iter().rev().find(|(known, _)| known == name)?.1;
        (value.get() != "null").then_some(value)
    }

    /// The first of several names that has a value.
    pub fn any(&self, names: &[&str]) -> Option<&'a RawValue> {
        names.iter().find_map(|name| self.get(name))
    }

    /// A field that is an object.
    pub fn object(&self, name: &str) -> Option<Fields<'a>> {
        self.get(name).and_then(Fields::of)
    }

    /// A field that is a string; at most `max` bytes of it.
    pub fn text(&self, name: &str, max: usize) -> Option<String> {
        self.get(name).and_then(|value| text(value, max))
    }

    /// All fields that are not null, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().filter(|(_, value)| value.get() != "null").map(|(name, value)| (name.as_str(), *value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    match name.filter(|_| fields.len() < MAX_FIELDS) {
                        Some(name) => fields.push((name, map.next_value()?)),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A field's name; `None` when it is too long to be one that matters.
struct Name(Option<String>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visitor<'_> for Visit {
            type Value = Name;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
                Ok(Name((name.len() <= MAX_NAME).then(|| name.to_owned())))
            }
        }
        deserializer.deserialize_str(Visit)
    }
}

/// The first `MAX` items of a list; the others are only counted.
#[derive(Debug)]
pub struct First<T, const MAX: usize> {
    /// The first ones.
    pub items: Vec<T>,
    /// How many there are altogether.
    pub count: usize,
}

impl<T, const MAX: usize> Default for First<T, MAX> {
    fn default() -> Self {
        First { items: Vec::new(), count: 0 }
    }
}

impl<'a, const MAX: usize> First<&'a RawValue, MAX> {
    /// The items of a value that is a list.
    pub fn of(value: &'a RawValue) -> Option<Self> {
        serde_json::from_str(value.get()).ok()
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for First<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const MAX: usize>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
            type Value = First<T, MAX>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut first = First::default();
                while first.items.len() < MAX {
                    let Some(item) = seq.next_element()? else { break };
                    first.items.push(item);
                }
                first.count = first.items.len();
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    first.count += 1;
                }
                Ok(first)
            }
        }
        deserializer.deserialize_seq(List(std::marker::PhantomData))
    }
}

/// A string, at most `max` bytes of it; `None` for a value of another kind. Half a surrogate pair and U+0000, which JSON can write
/// and text cannot hold, become U+FFFD.
pub fn text(value: &RawValue, max: usize) -> Option<String> {
    struct Text(String);
    impl<'de> Deserialize<'de> for Text {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visit;
            impl Visitor<'_> for Visit {
                type Value = Text;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a string")
                }

                fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Text, E> {
                    Ok(Text(lossy(bytes)))
                }
            }
            deserializer.deserialize_bytes(Visit)
        }
    }
    if !value.get().starts_with('"') {
        return None;
    }
    let Text(text) = serde_json::from_str(value.get()).ok()?;
    let mut text = storable(text);
    text.truncate(text.floor_char_boundary(max));
    Some(text)
}

/// Bytes as text. serde_json gives half a surrogate pair as the three bytes that would encode it.
fn lossy(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at..] {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => {
                out.extend_from_slice("\u{fffd}".as_bytes());
                at += 3;
            }
            [byte, ..] => {
                out.push(byte);
                at += 1;
            }
            [] => break,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// JSON text in which every escape stands for a character that text in PostgreSQL can hold: U+FFFD in place of U+0000, of half a
/// surrogate pair, and of a `\\u` without four digits. It is read from left to right as JSON is: what comes out of one escape is
/// not looked at again, so that none is made of the pieces of others.
pub fn mended(json: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(escape) = json[at..].find('\\') {
        let escape = at + escape;
        let rest = &json[escape..];
        // A backslash and what it escapes, which may be another one.
        let Some(digits) = rest.strip_prefix("\\u") else {
            at = escape + 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
            continue;
        };
        let (length, is_sound) = match code_unit(digits) {
            Err(digits) => (2 + digits, false),
            Ok(0 | 0xdc00..=0xdfff) => (6, false),
            Ok(0xd800..=0xdbff) => {
                let low = digits[4..].strip_prefix("\\u").map(code_unit);
                if matches!(low, Some(Ok(0xdc00..=0xdfff))) { (12, true) } else { (6, false) }
            }
            Ok(_) => (6, true),
        };
        at = escape + length;
        if !is_sound {
            out.push_str(&json[copied..escape]);
            out.push_str("\\ufffd");
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// The number that four hexadecimal digits write, or how many there are.
fn code_unit(text: &str) -> Result<u32, usize> {
    let digits = text.bytes().take(4).take_while(u8::is_ascii_hexdigit).count();
    if digits < 4 { Err(digits) } else { u32::from_str_radix(&text[..4], 16).map_err(|_| 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_what_text_cannot_hold_are_mended() {
        for (written, mended_to) in [
            (r#"{"a":"plain \n \" \\ \u00e9 \ud83d\ude00"}"#, r#"{"a":"plain \n \" \\ \u00e9 \ud83d\ude00"}"#),
            (r#""a\u0000b""#, r#""a\ufffdb""#),
            // Taking the inner one out would make another.
            (r#""\u00\u000000""#, r#""\ufffd\ufffd00""#),
            (r#""\u\u0000\u00000""#, r#""\ufffd\ufffd\ufffd0""#),
            // An escaped backslash is no escape.
            (r#""\\u0000""#, r#""\\u0000""#),
            (r#""\\\u0000""#, r#""\\\ufffd""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\ud83d\ud83d\ude00\ude00""#, r#""\ufffd\ud83d\ude00\ufffd""#),
            (r#""\ud83d\u0041""#, r#""\ufffd\u0041""#),
            (r#""\ud83d\u00""#, r#""\ufffd\ufffd""#),
            (r#""\uжж\ж""#, r#""\ufffdжж\ж""#),
            ("\\", "\\"),
            ("\\u", "\\ufffd"),
        ] {
            assert_eq!(mended(written), mended_to, "{written}");
        }
        assert!(matches!(mended(r#""\n""#), Cow::Borrowed(_)));
    }

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn fields_are_slices_of_what_was_written() {
        let fields = Fields::of(raw(r#"{"a": 1.50, "b": null, "c": {"x": [1, 2]}, "a": "\u00e9"}"#)).unwrap();
        assert_eq!(fields.text("a", 9).as_deref(), Some("é"));
        assert_eq!(fields.get("b").map(RawValue::get), None);
        assert_eq!(fields.object("c").unwrap().get("x").unwrap().get(), "[1, 2]");
        assert_eq!(fields.iter().count(), 3);
        assert!(Fields::of(raw("[1]")).is_none());
    }

    #[test]
    fn half_a_surrogate_pair_becomes_a_replacement_character() {
        for (written, read) in [
            (r#""a \ud83d.""#, "a \u{fffd}."),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\ude00\ud83d\ud83d""#, "\u{fffd}\u{fffd}\u{fffd}"),
            (r#""\u0000""#, "\u{fffd}"),
        ] {
            assert_eq!(text(raw(written), 100).as_deref(), Some(read), "{written}");
        }
        assert_eq!(text(raw(r#""жж""#), 3).as_deref(), Some("ж"));
        assert_eq!(text(raw("7"), 3), None);
    }

    #[test]
    fn long_lists_and_deep_nesting_are_counted_and_not_kept() {
        let list = format!("[{}1]", "{\"a\":[1]},".repeat(100_000));
        let first: First<&RawValue, 3> = First::of(raw(&list)).unwrap();
        assert_eq!((first.items.len(), first.count), (3, 100_001));
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert_eq!(Fields::of(raw(&deep)).unwrap().get("a").unwrap().get().len(), 2_000_000);
        let many: String = (0..1000).map(|i| format!("\"f{i}\":{i},")).collect();
        assert_eq!(Fields::of(raw(&format!("{{{many}\"z\":1}}"))).unwrap().iter().count(), MAX_FIELDS);
    }

    #[test]
    fn a_body_may_begin_with_a_mark_and_hold_what_is_no_text() {
        assert_eq!(readable(b"\xef\xbb\xbf{}"), "{}");
        assert_eq!(readable(b"\"\xff\""), "\"\u{fffd}\"");
    }
}
