//! Small random models of many shapes against the architecture's definition, and every way a folder can be wrong.

mod common;

use std::fs;
use std::path::Path;

use common::largest_difference;
use common::tiny::{Tiny, Type, WORDS};
use ragent_encoder::{Encoder, EncoderError, prepare, verify_prepared};
use serde_json::{Value, json};

fn open(dir: &Path) -> Encoder {
    Encoder::open(dir).expect("the model opens")
}

fn embed(encoder: &mut Encoder, texts: &[&str]) -> Vec<Vec<f32>> {
    encoder.embed(texts, &mut || true).expect("the texts are embedded")
}

/// What is said when a model does not open.
fn refusal(tiny: &Tiny) -> String {
    refusal_in(tiny.write().path())
}

fn refusal_in(dir: &Path) -> String {
    match Encoder::open(dir) {
        Ok(_) => panic!("the model opened"),
        Err(error) => error.to_string(),
    }
}

fn assert_refused(tiny: &Tiny, words: &[&str]) {
    let message = refusal(tiny);
    for word in words {
        assert!(message.contains(word), "\"{message}\" does not say \"{word}\"");
    }
}

fn assert_vectors(tiny: &Tiny, encoder: &mut Encoder, what: &str) {
    let id = |word: &str| WORDS.iter().position(|known| *known == word).expect("a known word");
    for words in [&["a"][..], &["a", "b", "."], &["wing", "##s", "flow", "##ing", ",", "x", "y", "é"]] {
        let text = words.join(" ").replace(" ##", "");
        let ids: Vec<usize> = ["[CLS]"].iter().chain(words).chain(&["[SEP]"]).map(|word| id(word)).collect();
        let expected: Vec<f32> = tiny.vector(&ids).iter().map(|value| *value as f32).collect();
        let found = embed(encoder, &[&text]).remove(0);
        let difference = largest_difference(&found, &expected);
        assert!(difference < 2e-5, "{what}: \"{text}\" differs by {difference}");
    }
}

#[test]
fn models_of_many_shapes_follow_the_architecture() {
    for (hidden, heads, layers, inner) in [
        (16, 2, 2, 24),
        (4, 4, 1, 1),
        (20, 5, 2, 37),
        (33, 3, 1, 65),
        (48, 1, 3, 96),
        (64, 2, 2, 256),
        (96, 12, 1, 100),
    ] {
        for (activation, cls) in [("gelu_new", false), ("gelu_pytorch_tanh", true), ("relu", true)] {
            let mut tiny = Tiny::new(hidden, heads, layers, inner, 20);
            tiny.config["hidden_act"] = json!(activation);
            tiny.pooling = Some(json!({"pooling_mode_cls_token": cls, "pooling_mode_mean_tokens": !cls}));
            let dir = tiny.write();
            let what = format!("{hidden}/{heads}/{layers}/{inner} {activation} cls={cls}");
            let mut encoder = open(dir.path());
            assert!(encoder.unprepared().is_some());
            assert_eq!(encoder.dimensions(), hidden);
            assert_vectors(&tiny, &mut encoder, &what);

            prepare(dir.path()).expect("the model is prepared");
            let mut encoder = open(dir.path());
            assert_eq!(encoder.unprepared(), None);
            assert_vectors(&tiny, &mut encoder, &format!("{what}, prepared"));
        }
    }
}

#[test]
fn weights_may_be_halves_prefixed_or_unaligned() {
    for weight_type in [Type::F32, Type::F16, Type::Bf16] {
        for prefix in ["", "bert."] {
            for header_padding in 0..4 {
                let mut tiny = Tiny { weight_type, prefix, header_padding, ..Tiny::plain() };
                tiny.config["hidden_act"] = json!("relu");
                let dir = tiny.write();
                assert_vectors(&tiny, &mut open(dir.path()), &format!("{prefix} {header_padding}"));
            }
        }
    }
}

#[test]
fn without_a_pooling_file_the_mean_is_taken() {
    let mut tiny = Tiny::plain();
    tiny.config["hidden_act"] = json!("relu");
    tiny.pooling = None;
    assert_vectors(&tiny, &mut open(tiny.write().path()), "no pooling file");
}

#[test]
fn pooling_is_read_from_old_and_new_files() {
    let mut tiny = Tiny::plain();
    let mut vector = |pooling: Value| {
        tiny.pooling = Some(pooling);
        embed(&mut open(tiny.write().path()), &["a b"]).remove(0)
    };
    let mean = vector(json!({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}));
    let cls = vector(json!({"pooling_mode_cls_token": true}));
    assert!(mean != cls);
    assert!(mean == vector(json!({"pooling_mode": "mean", "include_prompt": true})));
    assert!(cls == vector(json!({"pooling_mode": "cls"})));
}

#[test]
fn the_limit_is_the_lowest_that_the_files_name() {
    for (sentence, tokenizer, expected) in [
        (Some(json!({"max_seq_length": 7})), None, 7),
        (Some(json!({"max_seq_length": 7})), Some(json!({"model_max_length": 5})), 7),
        (Some(json!({"max_seq_length": 1000})), None, 20),
        (Some(json!({"max_seq_length": null})), Some(json!({"model_max_length": 9})), 9),
        (None, Some(json!({"model_max_length": 9})), 9),
        (None, Some(json!({"model_max_length": 1e30})), 20),
        (None, Some(json!({})), 20),
        (None, None, 20),
    ] {
        let tiny = Tiny { sentence, tokenizer_config: tokenizer, ..Tiny::plain() };
        assert_eq!(open(tiny.write().path()).max_tokens(), expected);
    }
}

#[test]
fn what_is_beyond_the_limit_is_cut_off_and_counted() {
    let tiny = Tiny { sentence: Some(json!({"max_seq_length": 6})), ..Tiny::plain() };
    let mut encoder = open(tiny.write().path());
    let vectors = embed(&mut encoder, &["a b c x", "a b c x y y y", "a b c y"]);
    assert!(vectors[0] == vectors[1]);
    assert!(vectors[0] != vectors[2]);
    assert_eq!(common::count(&encoder, "a b c x y y y"), 7);
}

#[test]
fn texts_are_lowercased_if_the_model_asks_for_it() {
    let mut tiny = Tiny::plain();
    tiny.tokenizer["normalizer"]["lowercase"] = json!(false);
    let vectors = embed(&mut open(tiny.write().path()), &["WING", "wing"]);
    assert!(vectors[0] != vectors[1]);
    tiny.sentence = Some(json!({"max_seq_length": 20, "do_lower_case": true}));
    let vectors = embed(&mut open(tiny.write().path()), &["WING", "wing"]);
    assert!(vectors[0] == vectors[1]);
}

#[test]
fn no_texts_give_no_vectors() {
    let mut encoder = open(Tiny::plain().write().path());
    assert!(embed(&mut encoder, &[]).is_empty());
}

#[test]
fn a_text_without_tokens_has_the_vector_of_the_special_tokens() {
    let mut tiny = Tiny::plain();
    tiny.config["hidden_act"] = json!("relu");
    let mut encoder = open(tiny.write().path());
    let expected: Vec<f32> = tiny.vector(&[2, 3]).iter().map(|value| *value as f32).collect();
    for text in ["", "  \n ", "\0", "\u{fffd}"] {
        assert_eq!(common::count(&encoder, text), 0);
        assert!(largest_difference(&embed(&mut encoder, &[text])[0], &expected) < 2e-5);
    }
}

#[test]
fn between_is_called_in_all_work_and_stops_it() {
    let tiny = Tiny::new(16, 2, 1, 24, 200);
    let mut encoder = open(tiny.write().path());
    let text = "a ".repeat(198); // 200 tokens: two fit into a run of 512
    let texts = vec![text.as_str(); 7];
    let mut calls = 0;
    let all = encoder.embed(&texts, &mut || {
        calls += 1;
        true
    });
    // For each text; for each of the 4 runs in its one layer, three times for its one block and once for each of two heads
    // of each text.
    assert_eq!((all.expect("embedded").len(), calls), (7, 7 + 4 * 3 + 7 * 2));
    for stop_at in 1..=calls {
        let mut calls = 0;
        let stopped = encoder.embed(&texts, &mut || {
            calls += 1;
            calls < stop_at
        });
        assert!(matches!(stopped, Err(EncoderError::Interrupted)));
        assert_eq!(calls, stop_at);
    }
    assert_eq!(embed(&mut encoder, &texts).len(), 7, "the encoder can be used after an interrupt");
}

/// Some bytes of text between two calls of `between`, whatever the text looks like: time and memory of the tokenizer grow
/// with them.
#[test]
fn between_is_called_every_few_kilobytes_of_any_text() {
    let mut encoder = open(Tiny::plain().write().path());
    for text in ["a.", "x", "wing ", " ", "\u{301}", "日本", "。", "e\u{301}", "[MASK]", "\0", "\u{200b}", "[["] {
        let long = text.repeat((1 << 18) / text.len());
        let mut calls = 0;
        let mut pulse = || {
            calls += 1;
            true
        };
        encoder.count_tokens(&long, &mut pulse).expect("counted");
        // A word of letters alone is passed over without tokenizing it.
        let least = if text == "x" { 1 } else { long.len() / (8 << 10) };
        assert!((least..=4 * (least + 2)).contains(&calls), "{text:?}: {calls} calls");
        let mut left = 3;
        let stopped = encoder.count_tokens(&long, &mut || {
            left -= 1;
            left > 0
        });
        assert!(matches!(stopped, Err(EncoderError::Interrupted)) || text == "x", "{text:?}");
        embed(&mut encoder, &[&long]);
    }
}

/// Texts of random parts go to the tokenizer as a whole and in pieces: where there is a blank, punctuation or an ideograph every
/// few kilobytes, and where one word is longer than that, the tokens are the same.
#[test]
fn pieces_have_the_tokens_of_the_whole() {
    const PARTS: [&str; 24] = [
        " ",
        "\n",
        "\t",
        "  ",
        "wing",
        "wings",
        "flowing",
        "a",
        "é",
        "e\u{301}",
        "Σ",
        "x.y",
        "...",
        "日本語",
        "。",
        "[MASK]",
        "[",
        "]",
        "[SEP]",
        "\u{200b}",
        "\0",
        "ﬁ",
        "-",
        "'s",
    ];
    let mut state = 7u64;
    let mut below = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    for (lowercase, strip, blank_every) in [(true, None, 20), (false, Some(false), 200), (true, Some(false), 2000)] {
        let mut tiny = Tiny::plain();
        tiny.tokenizer["normalizer"]["lowercase"] = json!(lowercase);
        tiny.tokenizer["normalizer"]["strip_accents"] = json!(strip);
        let dir = tiny.write();
        let encoder = open(dir.path());
        let mut tokenizer =
            tokenizers::Tokenizer::from_file(dir.path().join("tokenizer.json")).expect("the tokenizer opens");
        tokenizer.with_truncation(None).expect("truncation is switched off").with_padding(None);
        for case in 0..30 {
            let mut text = String::new();
            while text.len() < 40_000 {
                text.push_str(PARTS[below(PARTS.len())]);
                if below(blank_every) == 0 {
                    text.push(' ');
                }
                if case % 3 == 0 && below(3000) == 0 {
                    text.push_str(&"x".repeat(below(30_000)));
                    text.push(' ');
                }
            }
            let whole = tokenizer.encode_fast(text.as_str(), false).expect("tokenized").len();
            assert_eq!(common::count(&encoder, &text), whole, "case {case}, a blank every {blank_every}");
        }
    }
}

#[test]
fn a_text_longer_than_a_run_is_taken_alone() {
    let tiny = Tiny::new(8, 2, 1, 8, 3000);
    let mut encoder = open(tiny.write().path());
    let long = "a b c wing flows ".repeat(400);
    let vectors = embed(&mut encoder, &["a", &long, "a"]);
    assert!(vectors[0] == vectors[2]);
    assert!(vectors[1] == embed(&mut encoder, &[&long])[0]);
}

#[test]
fn other_architectures_are_refused() {
    let with = |name: &str, value: Value| {
        let mut tiny = Tiny::plain();
        tiny.config[name] = value;
        tiny
    };
    assert_refused(&with("model_type", json!("roberta")), &["config.json", "model_type is \"roberta\""]);
    assert_refused(&with("model_type", Value::Null), &["model_type is none"]);
    assert_refused(&with("architectures", json!(["NewModel"])), &["architecture \"NewModel\""]);
    assert_refused(&with("position_embedding_type", json!("relative_key")), &["\"relative_key\""]);
    assert_refused(&with("hidden_act", json!("swish")), &["hidden_act is \"swish\""]);
    assert_refused(&with("is_decoder", json!(true)), &["is_decoder"]);
    assert_refused(&with("num_attention_heads", json!(3)), &["hidden_size 16", "num_attention_heads 3"]);
    assert_refused(&with("num_attention_heads", json!(0)), &["num_attention_heads is 0"]);
    assert_refused(&with("hidden_size", json!(-16)), &["config.json", "line"]);
    assert_refused(&with("hidden_size", json!("16")), &["config.json"]);
    assert_refused(&with("layer_norm_eps", json!(-1.0)), &["layer_norm_eps is -1"]);
    let mut tiny = Tiny::plain();
    tiny.config.as_object_mut().expect("an object").remove("intermediate_size");
    assert_refused(&tiny, &["config.json", "intermediate_size"]);
}

#[test]
fn sizes_that_the_weights_do_not_have_are_refused() {
    let with = |name: &str, value: u64| {
        let mut tiny = Tiny::plain();
        tiny.config[name] = json!(value);
        tiny
    };
    assert_refused(&with("intermediate_size", 25), &["encoder.layer.0.intermediate.dense", "[25, 16]", "[24, 16]"]);
    assert_refused(&with("vocab_size", 17), &["word_embeddings", "[17, 16]"]);
    assert_refused(&with("num_hidden_layers", 3), &["model.safetensors", "no tensor", "encoder.layer.2."]);
    assert_refused(&with("max_position_embeddings", u64::MAX / 2), &["position_embeddings"]);
    assert_refused(&with("intermediate_size", u64::MAX / 2), &["intermediate.dense"]);
    assert_refused(&with("num_hidden_layers", u64::MAX / 2), &["encoder.layer.2."]);
    let mut tiny = Tiny::plain();
    tiny.config["hidden_size"] = json!(1u64 << 62);
    tiny.pooling = None;
    assert_refused(&tiny, &["[", "4611686018427387904"]);
}

#[test]
fn pooling_and_modules_that_are_not_computed_are_refused() {
    let pooling = |value: Value| Tiny { pooling: Some(value), ..Tiny::plain() };
    assert_refused(&pooling(json!({"pooling_mode_max_tokens": true})), &["1_Pooling", "pooling is max"]);
    assert_refused(
        &pooling(json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})),
        &["pooling is cls + mean"],
    );
    assert_refused(&pooling(json!({"pooling_mode": "lasttoken"})), &["pooling is lasttoken"]);
    assert_refused(&pooling(json!({})), &["no pooling mode"]);
    assert_refused(
        &pooling(json!({"pooling_mode_mean_tokens": true, "word_embedding_dimension": 15})),
        &["word_embedding_dimension is 15", "16"],
    );
    let dense =
        json!([{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Dense"}]);
    assert_refused(&Tiny { modules: Some(dense), ..Tiny::plain() }, &["modules.json", "models.Dense"]);
}

#[test]
fn a_missing_file_is_named() {
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let dir = Tiny::plain().write();
        fs::remove_file(dir.path().join(name)).expect("removed");
        assert!(refusal_in(dir.path()).contains(name));
    }
    assert!(refusal_in(Path::new("/no/such/model")).contains("/no/such/model"));
}

#[test]
fn a_missing_tensor_is_named() {
    let names: Vec<String> = Tiny::plain().tensors.keys().cloned().collect();
    for name in names {
        let mut tiny = Tiny::plain();
        tiny.tensors.remove(&name);
        assert_refused(&tiny, &["model.safetensors", &name]);
    }
}

#[test]
fn a_tensor_of_integers_is_refused() {
    let dir = Tiny::plain().write();
    let path = dir.path().join("model.safetensors");
    let file = fs::read(&path).expect("read");
    let at = file.windows(3).position(|bytes| bytes == b"F32").expect("a type");
    let mut changed = file.clone();
    changed[at..at + 3].copy_from_slice(b"I32");
    fs::write(&path, changed).expect("written");
    let message = refusal_in(dir.path());
    assert!(message.contains("has type I32"), "{message}");
}

#[test]
fn tokenizers_that_do_not_fit_are_refused() {
    let mut tiny = Tiny::plain();
    tiny.tokenizer["model"]["vocab"]["zebra"] = json!(16);
    assert_refused(&tiny, &["tokenizer.json", "17 tokens", "vocab_size is 16"]);

    let mut tiny = Tiny::plain();
    tiny.tokenizer["post_processor"] = Value::Null;
    assert_refused(&tiny, &["no special tokens"]);

    let mut tiny = Tiny::plain();
    tiny.sentence = Some(json!({"max_seq_length": 2}));
    assert_refused(&tiny, &["2 special tokens", "limit is 2"]);

    let mut tiny = Tiny::plain();
    tiny.tokenizer["model"]["unk_token"] = json!("<unk>");
    assert_refused(&tiny, &["tokenizer.json"]);

    let mut tiny = Tiny::plain();
    tiny.tokenizer["model"] = json!({"type": "Mystery"});
    assert_refused(&tiny, &["tokenizer.json"]);
}

#[test]
fn a_token_that_the_model_does_not_have_is_an_error_and_no_panic() {
    let mut tiny = Tiny::plain();
    // The count fits, the number does not.
    tiny.tokenizer["model"]["vocab"].as_object_mut().expect("an object").remove("y");
    tiny.tokenizer["model"]["vocab"]["zebra"] = json!(4000);
    let dir = tiny.write();
    let message = match Encoder::open(dir.path()) {
        Err(error) => error.to_string(),
        Ok(mut encoder) => encoder.embed(&["zebra"], &mut || true).expect_err("there is no such row").to_string(),
    };
    assert!(message.contains("4000"), "{message}");
}

#[test]
fn damaged_weights_give_an_error_and_not_a_vector() {
    for value in [f32::NAN, f32::INFINITY] {
        let names: Vec<String> = Tiny::plain().tensors.keys().cloned().collect();
        for name in names {
            let mut tiny = Tiny::plain();
            tiny.tensors.get_mut(&name).expect("a tensor").values.fill(value);
            let dir = tiny.write();
            // What is not used (the second token type, positions beyond the text) may be anything, but these are all used.
            let result = open(dir.path()).embed(&["a b"], &mut || true);
            assert!(matches!(result, Err(EncoderError::NotFinite { .. })), "{name} {value}");
        }
    }
    // All zero: the vector has no direction.
    let mut tiny = Tiny::plain();
    tiny.tensors.values_mut().for_each(|tensor| tensor.values.fill(0.0));
    let result = open(tiny.write().path()).embed(&["a b"], &mut || true);
    assert!(matches!(result, Err(EncoderError::NotFinite { .. })));
}

#[test]
fn weights_cut_at_any_length_are_refused() {
    let dir = Tiny::plain().write();
    let path = dir.path().join("model.safetensors");
    let file = fs::read(&path).expect("read");
    let header = 8 + u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    let lengths = (0..40).chain((40..file.len()).step_by(97)).chain([header - 1, header, header + 1, file.len() - 1]);
    for length in lengths {
        fs::write(&path, &file[..length]).expect("written");
        let message = refusal_in(dir.path());
        assert!(message.contains("model.safetensors"), "{length}: {message}");
    }
    let mut longer = file.clone();
    longer.push(0);
    fs::write(&path, longer).expect("written");
    assert!(refusal_in(dir.path()).contains("model.safetensors"), "a byte too many");
}

#[test]
fn garbage_instead_of_weights_is_refused() {
    let dir = Tiny::plain().write();
    let path = dir.path().join("model.safetensors");
    let mut huge = u64::MAX.to_le_bytes().to_vec();
    huge.extend([b'{'; 100]);
    let mut beyond = 1000u64.to_le_bytes().to_vec();
    beyond.extend(b"{}");
    let mut empty = 2u64.to_le_bytes().to_vec();
    empty.extend(b"{}");
    for bytes in [vec![0; 1000], vec![0xff; 1000], b"<!DOCTYPE html><html></html>".to_vec(), huge, beyond, empty] {
        fs::write(&path, bytes).expect("written");
        assert!(refusal_in(dir.path()).contains("model.safetensors"));
    }
}

/// Changes every byte of a file's beginning to several values. Whatever comes of it, an error or a model, it is no
/// panic, and a model that opens can be used.
fn change_each_byte(dir: &Path, name: &str, bytes: usize) {
    let path = dir.join(name);
    let file = fs::read(&path).expect("read");
    for at in 0..bytes.min(file.len()) {
        for value in [file[at] ^ 1, file[at] ^ 0x10, b'9', b'"', 0xff] {
            let mut changed = file.clone();
            changed[at] = value;
            fs::write(&path, changed).expect("written");
            if let Ok(mut encoder) = Encoder::open(dir) {
                let _ = encoder.embed(&["a wing flows ."], &mut || true);
            }
        }
    }
    fs::write(&path, file).expect("written");
}

#[test]
fn no_changed_byte_makes_a_panic() {
    let dir = Tiny::new(4, 2, 1, 4, 12).write();
    prepare(dir.path()).expect("prepared");
    change_each_byte(dir.path(), "model.safetensors", 600);
    change_each_byte(dir.path(), "model.ragent", 128);
    change_each_byte(dir.path(), "config.json", 1000);
    change_each_byte(dir.path(), "1_Pooling/config.json", 200);
    change_each_byte(dir.path(), "sentence_bert_config.json", 200);
    change_each_byte(dir.path(), "tokenizer.json", 3000);
}

#[test]
fn json_files_cut_at_any_length_are_refused() {
    for name in ["config.json", "tokenizer.json", "1_Pooling/config.json", "sentence_bert_config.json"] {
        let dir = Tiny::plain().write();
        let path = dir.path().join(name);
        let file = fs::read(&path).expect("read");
        for length in (0..file.len()).step_by(7) {
            fs::write(&path, &file[..length]).expect("written");
            assert!(refusal_in(dir.path()).contains(name), "{name} of {length} bytes");
        }
    }
}

#[test]
fn a_prepared_file_that_does_not_fit_is_not_used() {
    let tiny = Tiny::plain();
    let dir = tiny.write();
    let expected = embed(&mut open(dir.path()), &["a wing flows"]);
    assert!(verify_prepared(dir.path()).expect("read").is_some_and(|reason| reason.contains("model.ragent")));

    let path = prepare(dir.path()).expect("prepared");
    assert_eq!(verify_prepared(dir.path()).expect("read"), None);
    let good = fs::read(&path).expect("read");
    let check = |bytes: &[u8], words: &str| {
        fs::write(&path, bytes).expect("written");
        let mut encoder = open(dir.path());
        let reason = encoder.unprepared().expect("the prepared file is not used").to_owned();
        assert!(reason.contains(words), "\"{reason}\" does not say \"{words}\"");
        assert!(embed(&mut encoder, &["a wing flows"]) == expected);
    };
    check(&[], "0 bytes");
    check(&good[..127], "127 bytes");
    check(&good[..good.len() - 1], "bytes, expected");
    check(&[&good[..], &[0]].concat(), "bytes, expected");
    check(&[b"X", &good[1..]].concat(), "not a prepared file");
    check(&[&good[..8], &[9], &good[9..]].concat(), "version 9");
    for at in 12..128 {
        let mut changed = good.clone();
        changed[at] ^= 0x40;
        check(&changed, "not made from");
    }

    // Another model of the same sizes: the file that was prepared for the first must not be used for it.
    fs::write(&path, &good).expect("written");
    let mut other = Tiny::plain();
    other.tensors.get_mut("encoder.layer.1.output.dense.weight").expect("a tensor").values[0] += 0.5;
    other.write_to(dir.path());
    assert!(open(dir.path()).unprepared().is_some_and(|reason| reason.contains("not made from")));
    assert!(verify_prepared(dir.path()).expect("read").is_some());
}

#[test]
fn a_prepared_file_with_a_changed_number_is_found_out_by_verify() {
    let dir = Tiny::plain().write();
    let path = prepare(dir.path()).expect("prepared");
    let mut file = fs::read(&path).expect("read");
    let last = file.len() - 1;
    for at in [128, last / 2, last] {
        file[at] ^= 1;
        fs::write(&path, &file).expect("written");
        let reason = verify_prepared(dir.path()).expect("read").expect("it is damaged");
        assert!(reason.contains("damaged"), "{reason}");
        file[at] ^= 1;
    }
}

#[test]
fn preparing_leaves_only_the_file() {
    let dir = Tiny::plain().write();
    let count = || fs::read_dir(dir.path()).expect("listed").count();
    let before = count();
    prepare(dir.path()).expect("prepared");
    prepare(dir.path()).expect("prepared again");
    assert_eq!(count(), before + 1);

    let mut tiny = Tiny::plain();
    tiny.tensors.remove("encoder.layer.1.output.dense.weight");
    let dir = tiny.write();
    let message = prepare(dir.path()).expect_err("a tensor is missing").to_string();
    assert!(message.contains("encoder.layer.1.output.dense.weight"), "{message}");
    assert!(!dir.path().join("model.ragent").exists());
}
