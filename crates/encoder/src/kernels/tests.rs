//! Every loop, on every instruction set of this processor, against its definition in double precision.

use super::*;

/// Numbers between -1 and 1 that look random and are the same every time.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference <= tolerance, "{what}: number {index} is {found}, expected {expected}");
    }
}

/// `erf` by its Taylor series, and by its continued fraction where the series would cancel.
fn erf(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let a = x.abs();
    let fraction = (1..200).rev().fold(a, |fraction, n| a + f64::from(n) / 2.0 / fraction);
    (1.0 - (-a * a).exp() / fraction / std::f64::consts::PI.sqrt()).copysign(x)
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        }
        Activation::Relu => x.max(0.0),
    }
}

const ACTIVATIONS: [Activation; 3] = [Activation::Gelu, Activation::GeluTanh, Activation::Relu];

#[test]
fn products_of_every_shape_are_right() {
    let shapes = [1, 2, 3, 5, 7, 8, 9, 11, 12, 13, 16, 17, 24, 25, 31, 32, 33, 40, 47, 64, 67];
    for isa in Isa::available() {
        for rows in shapes {
            for columns in shapes {
                for depth in [1, 2, 31, 64] {
                    let (a_stride, b_stride, out_stride) = (depth + 3, columns + 5, columns + 2);
                    let a = numbers(rows * a_stride, 1);
                    let b = numbers(depth * b_stride, 2);
                    let mut out = vec![7.0; rows * out_stride];
                    isa.multiply(
                        Matrix::new(&a, rows, depth, a_stride),
                        Matrix::new(&b, depth, columns, b_stride),
                        MatrixMut::new(&mut out, rows, columns, out_stride),
                    );
                    for row in 0..rows {
                        for column in 0..out_stride {
                            let found = f64::from(out[row * out_stride + column]);
                            let expected = if column >= columns {
                                7.0 // between the rows nothing is written
                            } else {
                                (0..depth)
                                    .map(|k| f64::from(a[row * a_stride + k]) * f64::from(b[k * b_stride + column]))
                                    .sum()
                            };
                            assert!(
                                (found - expected).abs() < 1e-5,
                                "{isa:?} {rows}×{depth}×{columns} at ({row}, {column}): {found}, expected {expected}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_of_a_product_is_the_same_bits_whatever_the_rows_beside_it() {
    let (depth, columns, most) = (96, 72, 40);
    let (a, b) = (numbers(most * depth, 3), numbers(depth * columns, 4));
    for isa in Isa::available() {
        let product = |first: usize, rows: usize| {
            let mut out = vec![0.0; rows * columns];
            isa.multiply(
                Matrix::new(&a[first * depth..], rows, depth, depth),
                Matrix::new(&b, depth, columns, columns),
                MatrixMut::new(&mut out, rows, columns, columns),
            );
            out
        };
        let all = product(0, most);
        for first in 0..most {
            for rows in 1..=most - first {
                let expected = &all[first * columns..(first + rows) * columns];
                assert!(product(first, rows) == expected, "{isa:?}: rows {first}..{}", first + rows);
            }
        }
    }
}

#[test]
fn linear_layers_give_the_same_bits_in_both_layouts() {
    for (rows, inputs, outputs) in [(1, 8, 8), (5, 12, 33), (50, 40, 64), (13, 7, 95)] {
        let (a, weights) = (numbers(rows * inputs, 5), numbers(inputs * outputs, 6));
        let mut panels = vec![0.0; weights.len()];
        for (rows, panel) in weights.chunks(PANEL * inputs).zip(panels.chunks_mut(PANEL * inputs)) {
            fill_panel(rows, inputs, panel);
        }
        let expected: Vec<f64> = (0..rows * outputs)
            .map(|at| {
                let (row, output) = (at / outputs, at % outputs);
                (0..inputs).map(|k| f64::from(a[row * inputs + k]) * f64::from(weights[output * inputs + k])).sum()
            })
            .collect();
        for isa in Isa::available() {
            let apply = |weights: &[f32], layout| {
                let (mut panel, mut out) = (vec![0.0; PANEL * inputs], vec![0.0; rows * outputs]);
                isa.linear(
                    Matrix::new(&a, rows, inputs, inputs),
                    weights,
                    layout,
                    &mut panel,
                    MatrixMut::new(&mut out, rows, outputs, outputs),
                );
                out
            };
            let by_rows = apply(&weights, Layout::Rows);
            assert!(by_rows == apply(&panels, Layout::Panels), "{isa:?} {rows}×{inputs}×{outputs}");
            assert_close(&by_rows, &expected, 1e-5, &format!("{isa:?} {rows}×{inputs}×{outputs}"));
        }
    }
}

#[test]
fn activations_are_within_a_millionth() {
    let x: Vec<f32> = (-120_000..=120_000).map(|n| n as f32 / 10_000.0).chain([-1e30, -88.0, 88.0, 1e30]).collect();
    for activation in ACTIVATIONS {
        let expected: Vec<f64> = x.iter().map(|x| activate(activation, f64::from(*x))).collect();
        for isa in Isa::available() {
            let mut found = x.clone();
            isa.add_bias_and_activate(&mut found, &vec![0.0; x.len()], activation);
            for ((x, found), expected) in x.iter().zip(&found).zip(&expected) {
                let tolerance = 1e-6 * expected.abs().max(1.0);
                let difference = (f64::from(*found) - expected).abs();
                assert!(difference <= tolerance, "{isa:?} {activation:?}({x}) is {found}, expected {expected}");
            }
        }
    }
}

#[test]
fn the_bias_is_added_to_each_row() {
    let (x, bias) = (numbers(5 * 19, 7), numbers(19, 8));
    for isa in Isa::available() {
        let mut plain = x.clone();
        isa.add_bias(&mut plain, &bias);
        let expected: Vec<f64> = x.iter().enumerate().map(|(at, x)| f64::from(x + bias[at % 19])).collect();
        assert_close(&plain, &expected, 0.0, "bias");
        for activation in ACTIVATIONS {
            let mut found = x.clone();
            isa.add_bias_and_activate(&mut found, &bias, activation);
            let expected: Vec<f64> = expected.iter().map(|x| activate(activation, *x)).collect();
            assert_close(&found, &expected, 1e-6, &format!("{isa:?} {activation:?}"));
        }
    }
}

#[test]
fn normalised_rows_have_the_mean_and_variance_they_should() {
    for width in [1, 3, 16, 31, 48, 384] {
        let rows = 3;
        let (x, add) = (numbers(rows * width, 9), numbers(rows * width, 10));
        let (gain, bias) = (numbers(width, 11), numbers(width, 12));
        let mut expected = Vec::new();
        for row in 0..rows {
            let sums: Vec<f64> =
                (0..width).map(|at| f64::from(x[row * width + at]) + f64::from(add[row * width + at])).collect();
            let mean = sums.iter().sum::<f64>() / width as f64;
            let variance = sums.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            expected
                .extend((0..width).map(|at| {
                    (sums[at] - mean) / (variance + 1e-5).sqrt() * f64::from(gain[at]) + f64::from(bias[at])
                }));
        }
        for isa in Isa::available() {
            let mut found = x.clone();
            isa.add_and_normalize(&mut found, &add, &gain, &bias, 1e-5);
            assert_close(&found, &expected, 5e-6, &format!("{isa:?} width {width}"));
        }
    }
}

#[test]
fn softmax_gives_shares_of_what_is_valid() {
    for (width, valid) in [(16, 1), (32, 16), (32, 17), (64, 64), (96, 70)] {
        for factor in [0.0, 1.0, 50.0, 1e4] {
            let x: Vec<f32> = numbers(4 * width, 13).iter().map(|x| x * factor).collect();
            for isa in Isa::available() {
                let mut found = x.clone();
                isa.softmax(&mut found, width, valid, 0.25);
                for (x, found) in x.chunks(width).zip(found.chunks(width)) {
                    let powers: Vec<f64> = x[..valid].iter().map(|x| f64::from(*x) * 0.25).collect();
                    let largest = powers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let powers: Vec<f64> = powers.iter().map(|x| (x - largest).exp()).collect();
                    let total: f64 = powers.iter().sum();
                    let expected: Vec<f64> = powers.iter().map(|x| x / total).collect();
                    assert_close(&found[..valid], &expected, 1e-6, &format!("{isa:?} {valid} of {width} × {factor}"));
                }
            }
        }
    }
}

#[test]
fn nan_goes_through_every_loop() {
    for isa in Isa::available() {
        for activation in ACTIVATIONS {
            let mut x = vec![0.5; 37];
            x[20] = f32::NAN;
            isa.add_bias_and_activate(&mut x, &[0.0; 37], activation);
            assert!(x[20].is_nan() && x[19].is_finite(), "{isa:?} {activation:?}");
        }
        for at in [0, 20, 31] {
            let mut x = vec![0.5; 32];
            x[at] = f32::NAN;
            isa.softmax(&mut x, 32, 32, 1.0);
            assert!(x.iter().any(|x| x.is_nan()), "{isa:?} softmax");
        }
        let mut x = vec![0.5; 37];
        x[20] = f32::NAN;
        isa.add_and_normalize(&mut x, &[0.0; 37], &[1.0; 37], &[0.0; 37], 1e-12);
        assert!(x.iter().all(|x| x.is_nan()), "{isa:?} normalisation");
    }
}

#[test]
#[should_panic(expected = "does not fit")]
fn a_matrix_must_fit_in_its_slice() {
    Matrix::new(&[0.0; 10], 3, 4, 4);
}
