//! `POST /embeddings`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{OpenAi, SEND_DIMENSIONS};
use crate::provider::reply::parse_json;
use crate::provider::{Call, Embedded, Embeddings, ReplyError, Settings, join_url, message};
use crate::text::shorten;

impl Embeddings for OpenAi {
    fn request(&self, settings: &Settings, model: &str, texts: &[&str], dimensions: Option<usize>) -> Call {
        let sent = dimensions.filter(|_| settings.flag(&SEND_DIMENSIONS));
        Call { url: join_url(&settings.base_url, "/embeddings"), body: body(model, texts, sent) }
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

#[derive(Deserialize)]
struct Reply {
    data: Option<Vec<Item>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<Value>,
    embedding: Option<Vec<Option<f64>>>,
}

/// Reads the reply to a request of `texts` texts, in the order of the texts whatever the order of the reply. An error for a body that is no JSON or is cut, a wrong count, a missing or repeated index, a length other than
/// `dimensions` (or, when that is `None`, other than the first one's), a number that is not finite as `f32`, a zero vector.
fn read_reply(body: &[u8], texts: usize, dimensions: Option<usize>) -> Result<Embedded, ReplyError> {
    let reply: Reply = parse_json(body)?;
    let Some(data) = reply.data else {
        return Err(match reply.error {
            Some(_) => ReplyError::Reported(message::error_message(body)),
            None => ReplyError::Shape(format!("no field \"data\" in {}", message::printable(body, 120))),
        });
    };
    if data.len() != texts {
        return Err(ReplyError::Count { expected: texts, got: data.len() });
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; texts];
    let mut expected = dimensions;
    for (position, item) in data.into_iter().enumerate() {
        let index = place(position, item.index.as_ref(), &vectors)?;
        let Some(numbers) = item.embedding else {
            return Err(ReplyError::Shape(format!("embedding {index} is missing")));
        };
        let expected = *expected.get_or_insert(numbers.len());
        if numbers.len() != expected || numbers.is_empty() {
            return Err(ReplyError::Dimension { index, expected: expected.max(1), got: numbers.len() });
        }
        vectors[index] = Some(finite(index, numbers)?);
    }
    // The count is right and no index is taken twice, so every place is filled.
    Ok(Embedded { vectors: vectors.into_iter().flatten().collect(), usage: super::chat::usage(reply.usage.as_ref()) })
}

/// The index of the item at `position`, if it is one and still free.
fn place(position: usize, index: Option<&Value>, taken: &[Option<Vec<f32>>]) -> Result<usize, ReplyError> {
    let wrong = |got: String| ReplyError::Index { position, got, last: taken.len() - 1 };
    let Some(index) = index else {
        return Err(wrong("none".into()));
    };
    match index.as_u64().and_then(|i| usize::try_from(i).ok()) {
        Some(i) if i < taken.len() && taken[i].is_none() => Ok(i),
        Some(i) if i < taken.len() => Err(wrong(format!("{i} again"))),
        _ => Err(wrong(shorten(&index.to_string(), 40))),
    }
}

fn finite(index: usize, numbers: Vec<Option<f64>>) -> Result<Vec<f32>, ReplyError> {
    let mut vector = Vec::with_capacity(numbers.len());
    for (position, number) in numbers.into_iter().enumerate() {
        let Some(number) = number else {
            return Err(ReplyError::Value { index, position, got: "null".into() });
        };
        let narrow = number as f32;
        if !narrow.is_finite() {
            return Err(ReplyError::Value { index, position, got: number.to_string() });
        }
        vector.push(narrow);
    }
    if vector.iter().all(|&x| x == 0.0) {
        return Err(ReplyError::Zero { index, dimensions: vector.len() });
    }
    Ok(vector)
}

#[cfg(test)]
mod tests {
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
        for broken in ["NaN", "Infinity", "-Infinity", "1e999", "\"x\"", "[1]"] {
            let error = error(&one(broken), 1, None);
            assert!(error.starts_with("reply "), "{broken}: {error}");
        }
    }

    #[test]
    fn an_error_with_a_success_status_is_reported_in_its_own_words() {
        assert_eq!(error(r#"{"error":{"message":"overloaded"}}"#, 1, None), "provider reported an error: overloaded");
        assert_eq!(
            error(r#"{"object":"list"}"#, 1, None),
            r#"reply has an unexpected shape: no field "data" in {"object":"list"}"#
        );
        assert!(error(r#"{"data":[{"index":0,"embedding":"AACAPw=="}]}"#, 1, None).contains("expected a sequence"));
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
