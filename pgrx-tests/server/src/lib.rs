//! Harness for tests from outside.
