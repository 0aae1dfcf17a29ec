//! Model files that somebody else wrote, or that a disk damaged: they open and give vectors, or are refused. Nothing panics.

mod common;

use std::fs;

use common::tiny::Tiny;
use proptest::prelude::*;
use ragent_encoder::{Encoder, prepare, verify_prepared};

const FILES: [&str; 5] =
    ["config.json", "tokenizer.json", "model.safetensors", "model.ragent", "sentence_bert_config.json"];

/// So many cases, or as many as `PROPTEST_CASES` says.
fn config(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn a_damaged_file_is_refused_or_harmless(
        file in prop::sample::select(&FILES[..]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in prop::option::of(any::<prop::sample::Index>()),
        at_the_head: bool,
    ) {
        let dir = Tiny::plain().write();
        prepare(dir.path()).expect("a sound model is prepared");
        let path = dir.path().join(file);
        let mut bytes = fs::read(&path).expect("the file is there");
        for (place, byte) in damage {
            // What is read first decides about everything else.
            let reach = if at_the_head { bytes.len().min(256) } else { bytes.len() };
            bytes[place.index(reach)] = byte;
        }
        if let Some(length) = length {
            bytes.truncate(length.index(bytes.len() + 1));
        }
        fs::write(&path, bytes).expect("written");
        let _ = verify_prepared(dir.path());
        if let Ok(mut encoder) = Encoder::open(dir.path()) {
            let _ = encoder.embed(&["a b c", "wings é"], &mut || true);
        }
    }
}
