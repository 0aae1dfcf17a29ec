//! What a model reads from us, and how what it writes refers to it.
//!
//! [`instructions`] has the sentences, [`passages`] the format of search results, [`marker`] the citations `[1]` of answers.

pub mod instructions;
pub mod marker;
pub mod passages;
