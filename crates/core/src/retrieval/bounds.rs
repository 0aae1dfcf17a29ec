//! How many results are wanted, and how good they must be.

/// Most results of one search.
pub const MAX_K: i32 = 1000;
const DEFAULT_K: i32 = 10;

/// How many results, and none below which score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// At most so many results, 1 to [`MAX_K`].
    pub k: usize,
    /// None below this score, -1 to 1.
    pub min_score: Option<f64>,
}

/// An argument that is not in range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum OutOfBounds {
    /// Not 1 to [`MAX_K`].
    #[error("k is {0}")]
    K(i32),
    /// Not -1 to 1, or not a number.
    #[error("min_score is {0}")]
    MinScore(f64),
}

impl OutOfBounds {
    /// What to do.
    pub fn hint(&self) -> String {
        match self {
            Self::K(_) => format!("Give the number of results wanted, 1 to {MAX_K}."),
            Self::MinScore(_) => "Scores are cosine similarities: give a number between -1 and 1.".to_owned(),
        }
    }
}

impl Bounds {
    /// Checks what a person gave; 10 results where nothing is said.
    ///
    /// # Errors
    /// The first argument that is out of range.
    pub fn check(k: Option<i32>, min_score: Option<f64>) -> Result<Self, OutOfBounds> {
        let k = k.unwrap_or(DEFAULT_K);
        if !(1..=MAX_K).contains(&k) {
            return Err(OutOfBounds::K(k));
        }
        if let Some(score) = min_score
            && !(-1.0..=1.0).contains(&score)
        {
            return Err(OutOfBounds::MinScore(score));
        }
        Ok(Self { k: k as usize, min_score })
    }

    /// Whether a result of this score is good enough.
    pub fn admits(&self, score: f64) -> bool {
        self.min_score.is_none_or(|min| score >= min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k_and_min_score_are_taken_in_their_range_only() {
        type Case = (Option<i32>, Option<f64>, Result<usize, &'static str>);
        let cases: [Case; 9] = [
            (None, None, Ok(10)),
            (Some(1), Some(-1.0), Ok(1)),
            (Some(1000), Some(1.0), Ok(1000)),
            (Some(0), None, Err("k is 0")),
            (Some(-1), None, Err("k is -1")),
            (Some(1001), None, Err("k is 1001")),
            (None, Some(1.5), Err("min_score is 1.5")),
            (None, Some(-1.1), Err("min_score is -1.1")),
            (None, Some(f64::NAN), Err("min_score is NaN")),
        ];
        for (k, min_score, expected) in cases {
            let checked = Bounds::check(k, min_score).map(|b| b.k).map_err(|e| e.to_string());
            assert_eq!(checked, expected.map_err(str::to_owned), "{k:?} {min_score:?}");
        }
    }

    #[test]
    fn without_a_least_score_every_score_will_do() {
        let bounds = |min_score| Bounds { k: 1, min_score };
        for (min_score, score, admitted) in
            [(None, -1.0, true), (Some(0.3), 0.3, true), (Some(0.3), 0.29, false), (Some(-1.0), -1.0, true)]
        {
            assert_eq!(bounds(min_score).admits(score), admitted, "{min_score:?} {score}");
        }
    }
}
