//! Where the files of a model come from.

use std::path::PathBuf;

use reqwest::Url;

use crate::failure::Failure;

/// A file of a model folder that is read here.
pub struct ModelFile {
    pub name: &'static str,
    pub is_required: bool,
    /// A longer one is refused.
    pub max_bytes: u64,
}

const fn file(name: &'static str, is_required: bool, max_bytes: u64) -> ModelFile {
    ModelFile { name, is_required, max_bytes }
}

/// In the order in which they are fetched: what tells that a model cannot be used comes before what is large.
pub const FILES: [ModelFile; 8] = [
    file("config.json", true, 1 << 20),
    file("modules.json", false, 1 << 20),
    file("1_Pooling/config.json", false, 1 << 20),
    file("sentence_bert_config.json", false, 1 << 20),
    file("config_sentence_transformers.json", false, 1 << 20),
    file("tokenizer_config.json", false, 4 << 20),
    file("tokenizer.json", true, 64 << 20),
    file(WEIGHTS, true, 4 << 30),
];

/// The weights, by far the largest file.
pub const WEIGHTS: &str = "model.safetensors";

/// The hub that models are fetched from unless another one is named.
pub const DEFAULT_HUB: &str = "https://huggingface.co";

/// Hosts of the default hub's own, to one of which it sends those who want a large file. Their subdomains count too.
const HOSTS_OF_DEFAULT_HUB: [&str; 2] = ["huggingface.co", "hf.co"];

/// Where files are.
#[derive(Debug, Clone)]
pub enum Source {
    /// Below this address, each under its name.
    Address(Url),
    /// In a folder of this machine.
    Folder(PathBuf),
}

impl Source {
    /// What `--from` names: an address, or a folder.
    ///
    /// # Errors
    ///
    /// An address that is not of http or https, or that has a query or a fragment.
    pub fn parse(text: &str) -> Result<Source, Failure> {
        if text.contains("://") { Ok(Source::Address(address(text)?)) } else { Ok(Source::Folder(PathBuf::from(text))) }
    }

    /// A repository of a hub.
    ///
    /// # Errors
    ///
    /// As for [`Source::parse`], and a repository or revision that is none.
    pub fn of_hub(hub: &str, repository: &str, revision: &str) -> Result<Source, Failure> {
        for part in repository.split('/').chain(revision.split('/')) {
            check_name(part)?;
        }
        let mut url = address(hub)?;
        push(&mut url, repository.split('/').chain(["resolve"]).chain(revision.split('/')));
        Ok(Source::Address(url))
    }

    /// What is written down and shown: without user name and password.
    pub fn shown(&self) -> String {
        match self {
            Source::Address(url) => shown(url),
            Source::Folder(path) => path.display().to_string(),
        }
    }
}

/// An address as it may be shown: without user name and password, and without a query, which may hold a key too.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Only addresses that cannot have one refuse to lose it.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string().trim_end_matches('/').to_owned()
}

/// The address of a file below another.
pub fn below(base: &Url, name: &str) -> Url {
    let mut url = base.clone();
    push(&mut url, name.split('/'));
    url
}

/// The hosts to which a request to `url` may be sent on: the default hub's own, if it goes there.
pub fn own_hosts(url: &Url) -> Vec<String> {
    let is_default = address(DEFAULT_HUB).is_ok_and(|hub| hub.origin() == url.origin());
    if is_default { HOSTS_OF_DEFAULT_HUB.map(str::to_owned).to_vec() } else { Vec::new() }
}

fn push<'a>(url: &mut Url, parts: impl IntoIterator<Item = &'a str>) {
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(parts);
    }
}

fn address(text: &str) -> Result<Url, Failure> {
    let hint = "Give an address such as https://models.example/all-MiniLM-L6-v2, below which the model's files are.";
    let url = Url::parse(text).map_err(|error| Failure::new(format!("the address is not valid: {error}"), hint))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Failure::new(format!("the scheme \"{}\" is not supported", url.scheme()), hint));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Failure::new("the address has a query or a fragment, after which no file's name can stand", hint));
    }
    Ok(url)
}

/// Checks a name that becomes part of a path or an address: one folder below another, and nowhere else.
///
/// # Errors
///
/// Anything but letters, digits, `.`, `_` and `-`, or a name that begins with a dot or a dash.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let fits = !name.is_empty()
        && !name.starts_with(['.', '-'])
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if fits && name.len() <= 96 {
        return Ok(());
    }
    Err(Failure::new(
        format!("\"{}\" cannot be a model's name", name.escape_debug()),
        "A name has letters, digits, dots, dashes and underscores, at most 96, and begins with a letter or digit. A model of the hub is OWNER/NAME.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["all-MiniLM-L6-v2", "a_b.c", "5"] {
            check_name(name).expect(name);
        }
        for name in ["", ".", "..", ".hidden", "-x", "a/b", "a\\b", "ä", "a b", "a\0", "%2e%2e", &"x".repeat(97)] {
            check_name(name).expect_err(name);
        }
    }

    #[test]
    fn files_of_a_hub_have_their_addresses() {
        let address = |source: Source| match source {
            Source::Address(url) => below(&url, "1_Pooling/config.json").to_string(),
            Source::Folder(_) => panic!("an address"),
        };
        let of = |hub, repository, revision| Source::of_hub(hub, repository, revision).map(address);
        let expected = "https://huggingface.co/a/b/resolve/main/1_Pooling/config.json";
        assert_eq!(of(DEFAULT_HUB, "a/b", "main").expect("fits"), expected);
        let expected = "http://h:8080/x/a/b/resolve/v1/1_Pooling/config.json";
        assert_eq!(of("http://h:8080/x/", "a/b", "v1").expect("fits"), expected);
        for (hub, repository, revision) in [
            ("ftp://h", "a/b", "main"),
            ("nonsense", "a/b", "main"),
            ("https://h/?a=b", "a/b", "main"),
            ("https://h", "a/../b", "main"),
            ("https://h", "a//b", "main"),
            ("https://h", "a/b", "../../x"),
            ("https://h", "a/b", ""),
        ] {
            assert!(of(hub, repository, revision).is_err(), "{hub} {repository} {revision}");
        }
    }

    #[test]
    fn secrets_of_an_address_are_not_shown() {
        let source = Source::parse("https://me:secret@h/models/x/").expect("fits");
        assert_eq!(source.shown(), "https://h/models/x");
    }
}
