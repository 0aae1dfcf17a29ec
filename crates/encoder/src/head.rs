//! The head of a cross-encoder: from the states of a pair to its score.

use std::path::Path;

use crate::EncoderError;
use crate::config::Config;
use crate::weights::{Floats, Weights};

/// `classifier · tanh(pooler · state + bias) + bias`, of the first token's state.
pub(crate) struct Head {
    pooler: Floats,
    pooler_bias: Vec<f32>,
    classifier: Vec<f32>,
    bias: f32,
}

impl Head {
    /// Finds and checks the head's tensors.
    pub(crate) fn open(dir: &Path, config: &Config) -> Result<Head, EncoderError> {
        let weights = Weights::open(&dir.join("model.safetensors"))?;
        let hidden = config.hidden;
        Ok(Head {
            pooler: weights.floats("pooler.dense.weight", &[hidden, hidden])?,
            pooler_bias: weights.vector("pooler.dense.bias", hidden)?,
            classifier: weights.head_vector("classifier.weight", &[1, hidden])?,
            bias: weights.head_vector("classifier.bias", &[1])?.iter().sum(),
        })
    }

    /// The score of a pair, from the states of its tokens. Sums are taken in double precision and in one order.
    pub(crate) fn score(&self, states: &[f32]) -> f32 {
        let state = &states[..self.pooler_bias.len()];
        let dot = |row: &[f32]| row.iter().zip(state).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let rows = self.pooler.as_slice().chunks_exact(state.len());
        let pooled = rows.zip(&self.pooler_bias).map(|(row, bias)| (dot(row) + f64::from(*bias)).tanh());
        let score: f64 = pooled.zip(&self.classifier).map(|(value, weight)| value * f64::from(*weight)).sum();
        (score + f64::from(self.bias)) as f32
    }
}
