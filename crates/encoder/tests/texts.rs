//! Texts of all kinds through the real model: long, exotic, and long and exotic.

mod common;

use std::fs;
use std::path::Path;

use common::{minilm, references};
use ragent_encoder::{Encoder, prepare};
use serde_json::json;
use tokenizers::Tokenizer;

fn open() -> Encoder {
    Encoder::open(&minilm()).expect("the model opens")
}

fn embed(encoder: &mut Encoder, texts: &[&str]) -> Vec<Vec<f32>> {
    encoder.embed(texts, &mut || true).expect("the texts are embedded")
}

/// Text of about `bytes` bytes from the fixture's texts, all scripts mixed.
fn mixed(bytes: usize) -> String {
    let texts: Vec<String> = references().into_iter().map(|reference| reference.text).collect();
    let mut text = String::with_capacity(bytes + 4096);
    for (index, part) in texts.iter().cycle().enumerate() {
        if text.len() >= bytes {
            return text;
        }
        text.push_str(part);
        text.push_str(["\n\n", " ", "\t", "\u{3000}", "\u{a0}"][index % 5]);
    }
    unreachable!("the cycle does not end")
}

#[test]
fn a_megabyte_of_text_has_the_vector_of_its_beginning() {
    let mut encoder = open();
    let text = mixed(1 << 20);
    let vectors = embed(&mut encoder, &[&text, &text[..text.floor_char_boundary(60_000)]]);
    assert!(vectors[0] == vectors[1]);
}

#[test]
fn a_long_word_after_which_the_text_goes_on_hides_nothing() {
    let mut encoder = open();
    // One unknown token of 300 kB, and then words that count.
    let long = "x".repeat(300_000);
    let (one, other) = (format!("{long} wing"), format!("{long} bird"));
    let vectors = embed(&mut encoder, &[&one, &other]);
    assert!(vectors[0] != vectors[1]);
    assert_eq!(common::count(&encoder, &one), 2);
    // Much that is no token at all, before the first word.
    let (one, other) = (format!("{}wing", " \u{200b}".repeat(100_000)), "wing".to_owned());
    let vectors = embed(&mut encoder, &[&one, &other]);
    assert!(vectors[0] == vectors[1]);
}

/// The crate cuts a long text before it tokenizes it, and counts in pieces. Here the whole goes to the tokenizer.
#[test]
fn cutting_a_text_before_tokenizing_changes_nothing() {
    let mut tokenizer = Tokenizer::from_file(minilm().join("tokenizer.json")).expect("the tokenizer opens");
    tokenizer.with_truncation(None).expect("truncation is switched off").with_padding(None);
    let mut encoder = open();
    let limit = encoder.max_tokens() - 2;
    let text = mixed(300_000);
    let starts: Vec<usize> = (0..40).map(|n| text.floor_char_boundary(n * 6_131)).collect();
    for start in starts {
        let text = &text[start..];
        let encoding = tokenizer.encode(text, false).expect("tokenized");
        assert_eq!(common::count(&encoder, text), encoding.len());
        // The text up to the last token that counts: too short to be cut, and with the same tokens.
        let kept = &text[..encoding.get_offsets()[limit - 1].1];
        let vectors = embed(&mut encoder, &[text, kept]);
        assert!(vectors[0] == vectors[1], "from byte {start}");
    }
}

#[test]
fn exotic_texts_are_embedded() {
    let mut encoder = open();
    let every_plane: String = (0..=0x10ffff).step_by(251).filter_map(char::from_u32).collect();
    let marks = "\u{301}".repeat(5000);
    for text in [
        "",
        "\0",
        "\0\0\0 nul \0",
        "\u{301}",
        &marks,
        &format!("a{marks}b"),
        "\u{202e}right to left\u{202c}",
        "\u{feff}",
        "\u{10ffff}\u{10fffe}",
        "👨‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "ﬁ ﷽ Ǆ İ ẞ",
        "\r\n\u{85}\u{2028}\u{2029}",
        &every_plane,
        &every_plane.chars().rev().collect::<String>(),
        &"[SEP]".repeat(2000),
    ] {
        let vector = embed(&mut encoder, &[text]).remove(0);
        let length: f32 = vector.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5);
        common::count(&encoder, text);
    }
}

#[test]
fn related_texts_are_nearer_than_unrelated_ones() {
    let vectors = embed(
        &mut open(),
        &["How do I reset my password?", "I forgot my login credentials", "The wing stalls at a high angle of attack"],
    );
    let near = common::cosine(&vectors[0], &vectors[1]);
    let far = common::cosine(&vectors[0], &vectors[2]);
    assert!(near > far + 0.3, "{near} {far}");
}

/// A copy of the real model's folder, its large files linked.
fn copy_of_minilm() -> tempfile::TempDir {
    let (from, dir) = (minilm(), tempfile::tempdir().expect("a temporary folder is made"));
    fs::create_dir(dir.path().join("1_Pooling")).expect("made");
    for name in ["config.json", "tokenizer.json", "sentence_bert_config.json", "1_Pooling/config.json"] {
        fs::copy(from.join(name), dir.path().join(name)).expect("copied");
    }
    let weights = fs::canonicalize(from.join("model.safetensors")).expect("it exists");
    std::os::unix::fs::symlink(weights, dir.path().join("model.safetensors")).expect("linked");
    dir
}

fn with_limit(dir: &Path, limit: usize) -> Encoder {
    let path = dir.join("sentence_bert_config.json");
    fs::write(path, json!({"max_seq_length": limit}).to_string()).expect("written");
    Encoder::open(dir).expect("the model opens")
}

#[test]
fn prepared_weights_give_the_same_bits() {
    let dir = copy_of_minilm();
    let references = references();
    let texts: Vec<&str> = references.iter().map(|reference| reference.text.as_str()).collect();
    let mut encoder = Encoder::open(dir.path()).expect("the model opens");
    assert!(encoder.unprepared().is_some());
    let unprepared = embed(&mut encoder, &texts);
    prepare(dir.path()).expect("the model is prepared");
    let mut encoder = Encoder::open(dir.path()).expect("the model opens");
    assert_eq!(encoder.unprepared(), None);
    assert!(embed(&mut encoder, &texts) == unprepared);
}

#[test]
fn the_limit_can_be_lowered_and_raised_to_the_positions_of_the_model() {
    let dir = copy_of_minilm();
    let text = mixed(20_000);
    let mut vectors = Vec::new();
    for limit in [3, 64, 256, 512] {
        let mut encoder = with_limit(dir.path(), limit);
        assert_eq!(encoder.max_tokens(), limit);
        vectors.push(embed(&mut encoder, &[&text]).remove(0));
    }
    vectors.dedup();
    assert_eq!(vectors.len(), 4, "each limit gives another vector");
    assert_eq!(with_limit(dir.path(), 600).max_tokens(), 512);
}
