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

/// What follows one of these in a question is what must not happen…
pub(super) const WITHOUT_ASKED: &[&str] = &["without", "avoid", "avoiding", "prevent", "preventing", "not"];
/// … and a sentence tells of a way when one of these comes shortly before it.
pub(super) const WITHOUT_TOLD: &[&str] = &[
    "without", "avoid", "avoids", "avoiding", "prevent", "prevents", "not", "no", "never", "doesn", "don", "isn",
    "instead",
];

/// Behind its subject, these do not say what it is.
pub(super) const MODALS: &[&str] =
    &["cannot", "can", "will", "may", "must", "should", "could", "would", "might", "does", "do", "did"];

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

/// A sentence with one of these sends the reader elsewhere.
pub(super) const REFERENCES: &[&str] = &[
    "described in",
    "explained in",
    "discussed in",
    "listed in",
    "shown in",
    "given in",
    "see section",
    "see table",
    "in the following",
    "discussed below",
    "shown below",
    "described below",
    "listed below",
    "summarized in",
];

/// A sentence with one of these is about something that only its own page makes clear.
pub(super) const DEICTIC: &[&str] = &[
    "this parameter",
    "this option",
    "this setting",
    "this section",
    "this chapter",
    "this function",
    "this value",
    "this view",
    "this page",
    "this command",
    "the example above",
    "above example",
    "previous example",
];

/// A sentence with one of these says that something is needed.
pub(super) const NEED: &[&str] = &["necessary", "needed", " need to ", "required", "essential"];

/// A sentence with one of these says how something works.
pub(super) const WORKING: &[&str] = &[
    "possible to",
    " supports ",
    " allows ",
    "works by",
    " by replaying",
    " consists of ",
    " combine",
    " based on ",
    " can then ",
];

/// Before the subject of a definition only these may stand.
pub(super) const ARTICLES: &[&str] = &["a", "an", "the", "each", "every", "all"];
