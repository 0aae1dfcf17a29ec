//! What the tests share: where the real weights are, and the fixture.
#![allow(dead_code)]

pub mod tiny;

use std::path::PathBuf;

use ragent_encoder::Encoder;
use serde::Deserialize;

/// The folder of the real all-MiniLM-L6-v2. Tests that need it fail without it: a skipped test proves nothing.
pub fn minilm() -> PathBuf {
    let models = match std::env::var_os("RAGENT_MODEL_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/models")),
    };
    let dir = models.join("all-MiniLM-L6-v2");
    assert!(
        dir.join("model.safetensors").exists(),
        "the weights of all-MiniLM-L6-v2 are not in {}: run `make setup`, or set RAGENT_MODEL_DIR",
        dir.display()
    );
    dir
}

/// One line of `fixtures/minilm.jsonl`.
#[derive(Deserialize)]
pub struct Reference {
    pub name: String,
    pub text: String,
    pub tokens: usize,
    pub vector: Vec<f32>,
}

pub fn references() -> Vec<Reference> {
    include_str!("../fixtures/minilm.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of the fixture is valid"))
        .collect()
}

pub fn count(encoder: &Encoder, text: &str) -> usize {
    encoder.count_tokens(text, &mut || true).expect("counted")
}

pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
