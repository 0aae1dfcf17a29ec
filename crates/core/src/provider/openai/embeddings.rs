//! `POST /embeddings`.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{OpenAi, SEND_DIMENSIONS};
use crate::provider::json::First;
use crate::provider::reply::{parse_json, reported};
use crate::provider::{Call, Embedded, Embeddings, ReplyError, Settings, json, message};

impl Embeddings for OpenAi {
    fn request(&self, settings: &Settings, model: &str, texts: &[&str], dimensions: Option<usize>) -> Call {
        let sent = dimensions.filter(|_| settings.flag(&SEND_DIMENSIONS));
        Call { url: super::url(settings, "/embeddings"), body: body(model, texts, sent) }
    }

    fn reply(&self, body: &[u8], texts: usize, dimensions: Option<usize>) -> Result<Embedded, ReplyError> {
        read_reply(body, texts, dimensions)
    }
}

fn body(model: &str, texts: &[&str], dimensions: Option<usize>) -> Vec<u8> {
    let mut body = json!({ "model": model, "input": texts, "encoding_format": "float" });
    if let Some(dimensions) = dimensions {
        body["dimensions"] = dimensions.into();
    }
    body.to_string().into_bytes()
}

/// Most items of a reply that are looked at: no more texts go into one request.
const MAX_ITEMS: usize = 2048;
/// Longest vector that is read: no vector of PostgreSQL's is as long.
const MAX_DIMENSIONS: usize = 32_768;

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow)]
    data: Option<First<Item<'a>, MAX_ITEMS>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    embedding: Option<&'a RawValue>,
}

/// Reads the reply to a request of `texts` texts, in the order of the texts whatever the order of the reply; items without any
/// index are in order. An error for a body that is no JSON or is cut, a wrong count, a missing or repeated index, a length other
/// than `dimensions` (or, when that is `None`, other than the first one's), a number that is not finite as `f32`, a zero vector.
fn read_reply(body: &[u8], texts: usize, dimensions: Option<usize>) -> Result<Embedded, ReplyError> {
    let text = json::readable(body);
    let reply: Reply<'_> = match parse_json(text.as_bytes()) {
        Ok(reply) => reply,
        // What is no list of embeddings may be an error all the same.
        Err(error @ ReplyError::Shape(_)) => return Err(reported_in(&text).unwrap_or(error)),
        Err(error) => return Err(error),
    };
    let Some(data) = reply.data.filter(|data| reply.error.is_none() || data.count > 0) else {
        let shape = || ReplyError::Shape(format!("no field \"data\" in {}", message::printable(text.as_bytes(), 120)));
        return Err(reported_in(&text).unwrap_or_else(shape));
    };
    if data.count != texts || data.items.len() != texts {
        return Err(ReplyError::Count { expected: texts, got: data.count });
    }
    let in_order = data.items.iter().all(|item| item.index.is_none());
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; texts];
    let mut expected = dimensions;
    for (position, item) in data.items.into_iter().enumerate() {
        let index = if in_order { position } else { place(position, item.index, &vectors)? };
        let Some(numbers) = item.embedding else {
            return Err(ReplyError::Shape(format!("embedding {index} is missing")));
        };
        let (vector, length) = vector(index, numbers)?;
        let expected = *expected.get_or_insert(length);
        if length != expected || length == 0 || vector.len() != length {
            return Err(ReplyError::Dimension { index, expected: expected.clamp(1, MAX_DIMENSIONS), got: length });
        }
        if vector.iter().all(|&x| x == 0.0) {
            return Err(ReplyError::Zero { index, dimensions: length });
        }
        vectors[index] = Some(vector);
    }
    // The count is right and no index is taken twice, so every place is filled.
    Ok(Embedded { vectors: vectors.into_iter().flatten().collect(), usage: super::chat::usage(reply.usage) })
}

/// The error that a body reports which has no embeddings.
fn reported_in(text: &str) -> Option<ReplyError> {
    super::one(text).ok().as_ref().and_then(reported)
}

/// The index of the item at `position`, if it is one and still free.
fn place(position: usize, index: Option<&RawValue>, taken: &[Option<Vec<f32>>]) -> Result<usize, ReplyError> {
    let wrong = |got: String| ReplyError::Index { position, got, last: taken.len() - 1 };
    let Some(index) = index else {
        return Err(wrong("none".into()));
    };
    match index.get().parse::<usize>() {
        Ok(i) if i < taken.len() && taken[i].is_none() => Ok(i),
        Ok(i) if i < taken.len() => Err(wrong(format!("{i} again"))),
        _ => Err(wrong(message::printable(index.get().as_bytes(), 40))),
    }
}

/// The numbers of an embedding and how many there are, of which at most [`MAX_DIMENSIONS`] are read. Some servers write them in
/// base64 (32-bit, little-endian) whatever they are asked for.
fn vector(index: usize, written: &RawValue) -> Result<(Vec<f32>, usize), ReplyError> {
    let value =
        |position: usize, got: &str| ReplyError::Value { index, position, got: message::printable(got.as_bytes(), 40) };
    let mut vector = Vec::new();
    let mut length = 0;
    let mut take = |number: Option<f32>, got: &str| {
        let number = number.filter(|n| n.is_finite()).ok_or_else(|| value(length, got))?;
        if vector.len() < MAX_DIMENSIONS {
            vector.push(number);
        }
        length += 1;
        Ok(())
    };
    let written = written.get();
    if let Some(list) = written.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        if !list.trim().is_empty() {
            // It is sound JSON, so commas stand between its items, and the first item that is no number ends this.
            for number in list.split(',') {
                let number = number.trim();
                let is_number = number.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                take(is_number.then(|| number.parse().ok()).flatten(), number)?;
            }
        }
    } else if let Some(bytes) = json::text(raw(written), MAX_DIMENSIONS * 8).as_deref().and_then(base64) {
        for number in bytes.chunks_exact(4) {
            let number = f32::from_le_bytes(number.try_into().expect("four bytes"));
            take(Some(number), &number.to_string())?;
        }
    } else {
        let got = message::printable(written.as_bytes(), 40);
        return Err(ReplyError::Shape(format!("embedding {index} is {got}, expected a list of numbers")));
    }
    Ok((vector, length))
}

fn raw(written: &str) -> &RawValue {
    serde_json::from_str(written).expect("it was JSON before")
}

/// The bytes that base64 stands for, if it is that of 32-bit numbers.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for symbol in text.bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    (!bytes.is_empty() && bytes.len().is_multiple_of(4)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::model::Usage;
    use crate::provider::openai::tests::settings;

    fn error(body: &str, texts: usize, dimensions: Option<usize>) -> String {
        OpenAi.reply(body.as_bytes(), texts, dimensions).unwrap_err().to_string()
    }

    /// The body sent for `texts` to a server with these options.
    fn sent(options: &[(&str, &str)], texts: &[&str], dimensions: Option<usize>) -> Value {
        let call = OpenAi.request(&settings(options), "m", texts, dimensions);
        assert_eq!(call.url, "http://h/v1/embeddings");
        serde_json::from_slice(&call.body).unwrap()
    }

    #[test]
    fn the_body_asks_for_floats_and_sends_dimensions_only_where_the_server_takes_them() {
        let plain = json!({"model": "m", "input": ["a\0\"", "é"], "encoding_format": "float"});
        let (yes, no) = ([("send_dimensions", "on")], [("send_dimensions", "false")]);
        assert_eq!(sent(&[], &["a\0\"", "é"], Some(8)), plain);
        assert_eq!(sent(&no, &["a\0\"", "é"], Some(8)), plain);
        assert_eq!(sent(&yes, &["a\0\"", "é"], None), plain);
        assert_eq!(sent(&yes, &["a"], Some(8))["dimensions"], 8);
    }

    #[test]
    fn vectors_come_back_in_the_order_of_the_texts() {
        let body = br#"{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2e0]}],"usage":{"prompt_tokens":7,"total_tokens":7}}"#;
        let Embedded { vectors, usage } = OpenAi.reply(body, 2, Some(2)).unwrap();
        assert_eq!(vectors, [[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!(usage, Usage { input_tokens: 7, output_tokens: 0 });
        let Embedded { vectors, usage } = OpenAi.reply(br#"{"data":[]}"#, 0, None).unwrap();
        assert!(vectors.is_empty() && usage == Usage::default());
    }

    #[test]
    fn vectors_without_an_index_are_in_order() {
        for body in [
            r#"{"data":[{"embedding":[1,2]},{"embedding":[3,4]}]}"#,
            r#"{"data":[{"embedding":[1,2],"index":null},{"embedding":[3,4]}],"usage":null}"#,
        ] {
            let Embedded { vectors, .. } = OpenAi.reply(body.as_bytes(), 2, Some(2)).unwrap();
            assert_eq!(vectors, [[1.0, 2.0], [3.0, 4.0]]);
        }
        assert_eq!(error(r#"{"data":[{"embedding":[1]}]}"#, 2, None), "expected 2 embeddings, got 1");
    }

    #[test]
    fn base64_is_read_too() {
        let Embedded { vectors, .. } =
            OpenAi.reply(br#"{"data":[{"index":0,"embedding":"AACAPwAAAMA="}]}"#, 1, Some(2)).unwrap();
        assert_eq!(vectors, [[1.0, -2.0]]);
        let nan = error(r#"{"data":[{"index":0,"embedding":"AADAfw=="}]}"#, 1, None);
        assert_eq!(nan, "embedding 0 has NaN at position 0, expected a finite number");
    }

    #[test]
    fn a_mark_before_the_body_does_no_harm() {
        assert!(OpenAi.reply(b"\xef\xbb\xbf{\"data\":[{\"index\":0,\"embedding\":[1]}]}", 1, None).is_ok());
        let compressed = OpenAi.reply(&[0x1f, 0x8b, 8, 0], 1, None).unwrap_err().to_string();
        assert_eq!(compressed, "expected JSON, got compressed data: gzip, which was not asked for");
    }

    #[test]
    fn a_large_reply_of_nothing_is_read_at_once() {
        let many = format!(r#"{{"data":[],"usage":[{}1]}}"#, r#"{"a":1},"#.repeat(200_000));
        assert_eq!(error(&many, 1, None), "expected 1 embeddings, got 0");
        let many = format!(r#"{{"data":[{}{{}}]}}"#, "{},".repeat(200_000));
        assert_eq!(error(&many, 1, None), "expected 1 embeddings, got 200001");
        let long = format!(r#"{{"data":[{{"index":0,"embedding":[{}1]}}]}}"#, "1,".repeat(200_000));
        assert_eq!(error(&long, 1, None), "embedding 0 has 200001 dimensions, expected 32768");
    }

    #[test]
    fn a_wrong_count_names_both() {
        assert_eq!(error(r#"{"data":[{"index":0,"embedding":[1]}]}"#, 2, None), "expected 2 embeddings, got 1");
        assert_eq!(error(r#"{"data":[]}"#, 1, None), "expected 1 embeddings, got 0");
        assert_eq!(error(r#"{"data":[{"index":0,"embedding":[1]}]}"#, 0, None), "expected 0 embeddings, got 1");
    }

    #[test]
    fn every_index_must_stand_once() {
        let two = |a: &str, b: &str| format!(r#"{{"data":[{{{a}"embedding":[1]}},{{{b}"embedding":[1]}}]}}"#);
        let expected = "expected each of 0 to 1 once";
        assert_eq!(
            error(&two("\"index\":0,", "\"index\":0,"), 2, None),
            format!("embedding 1 has index 0 again, {expected}")
        );
        assert_eq!(error(&two("", "\"index\":0,"), 2, None), format!("embedding 0 has index none, {expected}"));
        assert_eq!(
            error(&two("\"index\":0,", "\"index\":null,"), 2, None),
            format!("embedding 1 has index none, {expected}")
        );
        assert_eq!(
            error(&two("\"index\":\"0\",", "\"index\":1,"), 2, None),
            format!("embedding 0 has index \"0\", {expected}")
        );
        assert_eq!(
            error(&two("\"index\":0,", "\"index\":2,"), 2, None),
            format!("embedding 1 has index 2, {expected}")
        );
        assert_eq!(
            error(&two("\"index\":-1,", "\"index\":0,"), 2, None),
            format!("embedding 0 has index -1, {expected}")
        );
    }

    #[test]
    fn a_wrong_or_mixed_dimension_names_both() {
        let body = r#"{"data":[{"index":0,"embedding":[1,2,3]},{"index":1,"embedding":[1,2]}]}"#;
        assert_eq!(error(body, 2, Some(2)), "embedding 0 has 3 dimensions, expected 2");
        assert_eq!(error(body, 2, None), "embedding 1 has 2 dimensions, expected 3");
        assert_eq!(
            error(r#"{"data":[{"index":0,"embedding":[]}]}"#, 1, None),
            "embedding 0 has 0 dimensions, expected 1"
        );
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let one = |v: &str| format!(r#"{{"data":[{{"index":0,"embedding":[{v}]}}]}}"#);
        assert_eq!(error(&one("1,null"), 1, None), "embedding 0 has null at position 1, expected a finite number");
        assert!(error(&one("1e39,1"), 1, None).ends_with("at position 0, expected a finite number"));
        assert_eq!(error(&one("0,-0.0"), 1, None), "embedding 0 is zero in all its 2 dimensions, expected a direction");
        for broken in ["NaN", "Infinity", "-Infinity"] {
            let error = error(&one(broken), 1, None);
            assert!(error.starts_with("reply "), "{broken}: {error}");
        }
        for (broken, got) in [("1e999", "1e999"), ("\"x\"", "\"x\""), ("[1]", "[1]"), ("true", "true"), ("{}", "{}")] {
            assert_eq!(
                error(&one(&format!("2,{broken}")), 1, None),
                format!("embedding 0 has {got} at position 1, expected a finite number")
            );
        }
        for (broken, got) in [("7", "7"), ("\"abc\"", "\"abc\""), ("{}", "{}")] {
            assert_eq!(
                error(&format!(r#"{{"data":[{{"index":0,"embedding":{broken}}}]}}"#), 1, None),
                format!("reply has an unexpected shape: embedding 0 is {got}, expected a list of numbers")
            );
        }
    }

    #[test]
    fn an_error_with_a_success_status_is_reported_in_its_own_words() {
        assert_eq!(error(r#"{"error":{"message":"overloaded"}}"#, 1, None), "provider reported an error: overloaded");
        assert_eq!(
            error(r#"{"object":"list"}"#, 1, None),
            r#"reply has an unexpected shape: no field "data" in {"object":"list"}"#
        );
        let reported = |body: &str| OpenAi.reply(body.as_bytes(), 1, None).unwrap_err();
        for body in [
            r#"{"error":{"code":429,"message":"slow"}}"#,
            r#"{"data":[],"error":{"code":429,"message":"slow"}}"#,
            r#"{"data":{},"error":{"code":"429","message":"slow"}}"#,
            r#"[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#,
        ] {
            assert_eq!(reported(body), ReplyError::Reported { status: Some(429), words: "slow".into() }, "{body}");
        }
    }

    #[test]
    fn every_cut_of_a_reply_is_an_error() {
        let body = br#"{"data":[{"index":0,"embedding":[0.25,-1.5]}],"usage":{"prompt_tokens":7}}"#;
        for end in 0..body.len() {
            assert!(OpenAi.reply(&body[..end], 1, None).is_err(), "cut at {end}");
        }
        assert!(OpenAi.reply(body, 1, None).is_ok());
    }
}
