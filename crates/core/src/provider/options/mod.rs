//! The options of foreign servers and user mappings.
//!
//! - [`OptionSpec`]: one option; the constants beside it are those that APIs over HTTP share.
//! - [`validate()`]: what DDL may set; [`unvouched`]: what it should not have set.
//! - [`Settings`]: what a server's options say, defaults filled in.
//! - [`key_source`]: where a role's key is.

mod key;
mod settings;
mod spec;
mod validate;

pub use key::{KeySource, key_source};
pub use settings::Settings;
pub use spec::*;
pub use validate::{OptionError, OptionFault, denied, selected_wire, superuser_only, unvouched, validate, wire_names};

use std::collections::BTreeMap;

/// Names and values of one object's options.
pub type Options = BTreeMap<String, String>;

/// The kind of object that a DDL statement sets options of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignObject {
    /// `CREATE FOREIGN DATA WRAPPER`: takes none.
    Wrapper,
    /// `CREATE SERVER`. Every role can read a server's options.
    Server,
    /// `CREATE USER MAPPING`. Readable by the mapped role, the server's owner and superusers.
    UserMapping,
    /// `CREATE FOREIGN TABLE`: takes none.
    Table,
}

/// Splits `name=value`, as PostgreSQL stores options.
pub fn split_options(stored: impl IntoIterator<Item = String>) -> Options {
    stored.into_iter().filter_map(|o| o.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_options_are_split_at_the_first_equals_sign() {
        let options = split_options(["api=openai".to_owned(), "base_url=http://h/v1?a=b".to_owned(), "odd".to_owned()]);
        let pairs: Vec<(&str, &str)> = options.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("api", "openai"), ("base_url", "http://h/v1?a=b")]);
    }
}
