//! Identifiers that need quotes, and some that do not.

use ragent_server_tests::database::quote;
use ragent_server_tests::random::Random;

/// Words of SQL, quotes of all kinds, what looks like a parameter or a format, other alphabets, and the aliases and
/// columns that statements of the extension use themselves.
const NAMES: [&str; 22] = [
    "notes",
    "Mixed Case",
    "select",
    "with \"quotes\"",
    "o'clock",
    "dotted.name",
    "ünïcode ✓",
    "$1",
    "100%s %I",
    "back\\slash",
    "semi;colon -- comment",
    "{\"json\": [1]}",
    "content",
    "chunk",
    "embedding",
    "source_hash",
    "key",
    "key_content",
    "s",
    "u",
    "k",
    "c",
];

/// A name; two calls may give the same.
pub fn any(random: &mut Random) -> &'static str {
    random.choose(&NAMES)
}

/// A name that is not among those given, numbered if it must be.
pub fn new(random: &mut Random, taken: &[String]) -> String {
    let mut name = any(random).to_owned();
    while taken.contains(&name) {
        name = format!("{}{}", any(random), random.below(1000));
    }
    name
}

/// `schema.name`, quoted.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote(schema), quote(name))
}
