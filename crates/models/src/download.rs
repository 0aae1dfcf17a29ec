//! Files over HTTP: only from where they may come, never longer than they may be, and hashed as they arrive.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::source::shown;
use crate::sums::hex;

/// Redirects that are followed one after the other.
const MAX_REDIRECTS: usize = 5;

/// Fetches files.
pub struct Downloader {
    client: Client,
    runtime: Runtime,
    timeout: Duration,
}

impl Downloader {
    /// `hosts` are those to which a server may send on, with their subdomains. Nothing may arrive for `timeout` at most.
    ///
    /// # Errors
    ///
    /// TLS or the runtime cannot be set up.
    pub fn new(hosts: Vec<String>, timeout: Duration) -> Result<Downloader, Failure> {
        let failed = |error: &dyn std::error::Error| {
            Failure::new(
                format!("could not set up HTTP: {}", causes(error)),
                "Look at the machine's certificates (package ca-certificates).",
            )
        };
        // An error means that there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(timeout.min(Duration::from_secs(20)))
            .read_timeout(timeout)
            .redirect(redirects(hosts))
            .user_agent(concat!("pg_ragent/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| failed(&error))?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
        Ok(Downloader { client, runtime, timeout })
    }

    /// Writes a file to `path`, which must not exist, and returns its SHA-256; `None` where the server has no such file.
    ///
    /// # Errors
    ///
    /// Everything but the whole file of at most `max_bytes`; a signal that asks this program to end.
    pub fn fetch(&self, url: &Url, path: &Path, max_bytes: u64) -> Result<Option<String>, Failure> {
        self.runtime.block_on(async {
            let interrupted = Failure::new("interrupted", "Nothing was left behind; run the command again.");
            let listen = |kind| signal(kind).map_err(|error| Failure::of_file("listen for signals for", path, &error));
            let (mut interrupt, mut terminate, mut hangup) =
                (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
            tokio::select! {
                fetched = self.fetch_whole(url, path, max_bytes) => fetched,
                _ = interrupt.recv() => Err(interrupted),
                _ = terminate.recv() => Err(interrupted),
                _ = hangup.recv() => Err(interrupted),
            }
        })
    }

    async fn fetch_whole(&self, url: &Url, path: &Path, max_bytes: u64) -> Result<Option<String>, Failure> {
        let mut response = self.client.get(url.clone()).send().await.map_err(|error| self.failure(url, &error))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            status => return Err(refused(url, status)),
        }
        let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/html") {
            return Err(is_a_page(url));
        }
        if response.content_length().is_some_and(|length| length > max_bytes) {
            return Err(too_large(&shown(url), max_bytes));
        }
        let mut taken = Taken::create(path, max_bytes)?;
        while let Some(piece) = response.chunk().await.map_err(|error| self.failure(url, &error))? {
            if taken.bytes == 0 && piece.trim_ascii_start().starts_with(b"<") {
                return Err(is_a_page(url));
            }
            taken.write(&piece, || shown(url))?;
        }
        taken.finish().map(Some)
    }

    fn failure(&self, url: &Url, error: &reqwest::Error) -> Failure {
        let address = shown(url);
        if error.is_redirect() {
            return Failure::new(
                format!("{address} sends to another place: {}", causes(error)),
                "If that is where its files are, allow it with --allow-host, or name the place itself with --from.",
            );
        }
        if error.is_timeout() {
            return Failure::new(
                format!("{address}: nothing arrived for {} seconds", self.timeout.as_secs_f64()),
                "Try again, or give it more time with --timeout. Behind a proxy, set HTTPS_PROXY.",
            );
        }
        if error.is_connect() {
            return Failure::new(
                format!("could not connect for {address}: {}", causes(error)),
                "Check the address and the network. Behind a proxy, set HTTPS_PROXY. On a machine without a network, copy the files and use --from FOLDER.",
            );
        }
        Failure::new(
            format!("{address} was not received: {}", causes(error)),
            "Nothing was kept; run the command again.",
        )
    }
}

/// Copies a file of this machine to `path`, which must not exist, and returns its SHA-256; `None` where there is no such file.
///
/// # Errors
///
/// What cannot be read or written; more than `max_bytes`.
pub fn copy(from: &Path, path: &Path, max_bytes: u64) -> Result<Option<String>, Failure> {
    let failed = |error| Failure::of_file("read", from, &error);
    let mut file = match std::fs::File::open(from) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut taken = Taken::create(path, max_bytes)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => return taken.finish().map(Some),
            length => taken.write(&piece[..length], || from.display().to_string())?,
        }
    }
}

/// A file that is being written, with its hash.
struct Taken<'p> {
    file: std::fs::File,
    path: &'p Path,
    hash: Sha256,
    bytes: u64,
    max_bytes: u64,
}

impl<'p> Taken<'p> {
    fn create(path: &'p Path, max_bytes: u64) -> Result<Taken<'p>, Failure> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(|error| Failure::of_file("write", path, &error))?;
        Ok(Taken { file, path, hash: Sha256::new(), bytes: 0, max_bytes })
    }

    fn write(&mut self, piece: &[u8], name: impl Fn() -> String) -> Result<(), Failure> {
        self.bytes += piece.len() as u64;
        if self.bytes > self.max_bytes {
            return Err(too_large(&name(), self.max_bytes));
        }
        self.hash.update(piece);
        self.file.write_all(piece).map_err(|error| Failure::of_file("write", self.path, &error))
    }

    fn finish(self) -> Result<String, Failure> {
        self.file.sync_all().map_err(|error| Failure::of_file("write", self.path, &error))?;
        Ok(hex(&self.hash.finalize()))
    }
}

fn too_large(name: &str, max_bytes: u64) -> Failure {
    Failure::new(
        format!("{name} is larger than {max_bytes} bytes"),
        "No model that is read here has such a file: check the address.",
    )
}

fn is_a_page(url: &Url) -> Failure {
    Failure::new(
        format!("{} is a web page, not a file of a model", shown(url)),
        "Check the address. Some networks answer every request with a page of their own until one has logged in there.",
    )
}

fn refused(url: &Url, status: StatusCode) -> Failure {
    let hint = match status.as_u16() {
        401 | 403 => {
            "There is no such model, or it is not open to everybody. Fetch its files by other means and use --from FOLDER."
        }
        407 => "The proxy wants a user name and password: HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT.",
        429 | 500.. => "Try again later.",
        _ => "Check the address.",
    };
    Failure::new(format!("{} was answered with status {status}", shown(url)), hint)
}

/// Stays on the host, or goes to one of `hosts`; never from https to http.
fn redirects(hosts: Vec<String>) -> Policy {
    Policy::custom(move |attempt| {
        let (to, previous) = (attempt.url(), attempt.previous());
        let Some(first) = previous.first() else { return attempt.stop() };
        let is_allowed = to.host_str().is_some_and(|host| {
            hosts
                .iter()
                .any(|allowed| host == allowed || host.strip_suffix(allowed).is_some_and(|rest| rest.ends_with('.')))
        });
        let problem = if previous.len() > MAX_REDIRECTS {
            Some(format!("more than {MAX_REDIRECTS} redirects"))
        } else if first.scheme() == "https" && to.scheme() != "https" {
            Some(format!("{} is not https", shown(to)))
        } else if to.origin() != first.origin() && !is_allowed {
            Some(format!("to host {}", to.host_str().unwrap_or("without a name")))
        } else {
            None
        };
        match problem {
            Some(problem) => attempt.error(problem),
            None => attempt.follow(),
        }
    })
}

/// The innermost cause of an error, which does not repeat the address.
fn causes(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}
