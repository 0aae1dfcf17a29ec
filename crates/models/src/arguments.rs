//! What a person types.

use std::path::PathBuf;
use std::process::Command as Process;
use std::time::Duration;

use reqwest::Url;

use crate::add::Request;
use crate::catalogue::{self, KNOWN};
use crate::failure::Failure;
use crate::source::{DEFAULT_HUB, Source, WEIGHTS, check_name, own_hosts};
use crate::sums::{Sums, is_sum};

/// What is to be done, and in which folder of models.
pub enum Command {
    Help,
    Add { dir: PathBuf, request: Box<Request> },
    List { dir: PathBuf },
    Remove { dir: PathBuf, name: String },
}

/// The help.
pub fn usage() -> String {
    let known: String = KNOWN.iter().map(|known| format!("  {:<24} {}\n", known.name, known.what)).collect();
    format!(
        "usage: ragent-model add NAME [OPTIONS]     fetch a model, check and prepare it
       ragent-model list                   say what models there are
       ragent-model remove NAME            remove one

NAME is one of those below, whose files are known by SHA-256, or OWNER/NAME of any other in the hub:
{known}
Options of every command:
  --dir FOLDER            the folder of models, as rag.model_dir names it. Default: $RAGENT_MODEL_DIR, else
                          pg_ragent/models in the share directory of the PostgreSQL this program was installed with

Options of add:
  --from ADDRESS|FOLDER   take the files from below this http(s) address, or from a folder
  --hub ADDRESS           another hub than {DEFAULT_HUB}
  --revision REVISION     of the hub's repository (default: main)
  --sums FILE             SHA-256 sums of the files, as sha256sum writes them; only these files are taken
  --sha256 SUM            of {WEIGHTS}, where the other files are taken as they come
  --unpinned              take all files as they come, over https
  --as NAME               the name that the model gets
  --replace               put it in the place of a model of that name
  --query-prefix TEXT     what the model wants before a query
  --document-prefix TEXT  what the model wants before a text that is to be found
  --languages LIST        what it reads, such as en,de
  --allow-host HOST       follow a redirect to this host too; may be repeated
  --timeout SECONDS       give up when nothing arrives for so long (default: 60)

Proxies are taken from the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY).
"
    )
}

/// Reads the arguments.
///
/// # Errors
///
/// What is not understood, missing or contradictory.
pub fn parse(arguments: Vec<String>) -> Result<Command, Failure> {
    let mut words = Vec::new();
    let mut options = Options::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if matches!(argument.as_str(), "--help" | "-h") {
            return Ok(Command::Help);
        }
        if !argument.starts_with("--") {
            words.push(argument);
            continue;
        }
        match argument.as_str() {
            "--unpinned" => options.unpinned = true,
            "--replace" => options.replace = true,
            _ => {
                let (name, value) = match argument.split_once('=') {
                    Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                    None => (argument, arguments.next()),
                };
                let value = value.ok_or_else(|| misused(format!("{name} needs a value")))?;
                options.set(&name, value)?;
            }
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => Ok(Command::List { dir: options.only_dir()? }),
        ["remove", name] => {
            check_name(name)?;
            Ok(Command::Remove { name: (*name).to_owned(), dir: options.only_dir()? })
        }
        ["add", name] => {
            Ok(Command::Add { dir: model_dir(options.dir.take())?, request: Box::new(options.request(name)?) })
        }
        [] => Err(misused("say what to do".to_owned())),
        words => Err(misused(format!("\"{}\" is not understood", words.join(" ")))),
    }
}

fn misused(message: String) -> Failure {
    Failure::new(message, "ragent-model --help says what there is.")
}

/// The options as they were given.
#[derive(Default)]
struct Options {
    dir: Option<PathBuf>,
    from: Option<String>,
    hub: Option<String>,
    revision: Option<String>,
    sums: Option<PathBuf>,
    sha256: Option<String>,
    unpinned: bool,
    as_name: Option<String>,
    replace: bool,
    query_prefix: Option<String>,
    document_prefix: Option<String>,
    languages: Option<Vec<String>>,
    allow_hosts: Vec<String>,
    timeout: Option<Duration>,
}

impl Options {
    fn set(&mut self, name: &str, value: String) -> Result<(), Failure> {
        match name {
            "--dir" => self.dir = Some(PathBuf::from(value)),
            "--from" => self.from = Some(value),
            "--hub" => self.hub = Some(value),
            "--revision" => self.revision = Some(value),
            "--sums" => self.sums = Some(PathBuf::from(value)),
            "--sha256" if is_sum(&value) => self.sha256 = Some(value),
            "--sha256" => return Err(misused("--sha256 needs 64 hexadecimal digits".to_owned())),
            "--as" => self.as_name = Some(value),
            "--query-prefix" => self.query_prefix = Some(value),
            "--document-prefix" => self.document_prefix = Some(value),
            "--languages" => self.languages = Some(value.split(',').map(|word| word.trim().to_owned()).collect()),
            "--allow-host" => self.allow_hosts.push(value.to_ascii_lowercase()),
            "--timeout" => match value.parse::<f64>() {
                Ok(seconds) if (0.1..=86400.0).contains(&seconds) => {
                    self.timeout = Some(Duration::from_secs_f64(seconds));
                }
                _ => return Err(misused("--timeout needs seconds, from 0.1 to 86400".to_owned())),
            },
            _ => return Err(misused(format!("there is no option {name}"))),
        }
        Ok(())
    }

    fn only_dir(mut self) -> Result<PathBuf, Failure> {
        model_dir(self.dir.take())
    }

    fn request(self, name: &str) -> Result<Request, Failure> {
        name.split('/').try_for_each(check_name)?;
        let known = catalogue::find(name);
        if self.from.is_some() && (self.hub.is_some() || self.revision.is_some()) {
            return Err(misused("--from names the files' place: --hub and --revision go without it".to_owned()));
        }
        let pins = [self.sums.is_some(), self.sha256.is_some(), self.unpinned];
        if pins.iter().filter(|given| **given).count() > 1 {
            return Err(misused("--sums, --sha256 and --unpinned exclude each other".to_owned()));
        }
        let source = match &self.from {
            Some(from) => Source::parse(from)?,
            None => {
                let repository = known.map_or(name, |known| known.repository);
                if !repository.contains('/') {
                    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
                    return Err(Failure::new(
                        format!("model \"{name}\" is not known"),
                        format!(
                            "Known are {}. Of the hub name OWNER/NAME, or say with --from where its files are.",
                            names.join(", ")
                        ),
                    ));
                }
                let revision = self.revision.as_deref().or(known.map(|known| known.revision)).unwrap_or("main");
                Source::of_hub(self.hub.as_deref().unwrap_or(DEFAULT_HUB), repository, revision)?
            }
        };
        let mut only_summed = true;
        // Another revision has other files, whose sums are not known.
        let is_same = |revision: &str| known.is_some_and(|known| known.revision == revision);
        let summed = known.filter(|_| self.revision.as_deref().is_none_or(is_same));
        let sums = match (&self.sums, &self.sha256, summed) {
            (Some(path), _, _) => {
                let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file("read", path, &error))?;
                Sums::parse(&text, path)?
            }
            (_, Some(sum), _) => {
                only_summed = false;
                let mut sums = Sums::default();
                sums.insert(WEIGHTS, sum);
                sums
            }
            (_, _, Some(known)) if !self.unpinned => known.sums()?,
            _ if self.unpinned || matches!(source, Source::Folder(_)) => {
                only_summed = false;
                Sums::default()
            }
            _ => {
                return Err(Failure::new(
                    format!("no SHA-256 of the files of \"{name}\" is known"),
                    format!(
                        "Give --sha256 with the sum of {WEIGHTS} (the hub shows it on the file's page), --sums with the sums of all files, or --unpinned to take what comes."
                    ),
                ));
            }
        };
        let folder = self.as_name.as_deref().unwrap_or_else(|| name.rsplit('/').next().unwrap_or(name));
        check_name(folder)?;
        let mut hosts = self.allow_hosts;
        if let Source::Address(url) = &source {
            hosts.extend(own_hosts(url));
        }
        Ok(Request {
            name: folder.to_owned(),
            source,
            sums,
            only_summed,
            replace: self.replace,
            query_prefix: self.query_prefix.or(known.map(|known| known.query_prefix.to_owned())),
            document_prefix: self.document_prefix,
            languages: self
                .languages
                .or(known.map(|known| known.languages.iter().map(|word| (*word).to_owned()).collect())),
            hosts,
            timeout: self.timeout.unwrap_or(Duration::from_secs(60)),
        })
    }
}

/// The folder of models: what was named, else what the environment names, else that of the PostgreSQL whose `pg_config` stands
/// beside this program.
fn model_dir(named: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let environment = || std::env::var_os("RAGENT_MODEL_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    named.or_else(environment).or_else(installed_dir).ok_or_else(|| {
        Failure::new(
            "the folder of models is not known: there is no pg_config beside this program",
            "Name it with --dir or RAGENT_MODEL_DIR. SHOW rag.model_dir says which it is; empty means pg_ragent/models in the directory that pg_config --sharedir prints.",
        )
    })
}

fn installed_dir() -> Option<PathBuf> {
    let pg_config = std::env::current_exe().ok()?.parent()?.join("pg_config");
    let output = Process::new(pg_config).arg("--sharedir").output().ok().filter(|output| output.status.success())?;
    let share = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(share.trim_end()).join("pg_ragent").join("models"))
}

/// Whether requests to this address may be read and changed on their way.
pub fn is_open_to_others(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(host) => match host.to_string().trim_matches(['[', ']']) {
            "localhost" => true,
            host => host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()),
        },
        None => false,
    };
    url.scheme() != "https" && !is_here
}
