//! What the tests of properties share.

use proptest::prelude::ProptestConfig;

/// So many cases of each, or as many as `PROPTEST_CASES` says.
pub fn config(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}
