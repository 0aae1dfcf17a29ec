//! Equal texts: which of a table's chunks stands for a text in the index, and which are its copies.

use std::collections::HashSet;

/// What a chunk that is to be stored is among those of the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The first of its text: it is in the index.
    Original,
    /// A copy of one that is stored along with it.
    CopyOfNew,
    /// A copy of one that is stored already.
    CopyOfStored,
}

/// What chunks of these hashes are, in their order, where those in `stored` have an original already.
pub fn standings<'a>(hashes: impl IntoIterator<Item = &'a [u8]>, stored: &HashSet<Vec<u8>>) -> Vec<Standing> {
    let mut new = HashSet::new();
    let standing = |hash: &'a [u8]| {
        if stored.contains(hash) {
            Standing::CopyOfStored
        } else if new.insert(hash) {
            Standing::Original
        } else {
            Standing::CopyOfNew
        }
    };
    hashes.into_iter().map(standing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_has_one_original() {
        use Standing::*;
        let stored = |hashes: &[&str]| hashes.iter().map(|h| h.as_bytes().to_vec()).collect::<HashSet<_>>();
        for (new, there, expected) in [
            (vec![], vec!["a"], vec![]),
            (vec!["a", "b"], vec![], vec![Original, Original]),
            (vec!["a", "b", "a", "a"], vec![], vec![Original, Original, CopyOfNew, CopyOfNew]),
            (vec!["a", "b", "a", "b"], vec!["a"], vec![CopyOfStored, Original, CopyOfStored, CopyOfNew]),
        ] {
            assert_eq!(
                standings(new.iter().map(|h: &&str| h.as_bytes()), &stored(&there)),
                expected,
                "{new:?} {there:?}"
            );
        }
    }
}
