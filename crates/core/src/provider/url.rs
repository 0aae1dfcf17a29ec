//! Addresses of providers.

use url::Url;

/// What is wrong with a base URL, if anything, as a hint. A URL is an option that every role can read.
///
/// # Errors
/// A sentence that says what to change: not `http` or `https`, no host, or a user name, password, query or fragment in it.
pub fn check_base_url(text: &str) -> Result<(), &'static str> {
    const FORM: &str = "Write it as http://host[:port]/path or https://host[:port]/path.";
    let url = Url::parse(text).map_err(|_| FORM)?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(FORM);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "Leave user names and passwords out of the URL; every role can read it. Keys belong in a user mapping.",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "Leave out everything from \"?\" or \"#\" on; every role can read the URL, and keys belong in a user mapping. A version that Azure wants there is the option api_version.",
        );
    }
    Ok(())
}

/// `base` without trailing slashes, then `/path`; a base that already ends in the path stays.
///
/// ```
/// use ragent_core::provider::join_url;
/// assert_eq!(join_url("http://localhost:11434/v1/", "/embeddings"), "http://localhost:11434/v1/embeddings");
/// ```
pub fn join_url(base: &str, path: &str) -> String {
    let base = base.trim();
    // A query (Azure's `?api-version=...`) stays behind the path.
    let (base, query) = base.find('?').map_or((base, ""), |at| base.split_at(at));
    let base = base.trim_end_matches('/');
    if base.ends_with(path) { format!("{base}{query}") } else { format!("{base}{path}{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_behind_a_base_once() {
        for base in ["http://h/v1", "http://h/v1/", "http://h/v1//", " http://h/v1 ", "http://h/v1/embeddings"] {
            assert_eq!(join_url(base, "/embeddings"), "http://h/v1/embeddings");
        }
        assert_eq!(join_url("http://h/d/?api-version=1", "/chat"), "http://h/d/chat?api-version=1");
    }

    #[test]
    fn a_base_url_is_an_http_address_without_secrets() {
        for good in ["http://localhost:11434/v1", "https://api.openai.com/v1", "http://[::1]:80/", "https://h"] {
            assert_eq!(check_base_url(good), Ok(()), "{good}");
        }
        for (bad, hint) in [
            ("", "Write it as"),
            ("not a url", "Write it as"),
            ("localhost:8080", "Write it as"),
            ("ftp://h/v1", "Write it as"),
            ("file:///etc/passwd", "Write it as"),
            ("http://", "Write it as"),
            ("http://user@h/v1", "Leave user names"),
            ("http://:secret@h/v1", "Leave user names"),
            ("http://h/v1?key=x", "Leave out everything"),
            ("http://h/v1#x", "Leave out everything"),
        ] {
            let said = check_base_url(bad).unwrap_err();
            assert!(said.starts_with(hint), "{bad:?}: {said}");
        }
    }
}
