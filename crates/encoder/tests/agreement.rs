//! The real model against vectors that were computed independently (`fixtures/make_reference.py`).

mod common;

use common::{cosine, largest_difference, minilm, references};
use ragent_encoder::Encoder;

fn embed_one(encoder: &mut Encoder, text: &str) -> Vec<f32> {
    encoder.embed(&[text], &mut || true).expect("the text is embedded").remove(0)
}

#[test]
fn vectors_agree_with_the_reference() {
    let mut encoder = Encoder::open(&minilm()).expect("the model opens");
    let references = references();
    assert!(references.len() >= 40);
    let texts: Vec<&str> = references.iter().map(|reference| reference.text.as_str()).collect();
    let vectors = encoder.embed(&texts, &mut || true).expect("the texts are embedded");
    let mut worst = 1.0f64;
    for (reference, vector) in references.iter().zip(&vectors) {
        let cosine = cosine(vector, &reference.vector);
        worst = worst.min(cosine);
        assert!(cosine >= 0.999_999, "{}: cosine {cosine}", reference.name);
        let difference = largest_difference(vector, &reference.vector);
        assert!(difference < 5e-6, "{}: a number differs by {difference}", reference.name);
    }
    println!("lowest cosine {worst:.9}");
}

#[test]
fn token_counts_agree_with_the_reference() {
    let encoder = Encoder::open(&minilm()).expect("the model opens");
    for reference in references() {
        assert_eq!(common::count(&encoder, &reference.text), reference.tokens, "{}", reference.name);
    }
}

#[test]
fn limits_are_those_of_the_model() {
    let encoder = Encoder::open(&minilm()).expect("the model opens");
    assert_eq!(encoder.dimensions(), 384);
    assert_eq!(encoder.max_tokens(), 256);
}

#[test]
fn the_vector_of_a_text_does_not_depend_on_its_neighbours() {
    let mut encoder = Encoder::open(&minilm()).expect("the model opens");
    let references = references();
    let texts: Vec<&str> = references.iter().map(|reference| reference.text.as_str()).collect();
    let together = encoder.embed(&texts, &mut || true).expect("the texts are embedded");
    let reversed: Vec<&str> = texts.iter().rev().copied().collect();
    let mut backwards = encoder.embed(&reversed, &mut || true).expect("the texts are embedded");
    backwards.reverse();
    for (index, text) in texts.iter().enumerate() {
        let alone = embed_one(&mut encoder, text);
        for other in [&together[index], &backwards[index]] {
            assert!(alone == *other, "{}: not the same bits", references[index].name);
        }
    }
}
