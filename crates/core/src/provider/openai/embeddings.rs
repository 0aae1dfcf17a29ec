//! `POST /embeddings`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ReplyError, join_url, message, parse_json};
use crate::model::Usage;

/// The URL of the embeddings endpoint below a base such as `https://api.openai.com/v1`.
pub fn embeddings_url(base: &str) -> String {
    join_url(base, "/embeddings")
}

/// The request body for `inputs`, in their order. `dimensions` is sent only when given: many servers refuse it.
pub fn embeddings_body(model: &str, inputs: &[&str], dimensions: Option<usize>) -> Vec<u8> {
    let mut body = json!({ "model": model, "input": inputs, "encoding_format": "float" });
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

/// Reads the reply to a request of `items` texts: one vector a text, in the order of the texts whatever the order of the reply.
///
/// # Errors
/// [`ReplyError`] for a body that is no JSON or is cut, a wrong count, a missing or repeated index, a length other than
/// `dimensions` (or, when that is `None`, other than the first one's), a number that is not finite as `f32`, a zero vector.
pub fn parse_embeddings(
    body: &[u8],
    items: usize,
    dimensions: Option<usize>,
) -> Result<(Vec<Vec<f32>>, Usage), ReplyError> {
    let reply: Reply = parse_json(body)?;
    let Some(data) = reply.data else {
        return Err(match reply.error {
            Some(_) => ReplyError::Reported(message::error_message(body)),
            None => ReplyError::Shape(format!("no field \"data\" in {}", message::excerpt(body, 120))),
        });
    };
    if data.len() != items {
        return Err(ReplyError::Count { expected: items, got: data.len() });
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; items];
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
    Ok((vectors.into_iter().flatten().collect(), super::chat::usage(reply.usage.as_ref())))
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
        _ => Err(wrong(message::shorten(&index.to_string(), 40))),
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

    fn error(body: &str, items: usize, dimensions: Option<usize>) -> String {
        parse_embeddings(body.as_bytes(), items, dimensions).unwrap_err().to_string()
    }

    #[test]
    fn the_body_asks_for_floats_and_sends_dimensions_only_when_given() {
        let body: Value = serde_json::from_slice(&embeddings_body("m", &["a\0\"", "é"], None)).unwrap();
        assert_eq!(body, json!({"model": "m", "input": ["a\0\"", "é"], "encoding_format": "float"}));
        let body: Value = serde_json::from_slice(&embeddings_body("m", &["a"], Some(8))).unwrap();
        assert_eq!(body["dimensions"], 8);
    }

    #[test]
    fn vectors_come_back_in_the_order_of_the_texts() {
        let body = br#"{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2e0]}],"usage":{"prompt_tokens":7,"total_tokens":7}}"#;
        let (vectors, usage) = parse_embeddings(body, 2, Some(2)).unwrap();
        assert_eq!(vectors, [[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!(usage, Usage { input_tokens: 7, output_tokens: 0 });
        let (vectors, usage) = parse_embeddings(br#"{"data":[]}"#, 0, None).unwrap();
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
            assert!(parse_embeddings(&body[..end], 1, None).is_err(), "cut at {end}");
        }
        assert!(parse_embeddings(body, 1, None).is_ok());
    }
}
