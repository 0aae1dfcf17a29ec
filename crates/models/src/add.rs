//! Adding a model: fetch, check, prepare, put into its place.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ragent_encoder::{CrossEncoder, Encoder, EncoderError, SETTINGS_FILE, Task};
use reqwest::Url;

use crate::arguments::is_open_to_others;
use crate::describe::Settings;
use crate::download::{self, Downloader};
use crate::failure::Failure;
use crate::source::{FILES, ModelFile, Source, WEIGHTS, below, shown};
use crate::store::{Adding, Store};
use crate::sums::Sums;

/// What is to be added, and from where.
pub struct Request {
    /// The folder's name.
    pub name: String,
    pub source: Source,
    /// What the files' sums must be, as far as they are known.
    pub sums: Sums,
    /// Whether only files with a known sum are taken.
    pub only_summed: bool,
    pub replace: bool,
    pub query_prefix: Option<String>,
    pub document_prefix: Option<String>,
    pub languages: Option<Vec<String>>,
    /// Hosts to which a server may send on.
    pub hosts: Vec<String>,
    /// How long nothing may arrive.
    pub timeout: Duration,
}

/// Adds a model; returns its name. Until it is complete and checked it is in a folder that nobody takes for a model.
///
/// # Errors
///
/// Whatever keeps a file from arriving as it should be, or the model from being used.
pub fn add(store: &Store, request: &Request) -> Result<String, Failure> {
    let locked = store.lock()?;
    let adding = locked.begin(&request.name, request.replace)?;
    let downloader = Downloader::new(request.hosts.clone(), request.timeout)?;
    let mut sums = Sums::default();
    for file in &FILES {
        if file.name == WEIGHTS {
            // What cannot be used is told before the largest file is fetched.
            ragent_encoder::task(adding.path()).map_err(|error| unusable(&error))?;
        }
        if let Some(sum) = take(request, file, &adding, &downloader)? {
            sums.insert(file.name, &sum);
        }
    }
    let languages = match &request.languages {
        Some(languages) => languages.clone(),
        None => languages_of_card(request, &adding, &downloader)?,
    };
    let settings = Settings {
        query_prefix: request.query_prefix.clone().filter(|prefix| !prefix.is_empty()),
        document_prefix: request.document_prefix.clone().filter(|prefix| !prefix.is_empty()),
        languages,
        from: Some(request.source.shown()),
        sha256: sums.as_map().clone(),
    };
    settings.write(&adding.path().join(SETTINGS_FILE))?;
    eprintln!("preparing {}", request.name);
    prepare_and_try(adding.path()).map_err(|error| unusable(&error))?;
    adding.finish()?;
    Ok(request.name.clone())
}

/// Takes one file; `None` where there is none and none is needed.
fn take(
    request: &Request,
    file: &ModelFile,
    adding: &Adding<'_>,
    downloader: &Downloader,
) -> Result<Option<String>, Failure> {
    let wanted = request.sums.of(file.name);
    if wanted.is_none() && request.only_summed {
        return Ok(None);
    }
    let (path, place) = (adding.place(file.name)?, place(&request.source, file.name));
    let found = match &request.source {
        Source::Address(base) => {
            let url = below(base, file.name);
            refuse_unsafe(&url, wanted)?;
            eprintln!("fetching {}", shown(&url));
            downloader.fetch(&url, &path, file.max_bytes)?
        }
        Source::Folder(folder) => download::copy(&folder.join(file.name), &path, file.max_bytes)?,
    };
    match (found, wanted) {
        (Some(found), Some(wanted)) if found != wanted => Err(Failure::new(
            format!("{place} has the wrong SHA-256: {found}, expected {wanted}"),
            "It was damaged on its way, or it is another version. Nothing of it was kept.",
        )),
        (None, wanted) if file.is_required || wanted.is_some() => Err(Failure::new(
            format!("there is no {place}"),
            "Check the model's name or address. A model has config.json, tokenizer.json and model.safetensors; one in another format only cannot be used.",
        )),
        (found, _) => {
            if found.is_none() && file.name.contains('/') {
                // An empty folder is left where nothing came.
                let _ = path.parent().map(fs::remove_dir);
            }
            Ok(found)
        }
    }
}

fn place(source: &Source, name: &str) -> String {
    match source {
        Source::Address(base) => shown(&below(base, name)),
        Source::Folder(folder) => folder.join(name).display().to_string(),
    }
}

/// What is not checked must at least come from whom it says, untouched.
fn refuse_unsafe(url: &Url, wanted: Option<&str>) -> Result<(), Failure> {
    if wanted.is_some() || !is_open_to_others(url) {
        return Ok(());
    }
    Err(Failure::new(
        format!("{} would come over plain http, and its SHA-256 is not known", shown(url)),
        "Anybody on the way could change it: use https, or give the sums of all files with --sums.",
    ))
}

/// The languages that the model's card names, if it has one that does: its front matter is YAML, of which this reads no more
/// than one word or a list of words.
fn languages_of_card(request: &Request, adding: &Adding<'_>, downloader: &Downloader) -> Result<Vec<String>, Failure> {
    const MAX_CARD_BYTES: u64 = 1 << 20;
    if request.only_summed {
        return Ok(Vec::new());
    }
    let path = adding.place(".card")?;
    let taken = match &request.source {
        Source::Address(base) => {
            let url = below(base, "README.md");
            refuse_unsafe(&url, None).and_then(|()| downloader.fetch(&url, &path, MAX_CARD_BYTES))
        }
        Source::Folder(folder) => download::copy(&folder.join("README.md"), &path, MAX_CARD_BYTES),
    };
    // A card that cannot be had is no reason to do without the model.
    let card = match taken {
        Ok(Some(_)) => fs::read(&path).unwrap_or_default(),
        _ => Vec::new(),
    };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::of_file("remove", &path, &error)),
        _ => Ok(languages_in(&String::from_utf8_lossy(&card))),
    }
}

fn languages_in(card: &str) -> Vec<String> {
    let mut lines = card.lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return Vec::new();
    }
    let word = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    let mut front = lines.take_while(|line| line.trim_end() != "---").skip_while(|line| !line.starts_with("language:"));
    let Some(first) = front.next() else { return Vec::new() };
    let value = first["language:".len()..].trim().trim_matches(['[', ']']);
    let mut languages: Vec<String> = value.split(',').map(word).collect();
    languages.extend(front.map_while(|line| line.trim_start().strip_prefix("- ")).map(word));
    let is_language = |word: &String| {
        (2..=20).contains(&word.len()) && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    languages.into_iter().filter(is_language).take(200).collect()
}

/// Prepares the weights, and sees that the model computes.
fn prepare_and_try(dir: &Path) -> Result<(), EncoderError> {
    let mut go_on = || true;
    ragent_encoder::prepare(dir)?;
    match ragent_encoder::task(dir)? {
        Task::Embed(_) => {
            let mut encoder = Encoder::open(dir)?;
            encoder.embed_queries(&["Does it work?"], &mut go_on)?;
            encoder.embed_documents(&["It does."], &mut go_on)?;
        }
        Task::Rerank => {
            CrossEncoder::open(dir)?.score("Does it work?", &["It does."], &mut go_on)?;
        }
    }
    Ok(())
}

fn unusable(error: &EncoderError) -> Failure {
    Failure::new(
        format!("the model cannot be used: {error}"),
        "Models that can are BERT encoders with mean or CLS pooling, and BERT cross-encoders with one label. Nothing of it was kept.",
    )
}

#[cfg(test)]
mod tests {
    use super::languages_in;

    #[test]
    fn languages_are_read_from_a_models_card() {
        for (card, expected) in [
            ("---\nlanguage: en\nlicense: mit\n---\n# x", vec!["en"]),
            ("---\r\ntags:\r\n- x\r\nlanguage:\r\n- en\r\n- \"de\"\r\nlicense: mit\r\n---\r\n", vec!["en", "de"]),
            ("---\nlanguage: [en, 'fr']\n---", vec!["en", "fr"]),
            ("---\nlanguage:\n  - multilingual\n---", vec!["multilingual"]),
            ("---\nlicense: mit\n---\nlanguage: en", vec![]),
            ("language: en", vec![]),
            ("", vec![]),
            ("---\nlanguage: <script>\n---", vec![]),
        ] {
            assert_eq!(languages_in(card), expected, "{card:?}");
        }
    }
}
