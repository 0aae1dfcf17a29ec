//! What a model wants before a query and before a document.

use crate::common::tiny::Tiny;
use ragent_encoder::{Encoder, EncoderError};
use serde_json::{Value, json};

fn with(settings: Option<Value>, prompts: Option<Value>) -> Tiny {
    Tiny { settings, prompts, ..Tiny::plain().lively() }
}

fn open(tiny: &Tiny) -> Encoder {
    Encoder::open(tiny.write().path()).expect("the model opens")
}

fn refusal(tiny: &Tiny) -> String {
    match Encoder::open(tiny.write().path()) {
        Ok(_) => panic!("the model opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_prefix_stands_before_each_text_of_its_kind() {
    let mut encoder = open(&with(Some(json!({"query_prefix": "wing ", "document_prefix": "flow"})), None));
    let mut one = |kind: &str, text: &str| {
        let vectors = match kind {
            "query" => encoder.embed_queries(&[text], &mut || true),
            "document" => encoder.embed_documents(&[text], &mut || true),
            _ => encoder.embed(&[text], &mut || true),
        };
        vectors.expect("embedded").remove(0)
    };
    assert_eq!(one("query", "a b"), one("plain", "wing a b"));
    // Also where prefix and text are one word.
    assert_eq!(one("document", "ing x"), one("plain", "flowing x"));
    assert_ne!(one("query", "a b"), one("document", "a b"));
    assert_ne!(one("query", "a b"), one("plain", "a b"));
}

#[test]
fn without_settings_nothing_stands_before_a_text() {
    let mut encoder = open(&with(None, None));
    assert_eq!((encoder.query_prefix(), encoder.document_prefix()), ("", ""));
    let plain = encoder.embed(&["a b"], &mut || true).expect("embedded");
    assert_eq!(encoder.embed_queries(&["a b"], &mut || true).expect("embedded"), plain);
    assert_eq!(encoder.embed_documents(&["a b"], &mut || true).expect("embedded"), plain);
}

#[test]
fn prefixes_are_found_where_models_have_them() {
    for (settings, prompts, query, document) in [
        (None, Some(json!({"prompts": {"query": "a ", "passage": "b "}, "default_prompt_name": null})), "a ", "b "),
        (None, Some(json!({"prompts": {"query": "a ", "document": "b ", "passage": "c "}})), "a ", "b "),
        (None, Some(json!({"prompts": {"clustering": "x "}, "similarity_fn_name": "cosine"})), "", ""),
        (None, Some(json!({"__version__": {"transformers": "4.28.1"}})), "", ""),
        (Some(json!({"query_prefix": "y "})), Some(json!({"prompts": {"query": "a ", "document": "b "}})), "y ", "b "),
        (Some(json!({"query_prefix": ""})), Some(json!({"prompts": {"query": "a "}})), "", ""),
        (Some(json!({"languages": ["en"], "sha256": {}})), None, "", ""),
    ] {
        let encoder = open(&with(settings, prompts));
        assert_eq!((encoder.query_prefix(), encoder.document_prefix()), (query, document));
    }
}

#[test]
fn a_prefix_takes_its_tokens_from_what_may_be_read() {
    // 20 tokens, two of them special.
    let encoder = open(&with(Some(json!({"query_prefix": "a wings . ", "document_prefix": "x "})), None));
    assert_eq!((encoder.max_tokens(), encoder.query_tokens(), encoder.document_tokens()), (20, 14, 17));
    let too_long = with(Some(json!({"document_prefix": "a ".repeat(18)})), None);
    let message = refusal(&too_long);
    assert!(message.contains("ragent.json") && message.contains("18 tokens"), "{message}");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let message = refusal(&with(Some(json!({"query_prefix": 3})), None));
    assert!(message.contains("ragent.json"), "{message}");
    let message = refusal(&with(None, Some(json!({"prompts": {"query": "x".repeat(1001)}}))));
    assert!(message.contains("config_sentence_transformers.json") && message.contains("1001 bytes"), "{message}");
    // The mean of the text's tokens alone, without those of the prefix, is not computed here.
    let mut tiny = with(Some(json!({"query_prefix": "a "})), None);
    tiny.pooling = Some(json!({"pooling_mode": "mean", "include_prompt": false}));
    assert!(refusal(&tiny).contains("include_prompt is false"));
    tiny.settings = None;
    open(&tiny);
}

#[test]
fn embedding_with_a_prefix_can_be_interrupted() {
    let mut encoder = open(&with(Some(json!({"query_prefix": "a "})), None));
    let stopped = encoder.embed_queries(&["b"], &mut || false);
    assert!(matches!(stopped, Err(EncoderError::Interrupted)));
}
