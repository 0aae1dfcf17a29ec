//! The loops where the time goes, compiled for each instruction set and chosen when the program runs.
//!
//! [`portable`] holds each loop once, in a form that the compiler turns into vector instructions. The macro below compiles
//! it for AVX-512, for AVX2 with FMA, and for whatever the target has anyway (NEON on ARM, SSE2 on x86-64).
//! This module and the mapping of files are the only places of the crate with `unsafe`.
//!
//! Every loop computes a row's numbers in an order that does not depend on the other rows.
#![allow(unsafe_code)]

mod portable;

use crate::config::Activation;

/// An instruction set that the loops are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Baseline,
}

impl Isa {
    /// Those that this processor has, best first.
    pub(crate) fn available() -> Vec<Isa> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
            {
                all.push(Isa::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(Isa::Avx2);
            }
        }
        all.push(Isa::Baseline);
        all
    }

    /// The best that this processor has.
    pub(crate) fn best() -> Isa {
        Isa::available()[0]
    }
}

/// Compiles the loops of `portable` for each instruction set, and gives [`Isa`] a method for each that picks one.
macro_rules! for_each_isa {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(target_arch = "x86_64")]
        mod avx512 {
            use super::*;
            $(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            pub(super) fn $name($($arg: $type),*) { portable::$name::<Avx512>($($arg),*) })*
        }
        #[cfg(target_arch = "x86_64")]
        mod avx2 {
            use super::*;
            $(#[target_feature(enable = "avx2,fma")]
            pub(super) fn $name($($arg: $type),*) { portable::$name::<Avx2>($($arg),*) })*
        }
        impl Isa {
            $($(#[$doc])*
            pub(crate) fn $name(self, $($arg: $type),*) {
                match self {
                    // SAFETY: `Isa::Avx512` is only made by `available`, which has checked every feature named above.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => unsafe { avx512::$name($($arg),*) },
                    // SAFETY: as above, for `Isa::Avx2`.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => unsafe { avx2::$name($($arg),*) },
                    Isa::Baseline => portable::$name::<Baseline>($($arg),*),
                }
            })*
        }
    };
}

for_each_isa! {
    /// `x = (x + add) / √(variance) · gain + bias`, normalised over each row; a row is as long as `gain`.
    fn add_and_normalize(x: &mut [f32], add: &[f32], gain: &[f32], bias: &[f32], epsilon: f32);
    /// Adds `bias` to each row of `x`.
    fn add_bias(x: &mut [f32], bias: &[f32]);
    /// Adds `bias` to each row of `x` and applies the activation.
    fn add_bias_and_activate(x: &mut [f32], bias: &[f32], activation: Activation);
    /// Softmax of `scale · x` over the first `valid` numbers of each row of `width`; those after them are overwritten
    /// with numbers that mean nothing. `width` is a multiple of [`LANES`].
    fn softmax(x: &mut [f32], width: usize, valid: usize, scale: f32);
    /// `out = a · b`, overwriting `out`.
    fn multiply(a: Matrix<'_>, b: Matrix<'_>, out: MatrixMut<'_>);
}

/// What differs between the instruction sets.
trait Target {
    /// Whether a fused multiply-add is one instruction. Where it is not, it would be a slow function call.
    const FUSED: bool;
    /// Rows and columns of the tile that `multiply` keeps in registers.
    const TILE: (usize, usize);
}

#[cfg(target_arch = "x86_64")]
struct Avx512;
#[cfg(target_arch = "x86_64")]
impl Target for Avx512 {
    const FUSED: bool = true;
    const TILE: (usize, usize) = (12, 32);
}

#[cfg(target_arch = "x86_64")]
struct Avx2;
#[cfg(target_arch = "x86_64")]
impl Target for Avx2 {
    const FUSED: bool = true;
    const TILE: (usize, usize) = (6, 16);
}

struct Baseline;
impl Target for Baseline {
    const FUSED: bool = cfg!(target_arch = "aarch64");
    const TILE: (usize, usize) = if cfg!(target_arch = "aarch64") { (6, 16) } else { (4, 8) };
}

/// Numbers that the loops work on side by side; rows of scores are padded to a multiple of this.
pub(crate) const LANES: usize = 16;

/// A matrix inside a slice: `rows` rows of `columns` numbers, each `stride` after the one before.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<'a> Matrix<'a> {
    /// Panics if the slice is too short for the matrix.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize, stride: usize) -> Matrix<'a> {
        assert_fits(values.len(), rows, columns, stride);
        Matrix { values, rows, columns, stride }
    }
}

/// A matrix inside a slice, to be written to.
pub(crate) struct MatrixMut<'a> {
    values: &'a mut [f32],
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Panics if the slice is too short for the matrix.
    pub(crate) fn new(values: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> MatrixMut<'a> {
        assert_fits(values.len(), rows, columns, stride);
        MatrixMut { values, rows, columns, stride }
    }
}

fn assert_fits(len: usize, rows: usize, columns: usize, stride: usize) {
    let needed = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
    assert!(columns <= stride && needed <= len, "{rows}×{columns} (stride {stride}) does not fit in {len} numbers");
}

/// The number of outputs of a linear layer that are computed together. Prepared files are written in panels of this
/// width: another width is another version of their format.
pub(crate) const PANEL: usize = 32;

/// How the numbers of the weights of a linear layer lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One row for each output, as safetensors files have it.
    Rows,
    /// [`PANEL`] outputs at a time (the last time those that are left), and of these one row for each input, as
    /// prepared files have it. The weights are then read in the order of their use.
    Panels,
}

/// Rearranges the weights of some outputs, given as rows of `inputs` numbers, as a panel: `panel[input][output]`.
pub(crate) fn fill_panel(rows: &[f32], inputs: usize, panel: &mut [f32]) {
    let width = rows.len() / inputs;
    for (input, panel) in panel.chunks_exact_mut(width).enumerate() {
        for (output, value) in panel.iter_mut().enumerate() {
            *value = rows[output * inputs + input];
        }
    }
}

impl Isa {
    /// `out = a · weights` for the weights of a linear layer with `a.columns` inputs and `out.columns` outputs.
    /// `panel` has room for `PANEL * a.columns` numbers, which are overwritten if the layout is not panels already.
    ///
    /// Panics if the sizes do not fit.
    pub(crate) fn linear(self, a: Matrix<'_>, weights: &[f32], layout: Layout, panel: &mut [f32], out: MatrixMut<'_>) {
        let inputs = a.columns;
        assert_eq!(weights.len(), inputs * out.columns, "a linear layer's sizes do not fit");
        for (index, weights) in weights.chunks(PANEL * inputs).enumerate() {
            let (first, width) = (index * PANEL, weights.len() / inputs);
            let weights = match layout {
                Layout::Panels => weights,
                Layout::Rows => {
                    let panel = &mut panel[..weights.len()];
                    fill_panel(weights, inputs, panel);
                    panel
                }
            };
            self.multiply(
                a,
                Matrix::new(weights, inputs, width, width),
                MatrixMut::new(&mut out.values[first..], out.rows, width, out.stride),
            );
        }
    }
}

#[cfg(test)]
mod tests;
