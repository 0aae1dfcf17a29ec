//! What DDL may set.

use super::spec::{is_word, parse_count, parse_flag, parse_seconds};
use super::{API, ForeignObject, MAX_SECONDS, MIN_SECONDS, OptionKind, OptionSpec, Options};
use crate::provider::{Transport, Wire, check_base_url};
use crate::text::shorten;

/// Why options cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OptionError {
    /// The kind, for an SQLSTATE.
    pub fault: OptionFault,
    /// What is wrong, lower case; holds no value that may be a secret.
    pub message: String,
    /// What to do, in sentences.
    pub hint: String,
}

/// The kinds of [`OptionError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionFault {
    /// No such option, or not on this kind of object, or not with this API.
    Name,
    /// A required option is not given.
    Missing,
    /// A value that is none of its kind or out of its range.
    Value,
    /// Only a superuser may set it.
    Denied,
}

impl OptionError {
    fn new(fault: OptionFault, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { fault, message: message.into(), hint: hint.into() }
    }
}

/// The wire that the options of a server name.
pub fn selected_wire(wires: &[&'static dyn Wire], options: &Options) -> Option<&'static dyn Wire> {
    options.get(API.name).and_then(|name| wire_named(wires, name))
}

fn wire_named(wires: &[&'static dyn Wire], name: &str) -> Option<&'static dyn Wire> {
    wires.iter().copied().find(|wire| wire.name() == name)
}

/// The names of `wires` in alphabetical order: the values of option `api`.
pub fn wire_names(wires: &[&'static dyn Wire]) -> String {
    let mut names: Vec<&str> = wires.iter().map(|wire| wire.name()).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Checks all options of an object, as a DDL statement would leave them.
///
/// PostgreSQL hands over all options of the object, also those a statement leaves alone, and does not say which object it
/// is. So an option that only a superuser may set passes here if a superuser set it, to this value, on some object that the role
/// may alter (`vouched`); whether that is the very object, [`unvouched`] says when the statement is done and at each use.
///
/// # Errors
/// [`OptionError`] for the first option, by name, that is unknown, misplaced, not for this role or out of its range; then
/// for one that is missing or does not belong to the server's API.
pub fn validate(
    wires: &[&'static dyn Wire],
    options: &Options,
    object: ForeignObject,
    is_superuser: bool,
    vouched: impl Fn(&str, &str) -> bool,
) -> Result<(), OptionError> {
    // A user mapping's server is not known here, so its options may be those of any API.
    let known = known_options(wires, object);
    for (name, value) in options {
        let spec = known.iter().find(|spec| spec.name == name);
        let spec = spec.ok_or_else(|| unknown(wires, name, object, &known))?;
        if spec.superuser_only && !is_superuser && !vouched(name, value) {
            return Err(denied(name));
        }
        check_value(wires, spec, value)?;
    }
    match object {
        ForeignObject::Server => check_server(wires, options),
        _ => Ok(()),
    }
}

/// Only a superuser may set this option.
pub fn denied(name: &str) -> OptionError {
    OptionError::new(
        OptionFault::Denied,
        format!("must be superuser to set option \"{name}\""),
        "It decides where this server's process sends data or which of its secrets it reads. Ask a superuser to set it; a role with USAGE on the server may set its own api_key.",
    )
}

/// Those of an object's options that only a superuser may set.
pub fn superuser_only(wires: &[&'static dyn Wire], options: &Options) -> Options {
    let specs = || wires.iter().flat_map(|wire| wire.options());
    let is_one = |name: &String| specs().any(|spec| spec.superuser_only && spec.name == name);
    options.iter().filter(|(name, _)| is_one(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The first option of an object that only a superuser may set and none did: it is not among the `vouched` ones of this very
/// object, or has another value there.
pub fn unvouched<'a>(wires: &[&'static dyn Wire], options: &'a Options, vouched: &Options) -> Option<&'a str> {
    let own = superuser_only(wires, options);
    options
        .keys()
        .find(|name| own.get(*name).is_some_and(|value| vouched.get(*name) != Some(value)))
        .map(String::as_str)
}

/// `api` and the options of all wires that may be set on such an object, each once, in the order of the wires.
fn known_options(wires: &[&'static dyn Wire], object: ForeignObject) -> Vec<OptionSpec> {
    let mut known: Vec<OptionSpec> = Vec::new();
    for spec in std::iter::once(&API).chain(wires.iter().flat_map(|wire| wire.options())) {
        if spec.objects.contains(&object) && known.iter().all(|k| k.name != spec.name) {
            known.push(*spec);
        }
    }
    known
}

fn unknown(wires: &[&'static dyn Wire], name: &str, object: ForeignObject, known: &[OptionSpec]) -> OptionError {
    let mut all = wires.iter().flat_map(|wire| wire.options());
    if object == ForeignObject::Server && all.any(|spec| spec.name == name && spec.kind == OptionKind::Secret) {
        return OptionError::new(
            OptionFault::Name,
            format!("option \"{name}\" is not allowed on a server"),
            format!(
                "Every role can read a server's options. Put the key in a user mapping: CREATE USER MAPPING FOR ... SERVER ... OPTIONS ({name} '...')."
            ),
        );
    }
    let names: Vec<&str> = known.iter().map(|spec| spec.name).collect();
    let hint = match names.as_slice() {
        [] => "There are no valid options here.".to_owned(),
        names => format!("Valid options here are: {}.", names.join(", ")),
    };
    OptionError::new(OptionFault::Name, format!("invalid option \"{}\"", shorten(name, 80)), hint)
}

/// What the API of a server demands and what it does not take.
fn check_server(wires: &[&'static dyn Wire], options: &Options) -> Result<(), OptionError> {
    let Some(wire) = selected_wire(wires, options) else {
        return Err(OptionError::new(
            OptionFault::Missing,
            "option \"api\" is required",
            format!(
                "Say which API the server speaks, one of {}: OPTIONS (api 'openai', base_url 'https://.../v1').",
                wire_names(wires)
            ),
        ));
    };
    let api = wire.name();
    let own: Vec<&OptionSpec> =
        wire.options().iter().filter(|spec| spec.objects.contains(&ForeignObject::Server)).collect();
    if let Some(missing) = own.iter().find(|spec| spec.required && !options.contains_key(spec.name)) {
        return Err(OptionError::new(
            OptionFault::Missing,
            format!("option \"{}\" is required with api '{api}'", missing.name),
            format!("Add {} '...' to its OPTIONS: {}.", missing.name, missing.description.replace('`', "")),
        ));
    }
    let foreign = options.keys().find(|name| *name != API.name && own.iter().all(|spec| spec.name != name.as_str()));
    match foreign {
        None => Ok(()),
        Some(name) => {
            let hint = match wire.transport() {
                Transport::InProcess => {
                    "Its models run in the server process; their directory is the setting rag.model_dir.".to_owned()
                }
                Transport::Http(_) => {
                    let names: Vec<&str> = own.iter().map(|spec| spec.name).collect();
                    format!("Options with api '{api}' are: {}.", names.join(", "))
                }
            };
            Err(OptionError::new(OptionFault::Name, format!("option \"{name}\" does not apply to api '{api}'"), hint))
        }
    }
}

pub(super) fn check_value(wires: &[&'static dyn Wire], spec: &OptionSpec, value: &str) -> Result<(), OptionError> {
    let hint = match spec.kind {
        OptionKind::Api => match wire_named(wires, value) {
            Some(_) => return Ok(()),
            None => format!("Valid values are: {}.", wire_names(wires)),
        },
        OptionKind::Url => match check_base_url(value) {
            Ok(()) => return Ok(()),
            Err(hint) => hint.to_owned(),
        },
        OptionKind::Secret => {
            if !value.trim().is_empty() && !value.chars().any(char::is_control) {
                return Ok(());
            }
            "A key is not empty and has no control characters.".to_owned()
        }
        OptionKind::EnvironmentVariable => {
            let fits = !value.is_empty()
                && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !value.starts_with(|c: char| c.is_ascii_digit());
            if fits {
                return Ok(());
            }
            "Give the name of an environment variable, for example OPENAI_API_KEY.".to_owned()
        }
        OptionKind::File => {
            if std::path::Path::new(value).is_absolute() {
                return Ok(());
            }
            "Give the absolute path of a file that the server process can read.".to_owned()
        }
        OptionKind::Seconds { .. } => match parse_seconds(value) {
            Some(_) => return Ok(()),
            None => format!("Give seconds between {MIN_SECONDS} and {MAX_SECONDS}."),
        },
        OptionKind::Count { min, max, .. } => match parse_count(value, min, max) {
            Some(_) => return Ok(()),
            None => format!("Give a whole number between {min} and {max}."),
        },
        OptionKind::Choice { values, .. } => {
            if values.contains(&value) {
                return Ok(());
            }
            format!("Valid values are: {}.", values.join(", "))
        }
        OptionKind::Word => {
            if is_word(value) {
                return Ok(());
            }
            "Give 1 to 64 letters, digits, dots, underscores and hyphens.".to_owned()
        }
        OptionKind::Flag { .. } => match parse_flag(value) {
            Some(_) => return Ok(()),
            None => "Valid values are: true, false.".to_owned(),
        },
    };
    // What may hold a secret, by mistake too, is not repeated.
    let message = match spec.kind {
        OptionKind::Url | OptionKind::Secret | OptionKind::EnvironmentVariable | OptionKind::File => {
            format!("invalid value for option \"{}\"", spec.name)
        }
        _ => format!("invalid value for option \"{}\": \"{}\"", spec.name, shorten(value, 80)),
    };
    Err(OptionError::new(OptionFault::Value, message, hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Settings;
    use crate::provider::local::Local;
    use crate::provider::openai::OpenAi;

    /// Not `WIRES`, so that another API changes nothing here.
    const APIS: &[&dyn Wire] = &[&Local, &OpenAi];

    fn options(pairs: &[(&str, &str)]) -> Options {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    fn server(pairs: &[(&str, &str)]) -> Result<(), OptionError> {
        validate(APIS, &options(pairs), ForeignObject::Server, true, |_, _| false)
    }

    /// The options of a sound server and one more.
    fn server_with(name: &str, value: &str) -> Result<(), OptionError> {
        server(&[("api", "openai"), ("base_url", "http://h/v1"), (name, value)])
    }

    #[test]
    fn names_and_their_objects_are_checked() {
        for (object, name, fault, message) in [
            (ForeignObject::Server, "bas_url", OptionFault::Name, "invalid option \"bas_url\""),
            (ForeignObject::Server, "api_key", OptionFault::Name, "option \"api_key\" is not allowed on a server"),
            (ForeignObject::UserMapping, "base_url", OptionFault::Name, "invalid option \"base_url\""),
            (ForeignObject::UserMapping, "api", OptionFault::Name, "invalid option \"api\""),
            (ForeignObject::Wrapper, "api", OptionFault::Name, "invalid option \"api\""),
            (ForeignObject::Table, "api_key", OptionFault::Name, "invalid option \"api_key\""),
        ] {
            let error = validate(APIS, &options(&[(name, "x")]), object, true, |_, _| false).unwrap_err();
            assert_eq!((error.fault, error.message.as_str()), (fault, message), "{object:?} {name}");
        }
        let hint = |object| validate(APIS, &options(&[("x", "")]), object, true, |_, _| false).unwrap_err().hint;
        assert_eq!(hint(ForeignObject::UserMapping), "Valid options here are: api_key, api_key_env, api_key_file.");
        assert_eq!(hint(ForeignObject::Wrapper), "There are no valid options here.");
    }

    #[test]
    fn values_are_checked_by_their_kind_and_the_hint_says_what_fits() {
        for (name, good, bad, hint) in [
            ("api", &["openai"][..], &["openia", "OpenAI", ""][..], "Valid values are: local, openai."),
            ("base_url", &["https://h"], &["h:80", "ftp://h"], "Write it as http://"),
            (
                "timeout",
                &["0.05", "60", "3600", "1e1"],
                &["0", "-1", "3601", "soon", "NaN", "inf"],
                "Give seconds between 0.05 and 3600.",
            ),
            ("connect_timeout", &["1"], &[""], "Give seconds between"),
            ("max_retries", &["0", "10"], &["-1", "11", "1.5"], "Give a whole number between 0 and 10."),
            ("max_batch_items", &["1", "2048"], &["0", "2049"], "Give a whole number between 1 and 2048."),
            ("max_batch_tokens", &["100"], &["99"], "Give a whole number between 100 and 10000000."),
            ("max_in_flight", &["64"], &["0", "65"], "Give a whole number between 1 and 64."),
            ("max_response_bytes", &["1024"], &["1023"], "Give a whole number between 1024 and 1073741824."),
            (
                "auth_header",
                &["authorization", "api-key"],
                &["cookie", ""],
                "Valid values are: authorization, api-key,",
            ),
            ("api_version", &["2024-10-21", "preview"], &["", "1&x=2", "a b"], "Give 1 to 64 letters"),
            ("send_dimensions", &["true", "OFF", "1"], &["perhaps", ""], "Valid values are: true, false."),
            ("api_key_env", &["OPENAI_API_KEY", "_k1"], &["", "1K", "A B"], "Give the name of an environment variable"),
            ("api_key_file", &["/etc/key"], &["key", ""], "Give the absolute path"),
        ] {
            for value in good {
                assert_eq!(server_with(name, value), Ok(()), "{name} {value:?}");
            }
            for value in bad {
                let error = server_with(name, value).unwrap_err();
                assert_eq!(error.fault, OptionFault::Value, "{name} {value:?}");
                assert!(error.hint.starts_with(hint), "{name} {value:?}: {}", error.hint);
            }
        }
    }

    #[test]
    fn a_value_that_may_be_a_secret_is_not_repeated() {
        for name in ["base_url", "api_key_env", "api_key_file"] {
            assert_eq!(
                server_with(name, "sk-s3cret!").unwrap_err().message,
                format!("invalid value for option \"{name}\"")
            );
        }
        let mapping = options(&[("api_key", "sk-s3cret\n")]);
        let error = validate(APIS, &mapping, ForeignObject::UserMapping, false, |_, _| false).unwrap_err();
        assert_eq!(error.message, "invalid value for option \"api_key\"");
        assert_eq!(
            server_with("timeout", "soon").unwrap_err().message,
            "invalid value for option \"timeout\": \"soon\""
        );
    }

    #[test]
    fn a_server_has_what_its_api_demands_and_nothing_it_does_not_take() {
        for (pairs, fault, message) in [
            (&[][..], OptionFault::Missing, "option \"api\" is required"),
            (&[("timeout", "1")], OptionFault::Missing, "option \"api\" is required"),
            (&[("api", "openai")], OptionFault::Missing, "option \"base_url\" is required with api 'openai'"),
            (
                &[("api", "local"), ("timeout", "1")],
                OptionFault::Name,
                "option \"timeout\" does not apply to api 'local'",
            ),
        ] {
            let error = server(pairs).unwrap_err();
            assert_eq!((error.fault, error.message.as_str()), (fault, message), "{pairs:?}");
        }
        assert_eq!(server(&[("api", "local")]), Ok(()));
        assert_eq!(
            server(&[("api", "openai")]).unwrap_err().hint,
            "Add base_url '...' to its OPTIONS: address up to and including the version, for example https://api.openai.com/v1."
        );
    }

    #[test]
    fn what_decides_where_data_goes_needs_a_superuser_unless_it_stands_already() {
        let stored = options(&[("api", "openai"), ("base_url", "http://h/v1"), ("timeout", "5")]);
        let check = |is_superuser, known: bool| {
            validate(APIS, &stored, ForeignObject::Server, is_superuser, |_, _| known).map_err(|e| (e.fault, e.message))
        };
        let denied = Err((OptionFault::Denied, "must be superuser to set option \"base_url\"".to_owned()));
        assert_eq!(check(true, false), Ok(()));
        assert_eq!(check(false, true), Ok(()));
        assert_eq!(check(false, false), denied);
        let own_key = options(&[("api_key", "sk-x")]);
        assert_eq!(validate(APIS, &own_key, ForeignObject::UserMapping, false, |_, _| false), Ok(()));
    }

    #[test]
    fn an_option_of_superusers_counts_as_it_was_vouched_for_on_this_object() {
        let server =
            options(&[("api", "openai"), ("base_url", "http://h/v1"), ("api_key_file", "/k"), ("timeout", "5")]);
        assert_eq!(superuser_only(APIS, &server), options(&[("base_url", "http://h/v1"), ("api_key_file", "/k")]));
        for (vouched, found) in [
            (&[("base_url", "http://h/v1"), ("api_key_file", "/k")][..], None),
            (&[("base_url", "http://h/v1"), ("api_key_file", "/k"), ("api_key_env", "K")], None),
            (&[("base_url", "http://h/v1")], Some("api_key_file")),
            (&[("base_url", "http://other/v1"), ("api_key_file", "/k")], Some("base_url")),
            (&[("base_url", "http://h/v1"), ("api_key_file", "/k2")], Some("api_key_file")),
            (&[("timeout", "5")], Some("api_key_file")),
            (&[], Some("api_key_file")),
        ] {
            assert_eq!(unvouched(APIS, &server, &options(vouched)), found, "{vouched:?}");
        }
        let own = options(&[("api_key", "sk-x"), ("unknown", "y")]);
        assert_eq!(unvouched(APIS, &own, &Options::new()), None);
    }

    #[test]
    fn defaults_are_values_that_may_be_set() {
        for spec in crate::provider::WIRES.iter().flat_map(|wire| wire.options()) {
            if let Some(default) = spec.default() {
                assert_eq!(check_value(APIS, spec, &default), Ok(()), "{}", spec.name);
            }
        }
    }

    #[test]
    fn settings_are_what_is_stored_or_the_default() {
        for wire in APIS {
            let settings = Settings::read(*wire, Options::new()).unwrap();
            assert_eq!((settings.max_retries, settings.max_in_flight, settings.max_batch_items), (2, 4, 64));
            assert_eq!((settings.timeout.as_secs(), settings.connect_timeout.as_secs()), (60, 10));
        }
        let openai = wire_named(APIS, "openai").unwrap();
        let settings = Settings::read(openai, options(&[("timeout", "2.5"), ("max_retries", "0")])).unwrap();
        assert_eq!((settings.timeout.as_millis(), settings.connect_timeout.as_millis()), (2500, 2500));
        assert_eq!(settings.max_retries, 0);
        let error = Settings::read(openai, options(&[("max_retries", "many")])).unwrap_err();
        assert_eq!(error.message, "invalid value for option \"max_retries\": \"many\"");
    }
}
