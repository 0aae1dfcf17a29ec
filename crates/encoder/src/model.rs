//! The forward pass of a BERT encoder over texts laid end to end, without padding.

use std::path::{Path, PathBuf};

use crate::EncoderError;
use crate::config::{Config, Pooling};
use crate::kernels::{Isa, LANES, Layout, Matrix, MatrixMut, PANEL};
use crate::prepared::{self, Prepared};
use crate::weights::{Floats, Rows, WORD_EMBEDDINGS, Weights};

/// Most tokens that go through the layers together, unless a single text has more.
pub(crate) const RUN_TOKENS: usize = 512;

/// Tokens whose inner (feed-forward) numbers are kept at a time: few enough to stay in the processor's cache.
const BLOCK_TOKENS: usize = 96;

/// Tokens whose attention scores are kept at a time.
const SCORE_TOKENS: usize = 24;

/// The tokens of a text, or of two: those from `second` on are the second text's. Of one text, `second` is the end.
pub(crate) struct Sequence {
    pub ids: Vec<u32>,
    pub second: usize,
}

impl Sequence {
    /// The tokens of a single text.
    pub(crate) fn single(ids: Vec<u32>) -> Sequence {
        Sequence { second: ids.len(), ids }
    }
}

/// A model, ready to compute.
pub(crate) struct Model {
    config: Config,
    isa: Isa,
    words: Rows,
    positions: Rows,
    /// The embeddings of token types 0 and 1: the first text of a pair, or the only one, and the second. A model without a
    /// second type has the first one twice.
    token_types: [Vec<f32>; 2],
    embedding_norm: Norm,
    layers: Vec<Layer>,
    /// Why the prepared file is not in use, if it is not.
    unprepared: Option<String>,
}

struct Layer {
    query_key_value: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    expand: Linear,
    contract: Linear,
    output_norm: Norm,
}

/// The gain and bias of a layer normalisation.
struct Norm {
    gain: Vec<f32>,
    bias: Vec<f32>,
}

/// A linear layer. Its weights are one matrix, or several whose outputs stand side by side.
struct Linear {
    inputs: usize,
    weights: Vec<(Floats, usize)>,
    layout: Layout,
    bias: Vec<f32>,
}

impl Linear {
    fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// `out = a · weights`, without the bias.
    fn multiply(&self, isa: Isa, a: &[f32], panel: &mut [f32], out: &mut [f32]) {
        let rows = a.len() / self.inputs;
        let mut column = 0;
        for (weights, outputs) in &self.weights {
            isa.linear(
                Matrix::new(a, rows, self.inputs, self.inputs),
                weights.as_slice(),
                self.layout,
                panel,
                MatrixMut::new(&mut out[column..], rows, *outputs, self.outputs()),
            );
            column += outputs;
        }
    }
}

/// The names of the tensors of one layer's linear layers, in the order of the prepared file.
const LINEARS: [&[&str]; 4] = [
    &["attention.self.query", "attention.self.key", "attention.self.value"],
    &["attention.output.dense"],
    &["intermediate.dense"],
    &["output.dense"],
];

fn layer_name(layer: usize, name: &str) -> String {
    format!("encoder.layer.{layer}.{name}")
}

impl Model {
    /// Finds and checks every tensor of the model, in the prepared file if `use_prepared` and there is a fitting one.
    pub(crate) fn open(dir: &Path, config: Config, use_prepared: bool) -> Result<Model, EncoderError> {
        let weights = Weights::open(&dir.join("model.safetensors"))?;
        let (hidden, positions, types) = (config.hidden, config.positions, config.token_types);
        let rows = |name, rows| weights.rows(name, rows, hidden);
        // Nothing is allocated before a tensor in the file has shown that the size is real.
        let types = rows("embeddings.token_type_embeddings.weight", types)?;
        let token_types = [0, 1].map(|index: usize| {
            let mut row = vec![0.0; hidden];
            types.read(index.min(types.len() - 1), &mut row);
            row
        });
        let mut model = Model {
            isa: Isa::best(),
            words: rows(WORD_EMBEDDINGS, config.vocabulary)?,
            positions: rows("embeddings.position_embeddings.weight", positions)?,
            token_types,
            embedding_norm: norm(&weights, "embeddings.LayerNorm", hidden)?,
            layers: Vec::new(),
            unprepared: None,
            config,
        };
        // The tensors in the weights file are checked even where the prepared file replaces them: it was made from them.
        for index in 0..model.config.layers {
            model.layers.push(layer(&weights, &model.config, index)?);
        }
        if !use_prepared {
            model.unprepared = Some("it was not asked for".to_owned());
            return Ok(model);
        }
        match Prepared::open(dir, &model.config, &weights) {
            Ok(prepared) => model.use_prepared(&prepared),
            Err(reason) => model.unprepared = Some(reason),
        }
        Ok(model)
    }

    fn use_prepared(&mut self, prepared: &Prepared) {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let linears =
                [&mut layer.query_key_value, &mut layer.attention_output, &mut layer.expand, &mut layer.contract];
            for (matrix, linear) in linears.into_iter().enumerate() {
                linear.weights = vec![(prepared.matrix(&self.config, index, matrix), linear.outputs())];
                linear.layout = Layout::Panels;
            }
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Why the prepared file is not in use, if it is not.
    pub(crate) fn unprepared(&self) -> Option<&str> {
        self.unprepared.as_deref()
    }

    /// Tokens whose inner (feed-forward) numbers are kept at a time. Without the prepared file each panel of weights is
    /// rearranged for each block, which pays only over many tokens.
    fn block_tokens(&self) -> usize {
        if self.unprepared.is_none() { BLOCK_TOKENS } else { RUN_TOKENS }
    }

    /// How many word embeddings there are; every token id must be less.
    pub(crate) fn vocabulary(&self) -> usize {
        self.words.len()
    }

    /// Passes some texts through the layers and gives the states of each, a row of `hidden` numbers a token, to `each`.
    ///
    /// Each text has at least one token and at most `positions`, and each id is less than `vocabulary()`. `between` is called
    /// before each block of tokens in each layer, and each head of each text; `None` where it says no.
    pub(crate) fn encode(
        &self,
        texts: &[Sequence],
        work: &mut Work,
        between: &mut dyn FnMut() -> bool,
        each: &mut dyn FnMut(&[f32]),
    ) -> Option<()> {
        let tokens = texts.iter().map(|text| text.ids.len()).sum();
        let hidden = self.config.hidden;
        work.resize(&self.config, tokens, self.block_tokens());
        self.look_up(texts, work);
        for layer in &self.layers {
            self.attend(layer, texts, work, between)?;
            self.feed_forward(layer, work, between)?;
        }
        let mut start = 0;
        for text in texts {
            let end = start + text.ids.len() * hidden;
            each(&work.states[start..end]);
            start = end;
        }
        Some(())
    }

    /// The sum of word, position and token type embeddings, normalised, into `work.states`.
    fn look_up(&self, texts: &[Sequence], work: &mut Work) {
        let hidden = self.config.hidden;
        let places = texts.iter().flat_map(|text| {
            let second = text.second;
            text.ids.iter().enumerate().map(move |(at, id)| (at, *id, &self.token_types[usize::from(at >= second)]))
        });
        let mut position_row = vec![0.0; hidden];
        for ((position, id, token_type), state) in places.zip(work.states.chunks_exact_mut(hidden)) {
            self.words.read(id as usize, state);
            self.positions.read(position, &mut position_row);
            for (place, token_type) in position_row.iter_mut().zip(token_type) {
                *place += token_type;
            }
            let norm = &self.embedding_norm;
            self.isa.add_and_normalize(state, &position_row, &norm.gain, &norm.bias, self.config.epsilon);
        }
    }

    /// Self-attention within each text: `states = norm(states + attention(states))`.
    fn attend(
        &self,
        layer: &Layer,
        texts: &[Sequence],
        work: &mut Work,
        between: &mut dyn FnMut() -> bool,
    ) -> Option<()> {
        let hidden = self.config.hidden;
        let wide = self.block_tokens() * hidden;
        for (states, out) in work.states.chunks(wide).zip(work.query_key_value.chunks_mut(3 * wide)) {
            go_on(between)?;
            layer.query_key_value.multiply(self.isa, states, &mut work.panel, out);
            self.isa.add_bias(out, &layer.query_key_value.bias);
        }
        let mut start = 0;
        for text in texts {
            for head in 0..self.config.heads {
                go_on(between)?;
                self.attend_head(start, text.ids.len(), head, work);
            }
            start += text.ids.len();
        }
        for (states, context) in work.states.chunks_mut(wide).zip(work.context.chunks(wide)) {
            go_on(between)?;
            let out = &mut work.block[..states.len()];
            layer.attention_output.multiply(self.isa, context, &mut work.panel, out);
            self.isa.add_bias(out, &layer.attention_output.bias);
            let norm = &layer.attention_norm;
            self.isa.add_and_normalize(states, out, &norm.gain, &norm.bias, self.config.epsilon);
        }
        Some(())
    }

    /// One head of one text's attention, from `work.query_key_value` into `work.context`.
    fn attend_head(&self, start: usize, tokens: usize, head: usize, work: &mut Work) {
        let (hidden, size) = (self.config.hidden, self.config.head());
        let stride = 3 * hidden;
        let padded = tokens.next_multiple_of(2 * LANES);
        let text = &work.query_key_value[start * stride..(start + tokens) * stride];
        let (queries, keys, values) =
            (&text[head * size..], &text[hidden + head * size..], &text[2 * hidden + head * size..]);

        let transposed = &mut work.keys[..size * padded];
        transpose(keys, tokens, stride, transposed, padded);
        let scale = 1.0 / (size as f32).sqrt();
        for first in (0..tokens).step_by(SCORE_TOKENS) {
            let rows = SCORE_TOKENS.min(tokens - first);
            let scores = &mut work.scores[..rows * padded];
            self.isa.multiply(
                Matrix::new(&queries[first * stride..], rows, size, stride),
                Matrix::new(transposed, size, padded, padded),
                MatrixMut::new(scores, rows, padded, padded),
            );
            self.isa.softmax(scores, padded, tokens, scale);
            self.isa.multiply(
                Matrix::new(scores, rows, tokens, padded),
                Matrix::new(values, tokens, size, stride),
                MatrixMut::new(&mut work.context[(start + first) * hidden + head * size..], rows, size, hidden),
            );
        }
    }

    /// `states = norm(states + contract(activation(expand(states))))`
    fn feed_forward(&self, layer: &Layer, work: &mut Work, between: &mut dyn FnMut() -> bool) -> Option<()> {
        let (hidden, inner) = (self.config.hidden, self.config.inner);
        for states in work.states.chunks_mut(self.block_tokens() * hidden) {
            go_on(between)?;
            let expanded = &mut work.inner[..states.len() / hidden * inner];
            layer.expand.multiply(self.isa, states, &mut work.panel, expanded);
            self.isa.add_bias_and_activate(expanded, &layer.expand.bias, self.config.activation);
            let out = &mut work.block[..states.len()];
            layer.contract.multiply(self.isa, expanded, &mut work.panel, out);
            self.isa.add_bias(out, &layer.contract.bias);
            let norm = &layer.output_norm;
            self.isa.add_and_normalize(states, out, &norm.gain, &norm.bias, self.config.epsilon);
        }
        Some(())
    }
}

/// `None` where the caller wants the work to stop.
fn go_on(between: &mut dyn FnMut() -> bool) -> Option<()> {
    between().then_some(())
}

/// Writes the prepared file of a model folder.
pub(crate) fn prepare(dir: &Path, config: Config) -> Result<PathBuf, EncoderError> {
    let model = Model::open(dir, config, false)?;
    let weights = Weights::open(&dir.join("model.safetensors"))?;
    prepared::write(dir, &model.config, &weights, |index, matrix| {
        let layer = &model.layers[index];
        let linear = [&layer.query_key_value, &layer.attention_output, &layer.expand, &layer.contract][matrix];
        linear.weights.iter().flat_map(|(values, _)| values.as_slice()).copied().collect()
    })
}

/// Compares the prepared file of a model folder with its checksum; the reason why it cannot be used, if it cannot.
pub(crate) fn verify(dir: &Path, config: Config) -> Result<Option<String>, EncoderError> {
    let model = Model::open(dir, config, false)?;
    let weights = Weights::open(&dir.join("model.safetensors"))?;
    Ok(prepared::verify(dir, &model.config, &weights).err())
}

fn norm(weights: &Weights, name: &str, width: usize) -> Result<Norm, EncoderError> {
    Ok(Norm {
        gain: weights.vector(&format!("{name}.weight"), width)?,
        bias: weights.vector(&format!("{name}.bias"), width)?,
    })
}

fn layer(weights: &Weights, config: &Config, index: usize) -> Result<Layer, EncoderError> {
    let linear = |matrix: usize| -> Result<Linear, EncoderError> {
        let (inputs, outputs) = prepared::matrices(config)[matrix];
        let each = outputs / LINEARS[matrix].len();
        let mut linear = Linear { inputs, weights: Vec::new(), layout: Layout::Rows, bias: Vec::new() };
        for name in LINEARS[matrix] {
            let name = layer_name(index, name);
            linear.weights.push((weights.floats(&format!("{name}.weight"), &[each, inputs])?, each));
            linear.bias.extend(weights.vector(&format!("{name}.bias"), each)?);
        }
        Ok(linear)
    };
    Ok(Layer {
        query_key_value: linear(0)?,
        attention_output: linear(1)?,
        attention_norm: norm(weights, &layer_name(index, "attention.output.LayerNorm"), config.hidden)?,
        expand: linear(2)?,
        contract: linear(3)?,
        output_norm: norm(weights, &layer_name(index, "output.LayerNorm"), config.hidden)?,
    })
}

/// Turns `rows` rows at `stride` into columns: `out` has as many rows as `out.len() / width`, each `width` long, of which
/// the numbers after `rows` become 0.
fn transpose(values: &[f32], rows: usize, stride: usize, out: &mut [f32], width: usize) {
    for (column, out) in out.chunks_exact_mut(width).enumerate() {
        let (used, rest) = out.split_at_mut(rows);
        for (row, out) in used.iter_mut().enumerate() {
            *out = values[row * stride + column];
        }
        rest.fill(0.0);
    }
}

/// One vector for a text, scaled to length 1 unless its numbers are not finite.
pub(crate) fn pool(pooling: Pooling, states: &[f32], hidden: usize) -> Vec<f32> {
    let mut vector = match pooling {
        Pooling::Cls => states[..hidden].to_vec(),
        // The sum will do: the mean is a multiple of it.
        Pooling::Mean => {
            let mut sum = vec![0.0; hidden];
            for state in states.chunks_exact(hidden) {
                for (sum, value) in sum.iter_mut().zip(state) {
                    *sum += value;
                }
            }
            sum
        }
    };
    let length = vector.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
    for value in &mut vector {
        *value = (f64::from(*value) / length) as f32;
    }
    vector
}

/// The numbers between the layers, kept from call to call.
///
/// For T tokens, hidden size H, inner size I and heads of size D it takes
/// `4·(5·T·H + B·(H + I) + (T + 31)·(D + 24) + 32·max(H, I))` bytes, B being the tokens of a block: 96, or without the
/// prepared file 512. That is 5.0 MB for MiniLM-L6 at the 512 tokens of a full run, or 8.2 MB without the prepared file.
#[derive(Default)]
pub(crate) struct Work {
    states: Vec<f32>,
    query_key_value: Vec<f32>,
    context: Vec<f32>,
    block: Vec<f32>,
    inner: Vec<f32>,
    keys: Vec<f32>,
    scores: Vec<f32>,
    panel: Vec<f32>,
}

impl Work {
    fn resize(&mut self, config: &Config, tokens: usize, block: usize) {
        let hidden = config.hidden;
        let block = tokens.min(block);
        let padded = tokens.next_multiple_of(2 * LANES);
        for (buffer, len) in [
            (&mut self.states, tokens * hidden),
            (&mut self.query_key_value, tokens * 3 * hidden),
            (&mut self.context, tokens * hidden),
            (&mut self.block, block * hidden),
            (&mut self.inner, block * config.inner),
            (&mut self.keys, padded * config.head()),
            (&mut self.scores, padded * SCORE_TOKENS),
            (&mut self.panel, PANEL * hidden.max(config.inner)),
        ] {
            buffer.resize(len, 0.0);
        }
    }

    /// Gives back what a single text longer than a run has made the buffers grow beyond a run's need.
    pub(crate) fn shrink(&mut self, config: &Config) {
        if self.states.capacity() > RUN_TOKENS * config.hidden {
            *self = Work::default();
        }
    }
}
