//! A small BERT with random weights: its files, and its forward pass written down naively in double precision.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

/// How numbers are written into the weights file.
#[derive(Clone, Copy, PartialEq)]
pub enum Type {
    F32,
    F16,
    Bf16,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::F32 => "F32",
            Type::F16 => "F16",
            Type::Bf16 => "BF16",
        }
    }

    fn write(self, value: f32, out: &mut Vec<u8>) {
        match self {
            Type::F32 => out.extend(value.to_le_bytes()),
            // The weights are made such that all of them are exact in every type: see `weight`.
            Type::F16 => {
                let bits = value.to_bits();
                let exponent = (bits >> 23 & 0xff) as i32 - 112;
                let half = if value == 0.0 { 0 } else { (exponent as u32) << 10 | (bits >> 13 & 0x3ff) };
                out.extend(((bits >> 16 & 0x8000 | half) as u16).to_le_bytes());
            }
            Type::Bf16 => out.extend(((value.to_bits() >> 16) as u16).to_le_bytes()),
        }
    }
}

pub struct Tensor {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// The files of a model folder, to be changed before they are written.
pub struct Tiny {
    pub config: Value,
    pub pooling: Option<Value>,
    pub sentence: Option<Value>,
    pub tokenizer_config: Option<Value>,
    pub modules: Option<Value>,
    /// `ragent.json` and `config_sentence_transformers.json`
    pub settings: Option<Value>,
    pub prompts: Option<Value>,
    pub tokenizer: Value,
    pub tensors: BTreeMap<String, Tensor>,
    pub weight_type: Type,
    pub prefix: &'static str,
    /// Bytes of padding in the header, to shift the tensors to any alignment.
    pub header_padding: usize,
}

pub const WORDS: [&str; 16] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "wing", "flow", "##s", "##ing", ".", ",", "é", "x", "y"];

/// A number between -1 and 1 in steps of 1/64, never within a half's subnormal range: exact in all three types.
fn weight(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    ((*state >> 33) % 129) as f32 / 64.0 - 1.0
}

impl Tiny {
    pub fn new(hidden: usize, heads: usize, layers: usize, inner: usize, positions: usize) -> Tiny {
        let vocabulary = WORDS.len();
        let mut state = (hidden * 31 + inner) as u64 | 1;
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: Vec<usize>| {
            let count = shape.iter().product();
            let values = (0..count).map(|_| weight(&mut state)).collect();
            tensors.insert(name, Tensor { shape, values });
        };
        let norm = |name: &str, add: &mut dyn FnMut(String, Vec<usize>)| {
            add(format!("{name}.weight"), vec![hidden]);
            add(format!("{name}.bias"), vec![hidden]);
        };
        add("embeddings.word_embeddings.weight".into(), vec![vocabulary, hidden]);
        add("embeddings.position_embeddings.weight".into(), vec![positions, hidden]);
        add("embeddings.token_type_embeddings.weight".into(), vec![2, hidden]);
        norm("embeddings.LayerNorm", &mut add);
        for layer in 0..layers {
            let at = format!("encoder.layer.{layer}.");
            for (name, outputs, inputs) in [
                ("attention.self.query", hidden, hidden),
                ("attention.self.key", hidden, hidden),
                ("attention.self.value", hidden, hidden),
                ("attention.output.dense", hidden, hidden),
                ("intermediate.dense", inner, hidden),
                ("output.dense", hidden, inner),
            ] {
                add(format!("{at}{name}.weight"), vec![outputs, inputs]);
                add(format!("{at}{name}.bias"), vec![outputs]);
            }
            norm(&format!("{at}attention.output.LayerNorm"), &mut add);
            norm(&format!("{at}output.LayerNorm"), &mut add);
        }
        Tiny {
            config: json!({
                "model_type": "bert", "architectures": ["BertModel"], "hidden_size": hidden,
                "num_attention_heads": heads, "num_hidden_layers": layers, "intermediate_size": inner,
                "vocab_size": vocabulary, "max_position_embeddings": positions, "type_vocab_size": 2,
                "layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute",
            }),
            pooling: Some(json!({"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": true})),
            sentence: Some(json!({"max_seq_length": positions, "do_lower_case": false})),
            tokenizer_config: None,
            modules: None,
            settings: None,
            prompts: None,
            tokenizer: tokenizer(),
            tensors,
            weight_type: Type::F32,
            prefix: "",
            header_padding: 0,
        }
    }

    /// With gains about 1 and small biases, as trained models have them: what a text says then reaches the end, and two texts
    /// have quite different vectors.
    pub fn lively(mut self) -> Tiny {
        for (name, tensor) in &mut self.tensors {
            let (shift, scale) = match name {
                name if name.contains("LayerNorm.weight") => (1.0, 0.25),
                name if name.contains("LayerNorm.bias") => (0.0, 0.125),
                name if name.starts_with("encoder.") && name.ends_with(".weight") => (0.0, 0.5),
                name if name.starts_with("encoder.") => (0.0, 0.125),
                _ => (0.0, 1.0),
            };
            tensor.values.iter_mut().for_each(|value| *value = shift + *value * scale);
        }
        self
    }

    /// A cross-encoder: a sentence encoder's parts with a pooler and one label, named as such models have it.
    pub fn cross(hidden: usize, heads: usize, layers: usize, inner: usize, positions: usize) -> Tiny {
        let mut tiny = Tiny::new(hidden, heads, layers, inner, positions);
        let mut state = 7;
        for (name, shape, scale) in [
            ("pooler.dense.weight", vec![hidden, hidden], 0.5),
            ("pooler.dense.bias", vec![hidden], 0.125),
            ("classifier.weight", vec![1, hidden], 1.0),
            ("classifier.bias", vec![1], 1.0),
        ] {
            let values = (0..shape.iter().product()).map(|_| weight(&mut state) * scale).collect();
            tiny.tensors.insert(name.to_owned(), Tensor { shape, values });
        }
        tiny.config["architectures"] = json!(["BertForSequenceClassification"]);
        tiny.config["id2label"] = json!({"0": "LABEL_0"});
        tiny.prefix = "bert.";
        (tiny.pooling, tiny.sentence) = (None, None);
        tiny.tokenizer["post_processor"]["pair"] = json!([
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
        ]);
        tiny
    }

    /// Most tests need nothing but some model.
    pub fn plain() -> Tiny {
        Tiny::new(16, 2, 2, 24, 20)
    }

    pub fn write(&self) -> TempDir {
        let dir = tempfile::tempdir().expect("a temporary folder is made");
        self.write_to(dir.path());
        dir
    }

    pub fn write_to(&self, dir: &Path) {
        let write = |name: &str, value: &Value| fs::write(dir.join(name), value.to_string()).expect("written");
        write("config.json", &self.config);
        write("tokenizer.json", &self.tokenizer);
        fs::create_dir_all(dir.join("1_Pooling")).expect("made");
        for (name, value) in [
            ("1_Pooling/config.json", &self.pooling),
            ("sentence_bert_config.json", &self.sentence),
            ("tokenizer_config.json", &self.tokenizer_config),
            ("modules.json", &self.modules),
            ("ragent.json", &self.settings),
            ("config_sentence_transformers.json", &self.prompts),
        ] {
            if let Some(value) = value {
                write(name, value);
            }
        }
        fs::write(dir.join("model.safetensors"), self.safetensors()).expect("written");
    }

    /// The weights file, written by hand from the format's description.
    pub fn safetensors(&self) -> Vec<u8> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, tensor) in &self.tensors {
            let start = data.len();
            for value in &tensor.values {
                self.weight_type.write(*value, &mut data);
            }
            header.insert(
                // The head stands beside what the prefix names.
                if name.starts_with("classifier.") { name.clone() } else { format!("{}{name}", self.prefix) },
                json!({"dtype": self.weight_type.name(), "shape": tensor.shape, "data_offsets": [start, data.len()]}),
            );
        }
        let mut header = Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8) + self.header_padding, b' ');
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(data);
        file
    }

    fn size(&self, name: &str) -> usize {
        self.config[name].as_u64().expect("a size") as usize
    }

    fn tensor(&self, name: &str) -> Vec<f64> {
        self.tensors[name].values.iter().map(|value| f64::from(*value)).collect()
    }

    fn linear(&self, x: &[Vec<f64>], name: &str) -> Vec<Vec<f64>> {
        let (weights, bias) = (self.tensor(&format!("{name}.weight")), self.tensor(&format!("{name}.bias")));
        x.iter()
            .map(|x| {
                let row = |output: usize| x.iter().zip(&weights[output * x.len()..]).map(|(x, w)| x * w).sum::<f64>();
                bias.iter().enumerate().map(|(output, bias)| row(output) + bias).collect()
            })
            .collect()
    }

    fn norm(&self, x: &[Vec<f64>], y: &[Vec<f64>], name: &str) -> Vec<Vec<f64>> {
        let (gain, bias) = (self.tensor(&format!("{name}.weight")), self.tensor(&format!("{name}.bias")));
        let epsilon = self.config["layer_norm_eps"].as_f64().expect("a number");
        x.iter()
            .zip(y)
            .map(|(x, y)| {
                let sums: Vec<f64> = x.iter().zip(y).map(|(x, y)| x + y).collect();
                let mean = sums.iter().sum::<f64>() / sums.len() as f64;
                let variance = sums.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / sums.len() as f64;
                let scaled = sums.iter().map(|x| (x - mean) / (variance + epsilon).sqrt());
                scaled.zip(gain.iter().zip(&bias)).map(|(x, (gain, bias))| x * gain + bias).collect()
            })
            .collect()
    }

    fn activate(&self, x: f64) -> f64 {
        let tanh = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
        match self.config["hidden_act"].as_str() {
            // Within 5e-4 of the exact form, whose own test is beside the kernels; these tests use the others.
            Some("gelu_new" | "gelu_pytorch_tanh") => tanh(x),
            Some("relu") => x.max(0.0),
            other => panic!("the reference does not compute {other:?}"),
        }
    }

    /// The vector of some token ids, by the definition of the architecture.
    pub fn vector(&self, ids: &[usize]) -> Vec<f64> {
        let (hidden, heads) = (self.size("hidden_size"), self.size("num_attention_heads"));
        let row = |name: &str, index: usize| self.tensor(name)[index * hidden..(index + 1) * hidden].to_vec();
        let words: Vec<_> = ids.iter().map(|id| row("embeddings.word_embeddings.weight", *id)).collect();
        let places: Vec<Vec<f64>> = (0..ids.len())
            .map(|at| {
                let kind = row("embeddings.token_type_embeddings.weight", 0);
                row("embeddings.position_embeddings.weight", at).iter().zip(kind).map(|(a, b)| a + b).collect()
            })
            .collect();
        let mut x = self.norm(&words, &places, "embeddings.LayerNorm");
        for layer in 0..self.size("num_hidden_layers") {
            let at = format!("encoder.layer.{layer}.");
            let [q, k, v] =
                ["query", "key", "value"].map(|name| self.linear(&x, &format!("{at}attention.self.{name}")));
            let mut context = vec![vec![0.0; hidden]; ids.len()];
            for head in 0..heads {
                let part = head * hidden / heads..(head + 1) * hidden / heads;
                for (query, context) in q.iter().zip(&mut context) {
                    let dot = |key: &Vec<f64>| part.clone().map(|at| query[at] * key[at]).sum::<f64>();
                    let scores: Vec<f64> = k.iter().map(|key| dot(key) / (part.len() as f64).sqrt()).collect();
                    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
                    let total: f64 = powers.iter().sum();
                    for at in part.clone() {
                        context[at] = powers.iter().zip(&v).map(|(power, value)| power / total * value[at]).sum();
                    }
                }
            }
            let y = self.linear(&context, &format!("{at}attention.output.dense"));
            x = self.norm(&x, &y, &format!("{at}attention.output.LayerNorm"));
            let mut inner = self.linear(&x, &format!("{at}intermediate.dense"));
            inner.iter_mut().flatten().for_each(|x| *x = self.activate(*x));
            let y = self.linear(&inner, &format!("{at}output.dense"));
            x = self.norm(&x, &y, &format!("{at}output.LayerNorm"));
        }
        let cls = self.pooling.as_ref().is_some_and(|pooling| pooling["pooling_mode_cls_token"] == true);
        let pooled: Vec<f64> = if cls {
            x[0].clone()
        } else {
            (0..hidden).map(|at| x.iter().map(|x| x[at]).sum::<f64>() / x.len() as f64).collect()
        };
        let length = pooled.iter().map(|x| x * x).sum::<f64>().sqrt();
        pooled.iter().map(|x| x / length).collect()
    }
}

/// A BERT tokenizer over [`WORDS`] that, like the one of the real model, asks for truncation and padding.
fn tokenizer() -> Value {
    let vocabulary: serde_json::Map<String, Value> =
        WORDS.iter().enumerate().map(|(id, word)| (word.to_string(), json!(id))).collect();
    let special = |id: usize| {
        json!({"id": id, "content": WORDS[id], "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    json!({
        "version": "1.0",
        "truncation": {"max_length": 5, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                    "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [special(0), special(1), special(2), special(3)],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": false, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                               "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}},
        },
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocabulary},
    })
}
