//! Kinds of models and their settings: one binary, since linking the tokenizer takes longer than these tests.

#[path = "../common/mod.rs"]
mod common;

mod cross_encoder;
mod prefixes;
mod reference;
