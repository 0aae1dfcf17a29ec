//! Sentences, words and stems.
