//! A sentence encoder with CLS pooling and prefixes, and a cross-encoder, against numbers that were computed independently
//! (`../fixtures/make_tiny_reference.py`).

use crate::common::tiny::Tiny;
use crate::common::{cosine, largest_difference};
use ragent_encoder::{CrossEncoder, Encoder, prepare};
use serde::Deserialize;
use serde_json::json;

/// One line of `fixtures/tiny.jsonl`.
#[derive(Deserialize)]
struct Line {
    kind: String,
    text: String,
    #[serde(default)]
    passage: String,
    #[serde(default)]
    vector: Vec<f32>,
    #[serde(default)]
    score: f32,
}

fn lines(kind: &str) -> Vec<Line> {
    let lines = include_str!("../fixtures/tiny.jsonl").lines();
    let lines = lines.map(|line| serde_json::from_str::<Line>(line).expect("a line of the fixture is valid"));
    lines.filter(|line| line.kind == kind).collect()
}

/// The files of bge-small-en-v1.5 that say how it pools and what it reads, with a smaller model's sizes.
fn like_bge() -> Tiny {
    let mut tiny = Tiny::new(32, 4, 3, 48, 24).lively();
    tiny.pooling = Some(json!({
        "word_embedding_dimension": 32, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false,
        "pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false
    }));
    tiny.sentence = Some(json!({"max_seq_length": 512, "do_lower_case": true}));
    tiny.modules = Some(json!([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    ]));
    tiny.config["id2label"] = json!({"0": "LABEL_0"});
    tiny.settings = Some(json!({"query_prefix": "a wing , ", "document_prefix": "x y . "}));
    tiny
}

#[test]
fn cls_vectors_of_texts_queries_and_documents_agree_with_the_reference() {
    let dir = like_bge().write();
    for prepared in [false, true] {
        if prepared {
            prepare(dir.path()).expect("prepared");
        }
        let mut encoder = Encoder::open(dir.path()).expect("the model opens");
        assert_eq!(encoder.unprepared().is_none(), prepared);
        for kind in ["plain", "query", "document"] {
            let lines = lines(kind);
            assert!(lines.len() >= 9);
            let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
            let vectors = match kind {
                "query" => encoder.embed_queries(&texts, &mut || true),
                "document" => encoder.embed_documents(&texts, &mut || true),
                _ => encoder.embed(&texts, &mut || true),
            };
            for (line, vector) in lines.iter().zip(vectors.expect("embedded")) {
                let (cosine, difference) = (cosine(&vector, &line.vector), largest_difference(&vector, &line.vector));
                assert!(cosine >= 0.999_999 && difference < 2e-5, "{kind} {:?}: {cosine} {difference}", line.text);
            }
        }
    }
}

#[test]
fn scores_of_pairs_agree_with_the_reference() {
    let dir = Tiny::cross(32, 4, 3, 48, 24).lively().write();
    for prepared in [false, true] {
        if prepared {
            prepare(dir.path()).expect("prepared");
        }
        let mut model = CrossEncoder::open(dir.path()).expect("the model opens");
        assert_eq!(model.unprepared().is_none(), prepared);
        let lines = lines("pair");
        let mut found = Vec::new();
        for line in &lines {
            let score = model.score(&line.text, &[&line.passage], &mut || true).expect("scored")[0];
            let difference = (score - line.score).abs();
            assert!(difference < 2e-5, "{:?} {:?}: {score} {}", line.text, line.passage, line.score);
            found.push(score);
        }
        let expected: Vec<f32> = lines.iter().map(|line| line.score).collect();
        assert!(cosine(&found, &expected) >= 0.999_999);
    }
}
