//! Cross-encoders: what their folders must be, where pairs are cut, and how they are computed. What they compute is looked at in
//! `reference.rs`.

use std::fs;

use crate::common::tiny::{Tensor, Tiny};
use ragent_encoder::{CrossEncoder, Encoder, EncoderError, Pooling, Task, prepare, task, verify_prepared};
use serde_json::{Value, json};
use tokenizers::{Tokenizer, TruncationParams};

fn cross() -> Tiny {
    Tiny::cross(16, 2, 2, 24, 30).lively()
}

fn open(tiny: &Tiny) -> CrossEncoder {
    CrossEncoder::open(tiny.write().path()).expect("the model opens")
}

fn score(model: &mut CrossEncoder, query: &str, passages: &[&str]) -> Vec<f32> {
    model.score(query, passages, &mut || true).expect("the passages are scored")
}

fn assert_refused(tiny: &Tiny, words: &[&str]) {
    let message = match CrossEncoder::open(tiny.write().path()) {
        Ok(_) => panic!("the model opened"),
        Err(error) => error.to_string(),
    };
    for word in words {
        assert!(message.contains(word), "\"{message}\" does not say \"{word}\"");
    }
}

#[test]
fn a_score_does_not_depend_on_the_passages_beside_it_or_on_the_prepared_file() {
    let dir = cross().write();
    let mut model = CrossEncoder::open(dir.path()).expect("the model opens");
    let passages: Vec<String> =
        (0..60).map(|n| "wing a flows b . é x ".repeat(n % 7) + ["a", "b", "c"][n % 3]).collect();
    let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
    let together = score(&mut model, "a wing", &passages);
    assert!(together.iter().any(|score| (score - together[0]).abs() > 0.01), "they are told apart");
    for (passage, expected) in passages.iter().zip(&together) {
        assert_eq!(score(&mut model, "a wing", &[passage])[0].to_bits(), expected.to_bits());
    }
    prepare(dir.path()).expect("prepared");
    assert_eq!(verify_prepared(dir.path()).expect("read"), None);
    let mut model = CrossEncoder::open(dir.path()).expect("the prepared model opens");
    assert_eq!(model.unprepared(), None);
    assert_eq!(score(&mut model, "a wing", &passages), together);
    assert!(score(&mut model, "a wing", &[]).is_empty());
    assert_eq!(CrossEncoder::open_unprepared(dir.path()).map(|model| model.unprepared().is_some()).ok(), Some(true));
}

#[test]
fn which_text_comes_first_matters() {
    let mut model = open(&cross());
    assert_ne!(score(&mut model, "a wing", &["b c"]), score(&mut model, "b c", &["a wing"]));
}

/// The library truncates pairs too; here as the model's authors do, the longest first.
#[test]
fn of_a_long_pair_as_much_is_cut_off_as_the_tokenizer_library_would() {
    let tiny = cross();
    let dir = tiny.write();
    let mut tokenizer = Tokenizer::from_file(dir.path().join("tokenizer.json")).expect("the tokenizer opens");
    tokenizer.with_padding(None);
    tokenizer.with_truncation(Some(TruncationParams { max_length: 30, ..TruncationParams::default() })).expect("set");
    let mut model = CrossEncoder::open(dir.path()).expect("the model opens");
    for first in [0, 1, 5, 12, 13, 14, 15, 26, 27, 28, 60] {
        for second in [0, 1, 5, 12, 13, 14, 15, 26, 27, 28, 60] {
            // One odd token may be either text's where each of them fills the whole.
            if first >= 27 && second >= 27 {
                continue;
            }
            let words =
                |count: usize, words: &[&str]| (0..count).map(|n| words[n % words.len()]).collect::<Vec<_>>().join(" ");
            let (query, passage) = (words(first, &["a", "b", "wing", "x"]), words(second, &["y", "c", "flow"]));
            let encoding = tokenizer.encode((query.as_str(), passage.as_str()), true).expect("tokenized");
            let kept = |kind: u32| {
                let own = encoding.get_type_ids().iter().zip(encoding.get_special_tokens_mask());
                own.filter(|(found, special)| **found == kind && **special == 0).count()
            };
            let (kept_query, kept_passage) =
                (words(kept(0), &["a", "b", "wing", "x"]), words(kept(1), &["y", "c", "flow"]));
            let found = score(&mut model, &query, &[&passage]);
            assert_eq!(found, score(&mut model, &kept_query, &[&kept_passage]), "{first} and {second} tokens");
        }
    }
}

#[test]
fn long_texts_cost_no_more_than_what_counts_of_them_and_can_be_interrupted() {
    let mut model = open(&cross());
    let long = "wing x . ".repeat(1 << 20);
    let mut calls = 0;
    let scores = model.score(&long, &[&long, "a"], &mut || {
        calls += 1;
        true
    });
    assert_eq!(scores.expect("scored").len(), 2);
    assert!(calls < 100, "{calls} calls: the rest of the texts is looked at");
    for stop_at in 1..=calls {
        let mut calls = 0;
        let stopped = model.score(&long, &[&long, "a"], &mut || {
            calls += 1;
            calls < stop_at
        });
        assert!(matches!(stopped, Err(EncoderError::Interrupted)));
    }
    assert_eq!(score(&mut model, "a", &["b"]), score(&mut open(&cross()), "a", &["b"]), "usable after an interrupt");
}

#[test]
fn a_folder_says_what_it_is_for_and_serves_for_nothing_else() {
    let (sentences, pairs) = (Tiny::plain().write(), cross().write());
    assert_eq!(task(sentences.path()).expect("read"), Task::Embed(Pooling::Mean));
    assert_eq!(task(pairs.path()).expect("read"), Task::Rerank);
    let error = Encoder::open(pairs.path()).err().expect("refused");
    assert!(matches!(error, EncoderError::OtherTask { task: Task::Rerank, .. }), "{error}");
    assert!(error.to_string().contains("is a cross-encoder"), "{error}");
    let error = CrossEncoder::open(sentences.path()).err().expect("refused");
    assert!(error.to_string().contains("is a sentence encoder"), "{error}");
}

#[test]
fn other_heads_are_refused() {
    let with = |name: &str, value: Value| {
        let mut tiny = cross();
        tiny.config[name] = value;
        tiny
    };
    assert_refused(&with("id2label", json!({"0": "no", "1": "maybe", "2": "yes"})), &["config.json", "3 labels"]);
    assert_refused(&with("architectures", json!(["RobertaForSequenceClassification"])), &["Roberta"]);

    // Where the configuration does not say how many labels there are, the weights do.
    let mut tiny = with("id2label", Value::Null);
    let weight = Tensor { shape: vec![2, 16], values: vec![0.5; 32] };
    tiny.tensors.insert("classifier.weight".into(), weight);
    assert_refused(&tiny, &["classifier.weight", "[2, 16]", "[1, 16]"]);

    for name in ["pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias"] {
        let mut tiny = cross();
        tiny.tensors.remove(name);
        assert_refused(&tiny, &["model.safetensors", name]);
    }
    let mut tiny = cross();
    tiny.config["type_vocab_size"] = json!(1);
    let row = tiny.tensors["embeddings.token_type_embeddings.weight"].values[..16].to_vec();
    let types = Tensor { shape: vec![1, 16], values: row };
    tiny.tensors.insert("embeddings.token_type_embeddings.weight".into(), types);
    assert_refused(&tiny, &["one token type"]);
}

#[test]
fn tokenizers_that_do_not_mark_pairs_are_refused() {
    let mut tiny = cross();
    tiny.tokenizer["post_processor"]["pair"][3]["Sequence"]["type_id"] = json!(0);
    assert_refused(&tiny, &["tokenizer.json", "does not frame and mark two texts"]);
    let mut tiny = cross();
    tiny.tokenizer_config = Some(json!({"model_max_length": 4}));
    assert_refused(&tiny, &["no room", "4 tokens"]);
    let mut tiny = cross();
    tiny.tokenizer_config = Some(json!({"model_max_length": 5}));
    assert_eq!(open(&tiny).max_tokens(), 5);
}

#[test]
fn damaged_weights_give_an_error_and_not_a_score() {
    let names: Vec<String> = cross().tensors.keys().cloned().collect();
    for name in names {
        let mut tiny = cross();
        tiny.tensors.get_mut(&name).expect("a tensor").values.fill(f32::NAN);
        let result = open(&tiny).score("a b", &["x y"], &mut || true);
        assert!(matches!(result, Err(EncoderError::NotFinite { .. })), "{name}");
    }
}

#[test]
fn no_changed_byte_of_a_cross_encoder_makes_a_panic() {
    let dir = Tiny::cross(4, 2, 1, 4, 12).write();
    for (name, bytes) in [("config.json", 1000), ("tokenizer.json", 600), ("model.safetensors", 500)] {
        let path = dir.path().join(name);
        let file = fs::read(&path).expect("read");
        for at in 0..bytes.min(file.len()) {
            for value in [file[at] ^ 1, b'9'] {
                let mut changed = file.clone();
                changed[at] = value;
                fs::write(&path, changed).expect("written");
                if let Ok(mut model) = CrossEncoder::open(dir.path()) {
                    let _ = model.score("a wing", &["flows ."], &mut || true);
                }
            }
        }
        fs::write(&path, file).expect("written");
    }
}
