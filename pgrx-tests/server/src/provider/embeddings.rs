//! Embeddings that mean something: hashed bags of words.
//!
//! Two texts are close when they share words. With few dimensions different words collide, so a test that looks at
//! ranking uses `embed-384`, one that looks at plumbing `embed-8`.

use serde_json::{Value, json};

use super::counters::fnv1a;

/// The default when neither the model's name nor the request says.
const DEFAULT_DIMENSIONS: usize = 384;

/// An embedding request, understood.
pub struct Asked {
    /// The texts.
    pub inputs: Vec<String>,
    /// How long the vectors shall be.
    pub dimensions: usize,
    /// The model's name.
    pub model: String,
}

impl Asked {
    /// Reads a request's body; the error is for its sender.
    pub fn read(body: &Value) -> Result<Asked, String> {
        let model = body["model"].as_str().ok_or("you must provide a model parameter")?.to_owned();
        let inputs = match &body["input"] {
            Value::String(one) => vec![one.clone()],
            Value::Array(many) => many
                .iter()
                .map(|v| v.as_str().map(str::to_owned).ok_or("every input is a string"))
                .collect::<Result<_, _>>()?,
            _ => return Err("'input' is a string or an array of strings".into()),
        };
        if inputs.is_empty() || inputs.iter().any(String::is_empty) {
            return Err("'input' must not be empty".into());
        }
        let dimensions = dimensions_in_name(&model)
            .or_else(|| body["dimensions"].as_u64().map(|n| n as usize))
            .unwrap_or_else(|| dimensions_of_known(&model));
        if dimensions == 0 {
            return Err("'dimensions' must be positive".into());
        }
        Ok(Asked { inputs, dimensions, model })
    }

    /// The vectors, in the order of the texts.
    pub fn vectors(&self) -> Vec<Vec<f32>> {
        self.inputs.iter().map(|text| embed(text, self.dimensions)).collect()
    }

    /// A response's body with these vectors.
    pub fn response(&self, vectors: &[Vec<f32>]) -> Value {
        let data: Vec<Value> = vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector}))
            .collect();
        let tokens: usize = self.inputs.iter().map(|t| t.split_whitespace().count()).sum();
        json!({
            "object": "list", "data": data, "model": self.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        })
    }
}

/// `embed-8` has 8 dimensions.
fn dimensions_in_name(model: &str) -> Option<usize> {
    model.strip_prefix("embed-")?.parse().ok()
}

/// What a well-known model gives when not asked for another size; the guides use such models.
fn dimensions_of_known(model: &str) -> usize {
    match model {
        "text-embedding-3-small" | "text-embedding-ada-002" => 1536,
        "text-embedding-3-large" => 3072,
        _ => DEFAULT_DIMENSIONS,
    }
}

/// The unit vector of a text: each word adds one at a place that its hash chooses.
pub fn embed(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0_f32; dimensions];
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).peekable();
    if words.peek().is_none() {
        vector[fnv1a(text.as_bytes()) as usize % dimensions] = 1.0;
        return vector;
    }
    for word in words {
        vector[fnv1a(word.as_bytes()) as usize % dimensions] += 1.0;
    }
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|x| *x /= length);
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn texts_that_share_words_are_closer() {
        let question = embed("how do I restore a backup", 384);
        let near = embed("Restore a backup with pg_restore.", 384);
        let far = embed("Employees receive thirty vacation days.", 384);
        assert!(cosine(&question, &near) > cosine(&question, &far) + 0.2);
    }

    #[test]
    fn vectors_have_length_one_even_of_texts_without_words() {
        for text in ["a b c", "!!!", "1 MB of text ".repeat(1000).as_str()] {
            let vector = embed(text, 8);
            assert_eq!(vector.len(), 8);
            assert!((cosine(&vector, &vector) - 1.0).abs() < 1e-5, "{text}");
        }
    }

    #[test]
    fn the_model_name_chooses_the_dimension_before_the_request_does() {
        let asked = |body: Value| Asked::read(&body).map(|a| a.dimensions);
        assert_eq!(asked(json!({"model": "embed-1536", "input": "x", "dimensions": 3})), Ok(1536));
        assert_eq!(asked(json!({"model": "other", "input": ["x"], "dimensions": 3})), Ok(3));
        assert_eq!(asked(json!({"model": "other", "input": ["x"]})), Ok(384));
        assert!(asked(json!({"model": "other", "input": ["x", ""]})).is_err());
        assert!(asked(json!({"input": "x"})).is_err());
    }
}
