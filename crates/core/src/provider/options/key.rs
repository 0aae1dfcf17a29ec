//! Where a role's key is.

use std::fmt;

use super::{API_KEY, API_KEY_ENV, API_KEY_FILE, Options};

/// Where a role's key is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeySource<'a> {
    /// The key itself, without white space around it.
    Given(&'a str),
    /// On the first line of the file of this path.
    File(&'a str),
    /// In the environment variable of this name.
    Environment(&'a str),
}

/// The key itself is not written.
impl fmt::Debug for KeySource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Given(_) => f.write_str("Given([redacted])"),
            KeySource::File(path) => f.debug_tuple("File").field(path).finish(),
            KeySource::Environment(name) => f.debug_tuple("Environment").field(name).finish(),
        }
    }
}

/// The first that is there: the key in the role's mapping, then what the mapping, then what the server points to.
pub fn key_source<'a>(mapping: &'a Options, server: &'a Options) -> Option<KeySource<'a>> {
    let pointer = |options: &'a Options| {
        let file = options.get(API_KEY_FILE.name).map(|path| KeySource::File(path));
        file.or_else(|| options.get(API_KEY_ENV.name).map(|name| KeySource::Environment(name)))
    };
    let given = mapping.get(API_KEY.name).map(|key| KeySource::Given(key.trim()));
    given.or_else(|| pointer(mapping)).or_else(|| pointer(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_comes_before_the_server_and_a_key_before_what_points_to_one() {
        let options = |pairs: &[(&str, &str)]| -> Options {
            pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
        };
        let (key, env, file) = (("api_key", " sk-x\n"), ("api_key_env", "KEY"), ("api_key_file", "/key"));
        for (mapping, server, expected) in [
            (vec![], vec![], None),
            (vec![key, env, file], vec![env, file], Some(KeySource::Given("sk-x"))),
            (vec![env, file], vec![env], Some(KeySource::File("/key"))),
            (vec![env], vec![file], Some(KeySource::Environment("KEY"))),
            (vec![], vec![env, file], Some(KeySource::File("/key"))),
            (vec![], vec![env], Some(KeySource::Environment("KEY"))),
        ] {
            assert_eq!(key_source(&options(&mapping), &options(&server)), expected, "{mapping:?} {server:?}");
        }
    }

    #[test]
    fn a_key_is_not_seen_in_debug_output() {
        assert_eq!(format!("{:?}", Some(KeySource::Given("sk-planted"))), "Some(Given([redacted]))");
        assert_eq!(format!("{:?}", KeySource::File("/key")), r#"File("/key")"#);
        assert_eq!(format!("{:?}", KeySource::Environment("KEY")), r#"Environment("KEY")"#);
    }
}
