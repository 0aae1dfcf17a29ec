//! Words that show what a sentence does. All lower case; those that stand between blanks are looked for in a sentence
//! with a blank at each end.

/// A sentence with one of these gives a reason.
pub(super) const REASON: &[&str] = &[
    "because",
    "therefore",
    "so that",
    "in order to",
    "necessary",
    "needed",
    "reason",
    "otherwise",
    "required",
    "to avoid",
    "to prevent",
    "to ensure",
    "purpose",
    " must ",
];

/// A sentence with one of these names a means.
pub(super) const MEANS: &[&str] = &[
    " use ",
    " using ",
    " can ",
    " by ",
    "command",
    " must ",
    " specify",
    " set ",
    " with the ",
    "option",
    "to do this",
    "allows",
    "lets you",
    "makes it possible",
];

/// A sentence with one of these sets one thing against another.
pub(super) const CONTRAST: &[&str] = &[
    "differ",
    "whereas",
    "while",
    "unlike",
    "in contrast",
    "on the other hand",
    "instead of",
    "rather than",
    "however",
    "but ",
    "compared",
    "faster",
    "slower",
    "only ",
];

/// A question with one of these asks for a way that does not do something…
pub(super) const WITHOUT_ASKED: &[&str] = &[" without ", " avoid ", " avoiding ", " prevent ", " preventing "];
/// … and a sentence with one of these tells of one.
pub(super) const WITHOUT_TOLD: &[&str] =
    &[" without ", "avoid", "prevent", " not ", "n't ", " no ", " never ", "allow", "no longer"];

/// Behind its subject, these say what it is.
pub(super) const DEFINITION: &[&str] = &[
    " is a ",
    " is an ",
    " is the ",
    " are ",
    " means ",
    " refers to ",
    " determines ",
    " defines ",
    " describes ",
    " provides ",
    " allows ",
    " represents ",
    " consists of ",
    " supports ",
];

/// A sentence that begins so sends the reader elsewhere or only announces something.
pub(super) const CROSS_REFERENCES: &[&str] = &[
    "see ",
    "for more ",
    "for further ",
    "for details",
    "refer to ",
    "as described",
    "as mentioned",
    "as previously",
    "this section ",
    "this chapter ",
    "this page ",
    "the following ",
    "in this section",
    "below ",
    "here is ",
    "here are ",
    "if you want to learn",
];

/// A sentence that begins so adds to something else, or tells a story.
pub(super) const ASIDES: &[&str] = &[
    "for example",
    "for instance",
    "note that",
    "note however",
    "note:",
    "also note",
    "currently",
    "similarly",
    "likewise",
    "in addition",
    "additionally",
    "example",
    "consider ",
    "suppose ",
    "imagine ",
    "assume ",
    "presently",
    "beware",
    "the subsequent",
    "as an ",
    "e.g.",
];

/// A sentence that begins so points at the one before.
pub(super) const POINTERS: &[&str] = &[
    "this",
    "that",
    "these",
    "those",
    "it",
    "its",
    "they",
    "their",
    "he",
    "she",
    "his",
    "her",
    "therefore",
    "thus",
    "hence",
    "however",
    "but",
    "so",
    "otherwise",
    "then",
    "also",
    "such",
    "both",
    "here",
    "instead",
    "furthermore",
    "moreover",
    "consequently",
    "in this",
    "in that",
    "in such",
    "the latter",
    "the former",
    "and",
    "or",
    "nor",
    "yet",
    "again",
    "another",
    "either",
    "neither",
];
