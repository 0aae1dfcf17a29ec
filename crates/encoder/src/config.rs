//! What the files of a model folder say about the model, checked.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::EncoderError;
use crate::file;
use crate::prefixes::Prefixes;

/// The activation between the two linear layers of a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x/2 · (1 + erf(x/√2))`
    Gelu,
    /// The tanh approximation, `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`
    GeluTanh,
    /// `max(x, 0)`
    Relu,
}

/// How the vectors of a text's tokens become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens, special ones included.
    Mean,
    /// The first token's vector.
    Cls,
}

/// What a model of a folder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// A text becomes a vector: a sentence encoder, see [`crate::Encoder`].
    Embed(Pooling),
    /// A query and a passage become a score: a cross-encoder, see [`crate::CrossEncoder`].
    Rerank,
}

/// The sizes and choices of a BERT encoder.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub hidden: usize,
    pub heads: usize,
    pub layers: usize,
    pub inner: usize,
    pub vocabulary: usize,
    pub positions: usize,
    pub token_types: usize,
    pub epsilon: f32,
    pub activation: Activation,
    pub task: Task,
    /// What stands before a text that is embedded, by the model's settings.
    pub prefixes: Prefixes,
    /// The longest sequence the model takes, special tokens included.
    pub max_tokens: usize,
    /// Whether texts are to be lower-cased before they reach the tokenizer.
    pub lowercase: bool,
}

impl Config {
    /// Reads `config.json` and, where they exist, `modules.json`, `1_Pooling/config.json`,
    /// `sentence_bert_config.json`, `tokenizer_config.json` and what has the prefixes.
    pub(crate) fn read(dir: &Path) -> Result<Config, EncoderError> {
        let bert = BertFile::read(&dir.join("config.json"))?;
        let mut prefixes = Prefixes::default();
        let task = if bert.ranks(&dir.join("config.json"))? {
            Task::Rerank
        } else {
            check_modules(&dir.join("modules.json"))?;
            prefixes = Prefixes::read(dir)?;
            Task::Embed(read_pooling(&dir.join("1_Pooling").join("config.json"), bert.hidden_size, &prefixes)?)
        };
        let sentence = read_sentence(&dir.join("sentence_bert_config.json"))?;
        let limit = match sentence.max_seq_length {
            Some(limit) => limit,
            None => read_tokenizer_limit(&dir.join("tokenizer_config.json"))?.unwrap_or(usize::MAX),
        };
        Ok(Config {
            hidden: bert.hidden_size,
            heads: bert.num_attention_heads,
            layers: bert.num_hidden_layers,
            inner: bert.intermediate_size,
            vocabulary: bert.vocab_size,
            positions: bert.max_position_embeddings,
            token_types: bert.type_vocab_size,
            epsilon: bert.layer_norm_eps,
            activation: bert.activation(&dir.join("config.json"))?,
            task,
            prefixes,
            max_tokens: limit.min(bert.max_position_embeddings),
            lowercase: sentence.do_lower_case,
        })
    }

    pub(crate) fn head(&self) -> usize {
        self.hidden / self.heads
    }
}

/// `config.json`, in the names that BERT configurations use. The defaults are those of the BERT architecture.
#[derive(Deserialize)]
struct BertFile {
    model_type: String,
    #[serde(default)]
    architectures: Option<Vec<String>>,
    hidden_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "default_epsilon")]
    layer_norm_eps: f32,
    hidden_act: String,
    #[serde(default)]
    position_embedding_type: Option<String>,
    #[serde(default)]
    is_decoder: bool,
    /// The classes of a model that classifies, by number.
    #[serde(default)]
    id2label: Option<BTreeMap<String, IgnoredAny>>,
}

fn two() -> usize {
    2
}

fn default_epsilon() -> f32 {
    1e-12
}

impl BertFile {
    fn read(path: &Path) -> Result<BertFile, EncoderError> {
        let unsupported = |reason: String| EncoderError::Unsupported { path: path.to_owned(), reason };

        // The architecture is looked at first: other kinds of model lack the fields that BERT's configuration has, and
        // "missing field `hidden_act`" would not say what is wrong.
        let kind: KindFile = file::read_json(path)?;
        if kind.model_type.as_deref() != Some("bert") {
            let found = kind.model_type.map_or("none".to_owned(), |kind| format!("\"{kind}\""));
            return Err(unsupported(format!("model_type is {found}, only \"bert\" is supported")));
        }
        let config: BertFile = file::read_json(path)?;
        debug_assert_eq!(config.model_type, "bert");
        for architecture in config.architectures.iter().flatten() {
            if !architecture.starts_with("Bert") {
                return Err(unsupported(format!("architecture \"{architecture}\" is not a BERT encoder")));
            }
        }
        if config.is_decoder {
            return Err(unsupported("is_decoder is true, only encoders are supported".to_owned()));
        }
        if let Some(kind) = config.position_embedding_type.as_deref().filter(|kind| *kind != "absolute") {
            return Err(unsupported(format!("position_embedding_type is \"{kind}\", only \"absolute\" is supported")));
        }
        for (name, value) in [
            ("hidden_size", config.hidden_size),
            ("num_attention_heads", config.num_attention_heads),
            ("num_hidden_layers", config.num_hidden_layers),
            ("intermediate_size", config.intermediate_size),
            ("vocab_size", config.vocab_size),
            ("max_position_embeddings", config.max_position_embeddings),
            ("type_vocab_size", config.type_vocab_size),
        ] {
            if value == 0 {
                return Err(unsupported(format!("{name} is 0")));
            }
        }
        if !config.hidden_size.is_multiple_of(config.num_attention_heads) {
            return Err(unsupported(format!(
                "hidden_size {} is not a multiple of num_attention_heads {}",
                config.hidden_size, config.num_attention_heads
            )));
        }
        if !(config.layer_norm_eps.is_finite() && config.layer_norm_eps >= 0.0) {
            return Err(unsupported(format!("layer_norm_eps is {}", config.layer_norm_eps)));
        }
        Ok(config)
    }

    /// Whether the model has a head that gives a pair of texts a score. A head of several classes is refused.
    fn ranks(&self, path: &Path) -> Result<bool, EncoderError> {
        let kind = "BertForSequenceClassification";
        if !self.architectures.iter().flatten().any(|architecture| architecture == kind) {
            return Ok(false);
        }
        match self.id2label.as_ref().map(BTreeMap::len) {
            Some(labels) if labels != 1 => Err(EncoderError::Unsupported {
                path: path.to_owned(),
                reason: format!("the model has {labels} labels, a cross-encoder that ranks has 1"),
            }),
            _ => Ok(true),
        }
    }

    fn activation(&self, path: &Path) -> Result<Activation, EncoderError> {
        match self.hidden_act.as_str() {
            "gelu" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            "relu" => Ok(Activation::Relu),
            other => Err(EncoderError::Unsupported {
                path: path.to_owned(),
                reason: format!("hidden_act is \"{other}\", supported are gelu, gelu_new, gelu_pytorch_tanh and relu"),
            }),
        }
    }
}

/// The one field of `config.json` that every architecture has.
#[derive(Deserialize)]
struct KindFile {
    #[serde(default)]
    model_type: Option<String>,
}

/// One line of `modules.json`, the pipeline a sentence-transformers model consists of.
#[derive(Deserialize)]
struct ModuleFile {
    #[serde(rename = "type")]
    kind: String,
}

/// A further module (a dense projection, say) would change the vectors, so it is refused rather than left out.
/// `Normalize` makes no difference here: vectors are always normalised.
fn check_modules(path: &Path) -> Result<(), EncoderError> {
    let modules: Vec<ModuleFile> = file::read_json_if_exists(path)?.unwrap_or_default();
    for module in modules {
        let name = module.kind.rsplit('.').next().unwrap_or_default();
        if !matches!(name, "Transformer" | "Pooling" | "Normalize") {
            return Err(EncoderError::Unsupported {
                path: path.to_owned(),
                reason: format!("module \"{}\" is not supported", module.kind),
            });
        }
    }
    Ok(())
}

/// `1_Pooling/config.json`. Newer files name the mode, older ones have a flag for each.
#[derive(Deserialize)]
struct PoolingFile {
    #[serde(default)]
    word_embedding_dimension: Option<usize>,
    #[serde(default)]
    pooling_mode: Option<String>,
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
    #[serde(default)]
    pooling_mode_max_tokens: bool,
    #[serde(default)]
    pooling_mode_mean_sqrt_len_tokens: bool,
    #[serde(default)]
    pooling_mode_weightedmean_tokens: bool,
    #[serde(default)]
    pooling_mode_lasttoken: bool,
    /// Whether the tokens of a prefix count in the mean.
    #[serde(default)]
    include_prompt: Option<bool>,
}

impl PoolingFile {
    fn modes(&self) -> Vec<&str> {
        let mut modes: Vec<&str> = self.pooling_mode.as_deref().into_iter().collect();
        for (flag, mode) in [
            (self.pooling_mode_cls_token, "cls"),
            (self.pooling_mode_mean_tokens, "mean"),
            (self.pooling_mode_max_tokens, "max"),
            (self.pooling_mode_mean_sqrt_len_tokens, "mean_sqrt_len_tokens"),
            (self.pooling_mode_weightedmean_tokens, "weightedmean"),
            (self.pooling_mode_lasttoken, "lasttoken"),
        ] {
            if flag && !modes.contains(&mode) {
                modes.push(mode);
            }
        }
        modes
    }
}

/// Without the file the mode is the mean over all tokens: that is what sentence-transformers adds to a bare encoder,
/// and what most models that ship without the file were trained with.
fn read_pooling(path: &Path, hidden: usize, prefixes: &Prefixes) -> Result<Pooling, EncoderError> {
    let unsupported = |reason: String| EncoderError::Unsupported { path: path.to_owned(), reason };
    let Some(pooling) = file::read_json_if_exists::<PoolingFile>(path)? else {
        return Ok(Pooling::Mean);
    };
    if let Some(width) = pooling.word_embedding_dimension.filter(|width| *width != hidden) {
        return Err(unsupported(format!("word_embedding_dimension is {width}, but hidden_size is {hidden}")));
    }
    match pooling.modes().as_slice() {
        ["mean"] if pooling.include_prompt == Some(false) && !prefixes.are_empty() => {
            Err(unsupported("include_prompt is false, but the model has prefixes, which count here".to_owned()))
        }
        ["mean"] => Ok(Pooling::Mean),
        ["cls"] => Ok(Pooling::Cls),
        [] => Err(unsupported("no pooling mode is chosen, supported are mean and cls".to_owned())),
        modes => Err(unsupported(format!("pooling is {}, supported are mean or cls", modes.join(" + ")))),
    }
}

/// `sentence_bert_config.json`.
#[derive(Deserialize, Default)]
struct SentenceFile {
    #[serde(default)]
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

fn read_sentence(path: &Path) -> Result<SentenceFile, EncoderError> {
    Ok(file::read_json_if_exists(path)?.unwrap_or_default())
}

/// The one field of `tokenizer_config.json` that matters here. Where a model has no limit the field holds 10³⁰, so
/// it is read as a floating-point number.
#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    model_max_length: Option<f64>,
}

fn read_tokenizer_limit(path: &Path) -> Result<Option<usize>, EncoderError> {
    let limit = file::read_json_if_exists::<TokenizerFile>(path)?.and_then(|file| file.model_max_length);
    // The cast saturates, which is what "no limit" wants.
    Ok(limit.filter(|limit| *limit >= 1.0).map(|limit| limit as usize))
}
