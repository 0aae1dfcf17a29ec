//! The loops, each once, written so that the compiler vectorises them for the instruction set of the caller.
//!
//! Everything here is inlined into functions that are compiled for one instruction set, so there are no closures and no
//! calls that would not be inlined with it.

use super::{LANES, Matrix, MatrixMut, Target};
use crate::config::Activation;

/// `a · b + c`
#[inline(always)]
fn fma<T: Target>(a: f32, b: f32, c: f32) -> f32 {
    if T::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// `eˣ` to 2 units in the last place for x in [-87, 88]; x outside is taken to the nearest end, NaN stays NaN.
///
/// The reduction and the polynomial are those of the Cephes library's `expf`.
#[inline(always)]
fn exp<T: Target>(x: f32) -> f32 {
    // Adding 1.5·2²³ rounds to a whole number, which then stands in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // Comparisons that are false for NaN, so that it goes through.
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let shifted = fma::<T>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma::<T>(n, -0.693_359_4, x);
    let r = fma::<T>(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    p = fma::<T>(p, r, 1.398_199_9e-3);
    p = fma::<T>(p, r, 8.333_452e-3);
    p = fma::<T>(p, r, 4.166_579_6e-2);
    p = fma::<T>(p, r, 1.666_666_5e-1);
    p = fma::<T>(p, r, 0.5);
    let y = fma::<T>(p, r * r, r) + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    y * f32::from_bits(exponent << 23)
}

/// `erf(x)` with an absolute error below 5e-7: Abramowitz and Stegun, formula 7.1.26.
#[inline(always)]
fn erf<T: Target>(x: f32) -> f32 {
    let a = x.abs();
    let t = 1.0 / fma::<T>(0.327_591_1, a, 1.0);
    let mut p = 1.061_405_4;
    p = fma::<T>(p, t, -1.453_152_1);
    p = fma::<T>(p, t, 1.421_413_8);
    p = fma::<T>(p, t, -0.284_496_72);
    p = fma::<T>(p, t, 0.254_829_6);
    let tail = p * t * exp::<T>(-a * a);
    (1.0 - tail).copysign(x)
}

#[inline(always)]
fn gelu<T: Target>(x: f32) -> f32 {
    let half = 0.5 * x;
    fma::<T>(half, erf::<T>(x * std::f32::consts::FRAC_1_SQRT_2), half)
}

#[inline(always)]
fn gelu_tanh<T: Target>(x: f32) -> f32 {
    // x/2 · (1 + tanh u) is x / (1 + e⁻²ᵘ), and 2·√(2/π) is the constant.
    let u = 1.595_769 * fma::<T>(0.044_715 * x * x, x, x);
    x / (1.0 + exp::<T>(-u))
}

/// Zero for what is below it; NaN stays NaN, which `max` would hide.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
pub(super) fn add_bias<T: Target>(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len()) {
        for (value, bias) in row.iter_mut().zip(bias) {
            *value += bias;
        }
    }
}

#[inline(always)]
pub(super) fn add_bias_and_activate<T: Target>(x: &mut [f32], bias: &[f32], activation: Activation) {
    for row in x.chunks_exact_mut(bias.len()) {
        match activation {
            Activation::Gelu => {
                for (value, bias) in row.iter_mut().zip(bias) {
                    *value = gelu::<T>(*value + bias);
                }
            }
            Activation::GeluTanh => {
                for (value, bias) in row.iter_mut().zip(bias) {
                    *value = gelu_tanh::<T>(*value + bias);
                }
            }
            Activation::Relu => {
                for (value, bias) in row.iter_mut().zip(bias) {
                    *value = relu(*value + bias);
                }
            }
        }
    }
}

/// The sum of the numbers, in an order that lets `LANES` of them be added at a time.
#[inline(always)]
fn sum(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    let mut total = 0.0;
    for value in rest {
        total += value;
    }
    for lane in lanes {
        total += lane;
    }
    total
}

/// The sum of the squared distances from `mean`.
#[inline(always)]
fn squares<T: Target>(x: &[f32], mean: f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            let distance = chunk[lane] - mean;
            lanes[lane] = fma::<T>(distance, distance, lanes[lane]);
        }
    }
    let mut total = 0.0;
    for value in rest {
        let distance = value - mean;
        total = fma::<T>(distance, distance, total);
    }
    for lane in lanes {
        total += lane;
    }
    total
}

#[inline(always)]
pub(super) fn add_and_normalize<T: Target>(x: &mut [f32], add: &[f32], gain: &[f32], bias: &[f32], epsilon: f32) {
    let width = gain.len();
    for (row, add) in x.chunks_exact_mut(width).zip(add.chunks_exact(width)) {
        for (value, add) in row.iter_mut().zip(add) {
            *value += add;
        }
        let mean = sum(row) / width as f32;
        let variance = squares::<T>(row, mean) / width as f32;
        let factor = 1.0 / (variance + epsilon).sqrt();
        for ((value, gain), bias) in row.iter_mut().zip(gain).zip(bias) {
            *value = fma::<T>((*value - mean) * factor, *gain, *bias);
        }
    }
}

/// The largest of the numbers, of which there are a multiple of `LANES`; a NaN is passed over.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in x.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    let mut largest = f32::NEG_INFINITY;
    for lane in lanes {
        largest = if lane > largest { lane } else { largest };
    }
    largest
}

#[inline(always)]
pub(super) fn softmax<T: Target>(x: &mut [f32], width: usize, valid: usize, scale: f32) {
    for row in x.chunks_exact_mut(width) {
        row[valid..].fill(f32::NEG_INFINITY);
        // `scale` is positive, so no power is above 1. What stands after `valid` becomes e⁻⁸⁷, nothing beside that 1.
        let largest = largest(row);
        for value in row.iter_mut() {
            *value = exp::<T>((*value - largest) * scale);
        }
        let factor = 1.0 / sum(row);
        for value in row.iter_mut() {
            *value *= factor;
        }
    }
}

#[inline(always)]
pub(super) fn multiply<T: Target>(a: Matrix<'_>, b: Matrix<'_>, out: MatrixMut<'_>) {
    assert!(a.rows == out.rows && b.columns == out.columns && a.columns == b.rows, "a product's sizes do not fit");
    let (rows, columns) = T::TILE;
    let tiles = out.rows.div_ceil(rows);
    let mut row = 0;
    for tile in 0..tiles {
        // Tiles of nearly equal height rather than full ones and a low last one, which would be slow for its work.
        let height = out.rows / tiles + usize::from(tile < out.rows % tiles);
        let mut column = 0;
        while column < out.columns {
            let width = match out.columns - column {
                left if left >= columns => columns,
                left if left >= 8 => 8,
                _ => 1,
            };
            // SAFETY: the tile of `height` × `width` at (`row`, `column`) lies inside `out`, rows `row..row + height`
            // inside `a` and columns `column..column + width` inside `b`; the three slices hold their matrices, and
            // `out` is borrowed mutably, so it overlaps neither.
            unsafe {
                let tile = Tile {
                    depth: a.columns,
                    a: a.values.as_ptr().add(row * a.stride),
                    a_stride: a.stride,
                    b: b.values.as_ptr().add(column),
                    b_stride: b.stride,
                    out: out.values.as_mut_ptr().add(row * out.stride + column),
                    out_stride: out.stride,
                };
                tile.of_size::<T>(height, width);
            }
            column += width;
        }
        row += height;
    }
}

/// A piece of a product that is small enough to be summed up in registers.
#[derive(Clone, Copy)]
struct Tile {
    depth: usize,
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    out: *mut f32,
    out_stride: usize,
}

impl Tile {
    /// # Safety
    /// `a` has `height` rows of `depth` readable numbers, `b` has `depth` rows of `width`, `out` has `height` rows of
    /// `width` writable ones, each at its stride, and `out` overlaps neither.
    #[inline(always)]
    unsafe fn of_size<T: Target>(self, height: usize, width: usize) {
        // SAFETY: handed on from the caller; `ROWS` is `height` or a part of it and `COLUMNS` is `width`.
        unsafe {
            match width {
                32 => self.of_width::<T, 32>(height),
                16 => self.of_width::<T, 16>(height),
                8 => self.of_width::<T, 8>(height),
                _ => self.of_width::<T, 1>(height),
            }
        }
    }

    /// # Safety
    /// As for `of_size`, with `COLUMNS` for `width`.
    #[inline(always)]
    unsafe fn of_width<T: Target, const COLUMNS: usize>(self, height: usize) {
        // A width that this instruction set never uses is not compiled for every height.
        if COLUMNS > T::TILE.1 {
            return;
        }
        // SAFETY: handed on from the caller; each arm's `ROWS` is `height`.
        unsafe {
            match height {
                1 => self.sum_up::<T, 1, COLUMNS>(),
                2 => self.sum_up::<T, 2, COLUMNS>(),
                3 => self.sum_up::<T, 3, COLUMNS>(),
                4 => self.sum_up::<T, 4, COLUMNS>(),
                5 => self.sum_up::<T, 5, COLUMNS>(),
                6 => self.sum_up::<T, 6, COLUMNS>(),
                7 => self.sum_up::<T, 7, COLUMNS>(),
                8 => self.sum_up::<T, 8, COLUMNS>(),
                9 => self.sum_up::<T, 9, COLUMNS>(),
                10 => self.sum_up::<T, 10, COLUMNS>(),
                11 => self.sum_up::<T, 11, COLUMNS>(),
                _ => self.sum_up::<T, 12, COLUMNS>(),
            }
        }
    }

    /// # Safety
    /// As for `of_size`, with `ROWS` for `height` and `COLUMNS` for `width`.
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "loops over constant ranges are unrolled into registers")]
    unsafe fn sum_up<T: Target, const ROWS: usize, const COLUMNS: usize>(self) {
        if ROWS > T::TILE.0 {
            return;
        }
        let mut sums = [[0.0f32; COLUMNS]; ROWS];
        for step in 0..self.depth {
            // SAFETY: `step < depth`, so this is row `step` of `b`, which has `COLUMNS` numbers from here.
            let b = unsafe { self.b.add(step * self.b_stride).cast::<[f32; COLUMNS]>().read_unaligned() };
            for row in 0..ROWS {
                // SAFETY: `row < ROWS` and `step < depth`, so this is a number of `a`.
                let a = unsafe { self.a.add(row * self.a_stride + step).read() };
                for column in 0..COLUMNS {
                    sums[row][column] = fma::<T>(a, b[column], sums[row][column]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            // SAFETY: `row < ROWS`, so this is a row of `out`, which has `COLUMNS` numbers from here.
            unsafe { self.out.add(row * self.out_stride).cast::<[f32; COLUMNS]>().write_unaligned(*sums) };
        }
    }
}
