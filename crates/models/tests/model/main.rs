//! The program `ragent-model` against a server of this machine: what it fetches, what it refuses, what it leaves behind.

#[path = "../../../encoder/tests/common/tiny.rs"]
#[allow(dead_code)]
mod tiny;

mod server;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ragent_encoder::{Encoder, SETTINGS_FILE, verify_prepared};
use serde_json::{Value, json};
use server::{Reply, Server};
use tempfile::TempDir;
use tiny::Tiny;

/// A folder of models, and the program that looks after it.
struct Models {
    dir: TempDir,
}

/// What a run of the program said.
struct Said {
    ok: bool,
    out: String,
    error: String,
}

impl Models {
    fn new() -> Models {
        Models { dir: tempfile::tempdir().expect("a temporary folder is made") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("models").join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // As an administrator with a strict umask, whose files nobody else could read.
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_ragent-model")]).args(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("RAGENT_MODEL_DIR", self.path(""));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).spawn().expect("the program starts"))
    }

    fn run_well(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert!(said.ok, "{arguments:?}: {}", said.error);
        said.out
    }

    /// Runs what must fail, with these words and a hint, and leave nothing behind.
    fn run_badly(&self, arguments: &[&str], words: &[&str]) {
        let before = self.entries();
        let said = self.run(arguments);
        assert!(!said.ok, "{arguments:?} went well");
        for word in ["error: ", "\nhint: "].iter().chain(words) {
            assert!(said.error.contains(word), "{arguments:?}: \"{}\" does not say \"{word}\"", said.error);
        }
        assert_eq!(self.entries(), before, "{arguments:?} leaves something behind");
    }

    /// What is in the folder, hidden or not, but for the lock.
    fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().expect("a plain name"));
        let mut names: Vec<String> = names.filter(|name| name != ".ragent-model.lock").collect();
        names.sort();
        names
    }
}

fn said(child: Child) -> Said {
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Said { ok: output.status.success(), out: text(output.stdout), error: text(output.stderr) }
}

fn files_of(tiny: &Tiny) -> Vec<(String, Vec<u8>)> {
    let dir = tiny.write();
    let files = [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    ];
    let read = |name: &&str| fs::read(dir.path().join(name)).ok().map(|bytes| ((*name).to_owned(), bytes));
    files.iter().filter_map(read).collect()
}

/// Serves a model below a path.
fn serve(server: &Server, path: &str, tiny: &Tiny) {
    for (name, bytes) in files_of(tiny) {
        server.set(&format!("{path}/{name}"), Reply::Bytes(bytes));
    }
}

/// SHA-256 sums of a model's files, as sha256sum writes them.
fn sums_of(tiny: &Tiny) -> String {
    let mut sums = String::new();
    for (name, bytes) in files_of(tiny) {
        writeln!(sums, "{}  tiny/{name}", sum_of(&bytes)).expect("written");
    }
    sums
}

/// By the system's own program.
fn sum_of(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().expect("made");
    fs::write(file.path(), bytes).expect("written");
    let output = Command::new("sha256sum").arg(file.path()).output().expect("sha256sum runs");
    String::from_utf8(output.stdout).expect("text")[..64].to_owned()
}

fn weights_sum(tiny: &Tiny) -> String {
    sum_of(&tiny.safetensors())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_model_is_fetched_checked_prepared_described_and_removed() {
    let (server, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&server, "/m", &tiny);
    server.set("/m/README.md", Reply::Bytes(b"---\nlanguage:\n- en\n- de\n---\n".to_vec()));
    let sum = weights_sum(&tiny);
    let out = models.run_well(&["add", "tiny", "--from", &server.address("/m"), "--sha256", &sum]);
    for words in ["tiny", "16 dimensions", "18 tokens", "mean", "en, de", "prepared: yes", &sum, "local/tiny"] {
        assert!(out.contains(words), "\"{out}\" does not say \"{words}\"");
    }
    for (name, bytes) in files_of(&tiny) {
        assert_eq!(fs::read(models.path("tiny").join(&name)).expect("it is there"), bytes, "{name}");
        assert_eq!(mode(&models.path("tiny").join(&name)), 0o644, "the server's user reads {name}");
    }
    assert_eq!(mode(&models.path("tiny")), 0o755);
    assert_eq!(mode(&models.path("tiny/1_Pooling")), 0o755);
    assert_eq!(mode(&models.path("tiny/model.ragent")), 0o644);
    assert_eq!(verify_prepared(&models.path("tiny")).expect("read"), None);
    assert_eq!(models.entries(), ["tiny"]);

    let list = models.run_well(&["list"]);
    assert!(out.starts_with(&list), "{list}");
    models.run_badly(&["add", "tiny", "--from", &server.address("/m"), "--sha256", &sum], &["already", "--replace"]);
    models.run_badly(&["remove", "other"], &["no model \"other\"", "tiny"]);
    assert!(models.run_well(&["remove", "tiny"]).contains("removed tiny"));
    assert!(models.entries().is_empty());
    assert!(models.run_well(&["list"]).contains("no model"));
}

#[test]
fn the_prefixes_of_a_model_are_its_settings() {
    let (server, models) = (Server::start(), Models::new());
    let prompts = json!({"prompts": {"query": "a ", "passage": "b "}});
    serve(&server, "/m", &Tiny { prompts: Some(prompts), ..Tiny::plain() });
    let address = server.address("/m");
    let out = models.run_well(&["add", "theirs", "--from", &address, "--unpinned", "--languages=fr,it"]);
    for words in ["query prefix: \"a \"", "document prefix: \"b \"", "fr, it", "17 tokens"] {
        assert!(out.contains(words), "\"{out}\" does not say \"{words}\"");
    }
    models.run_well(&["add", "ours", "--from", &address, "--unpinned", "--query-prefix", "wing \"x\" "]);
    let settings = fs::read(models.path("ours").join(SETTINGS_FILE)).expect("it is there");
    let settings: Value = serde_json::from_slice(&settings).expect("JSON");
    assert_eq!(settings["query_prefix"], "wing \"x\" ");
    assert_eq!(settings["sha256"]["model.safetensors"], weights_sum(&Tiny::plain()));
    let encoder = Encoder::open(&models.path("ours")).expect("it opens");
    assert_eq!((encoder.query_prefix(), encoder.document_prefix()), ("wing \"x\" ", "b "));
    models.run_badly(
        &["add", "long", "--from", &address, "--unpinned", "--document-prefix", &"a ".repeat(100)],
        &["cannot be used", "100 tokens"],
    );
}

#[test]
fn a_cross_encoder_is_added_as_what_it_is() {
    let (server, models) = (Server::start(), Models::new());
    serve(&server, "/m", &Tiny::cross(16, 2, 2, 24, 20));
    let out = models.run_well(&["add", "pairs", "--from", &server.address("/m"), "--unpinned"]);
    assert!(out.contains("reranks") && out.contains("20 tokens") && out.contains("prepared: yes"), "{out}");
}

#[test]
fn a_hub_is_asked_for_a_revision_of_a_repository() {
    let (server, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&server, "/hub/someone/tiny/resolve/v1", &tiny);
    let sum = weights_sum(&tiny);
    let hub = server.address("/hub/");
    let add = ["add", "someone/tiny", "--hub", &hub, "--sha256", &sum];
    models.run_badly(&add, &["there is no", "/hub/someone/tiny/resolve/main/config.json"]);
    models.run_well(&[&add[..], &["--revision", "v1"]].concat());
    models.run_well(&[&add[..], &["--revision", "v1", "--as", "copy"]].concat());
    assert_eq!(models.entries(), ["copy", "tiny"]);
}

#[test]
fn only_files_with_the_right_sums_are_taken() {
    let (server, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&server, "/m", &tiny);
    let address = server.address("/m");
    let sums = models.dir.path().join("SUMS");
    let sums_path = sums.to_str().expect("a plain path").to_owned();
    fs::write(&sums, sums_of(&tiny)).expect("written");
    models.run_well(&["add", "good", "--from", &address, "--sums", &sums_path]);

    // A file that has no sum is not taken, though it is there.
    let without: String = sums_of(&tiny)
        .lines()
        .filter(|line| !line.contains("sentence_bert"))
        .fold(String::new(), |text, line| text + line + "\n");
    fs::write(&sums, without).expect("written");
    models.run_well(&["add", "less", "--from", &address, "--sums", &sums_path]);
    assert!(!models.path("less/sentence_bert_config.json").exists());

    fs::write(&sums, sums_of(&tiny)).expect("written");
    for name in ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"] {
        let mut bytes = files_of(&tiny).into_iter().find(|file| file.0 == name).expect("a file").1;
        bytes.push(b' ');
        let path = format!("/m/{name}");
        server.set(&path, Reply::Bytes(bytes.clone()));
        models.run_badly(&["add", "x", "--from", &address, "--sums", &sums_path], &["wrong SHA-256", name, "expected"]);
        bytes.pop();
        server.set(&path, Reply::Bytes(bytes));
    }
    models.run_badly(
        &["add", "x", "--from", &address, "--sha256", &"0".repeat(64)],
        &["model.safetensors has the wrong SHA-256", &"0".repeat(64)],
    );
    let mut incomplete = sums_of(&tiny);
    incomplete.push_str(&format!("{}  tokenizer_config.json\n", "0".repeat(64)));
    fs::write(&sums, incomplete).expect("written");
    models
        .run_badly(&["add", "x", "--from", &address, "--sums", &sums_path], &["there is no", "tokenizer_config.json"]);
}

#[test]
fn what_servers_do_on_bad_days_leaves_nothing_behind() {
    let (server, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&server, "/m", &tiny);
    let address = server.address("/m");
    let add = ["add", "x", "--from", &address, "--unpinned", "--timeout", "0.5"];
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let path = format!("/m/{name}");
        let good = files_of(&tiny).into_iter().find(|file| file.0 == name).expect("a file").1;
        for (reply, words) in [
            (Reply::Truncated(good.clone()), "was not received"),
            (Reply::Endless, "is larger than"),
            (Reply::Stalled, "nothing arrived for 0.5 seconds"),
            (Reply::Page { is_said: true }, "is a web page"),
            (Reply::Page { is_said: false }, "is a web page"),
            (Reply::Status(404, "no"), "there is no"),
            (Reply::Status(401, "no"), "status 401"),
            (Reply::Status(403, "no"), "status 403"),
            (Reply::Status(500, "no"), "status 500"),
            (Reply::Status(204, ""), "status 204"),
            (Reply::Bytes(b"{}".to_vec()), "cannot be used"),
            (Reply::Bytes(Vec::new()), "cannot be used"),
        ] {
            server.set(&path, reply);
            models.run_badly(&add, &[name, words]);
        }
        server.set(&path, Reply::Bytes(good));
    }
    // Of a file that need not be there, only that it is not there is no failure.
    server.set("/m/modules.json", Reply::Status(503, "later"));
    models.run_badly(&add, &["modules.json", "status 503"]);
    server.set("/m/modules.json", Reply::Page { is_said: true });
    models.run_badly(&add, &["modules.json", "is a web page"]);
    server.set("/m/modules.json", Reply::Status(404, "no"));
    models.run_well(&add);
    // A port that nobody listens on.
    models.run_badly(&["add", "y", "--from", "http://127.0.0.1:1/m", "--unpinned"], &["could not connect"]);
}

#[test]
fn what_cannot_be_used_is_told_before_the_weights_are_fetched() {
    let (server, models) = (Server::start(), Models::new());
    let mut tiny = Tiny::plain();
    tiny.config["model_type"] = json!("roberta");
    serve(&server, "/m", &tiny);
    models.run_badly(&["add", "x", "--from", &server.address("/m"), "--unpinned"], &["cannot be used", "roberta"]);
    assert!(!server.requests().iter().any(|line| line.contains("safetensors")), "{:?}", server.requests());
}

#[test]
fn redirects_lead_only_where_they_may() {
    let (server, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&server, "/m", &tiny);
    serve(&server, "/other", &tiny);
    let address = server.address("/m");
    let weights = "/m/model.safetensors";
    server.set(weights, Reply::Redirect("/other/model.safetensors".to_owned()));
    models.run_well(&["add", "same", "--from", &address, "--unpinned"]);

    server.set(weights, Reply::Redirect(server.other_address("/other/model.safetensors")));
    let asked = server.requests().len();
    models.run_badly(&["add", "x", "--from", &address, "--unpinned"], &["to host localhost", "--allow-host"]);
    let asked_for = |line: &String| line.contains("/other/");
    assert!(!server.requests()[asked..].iter().any(asked_for), "the other host was not asked");
    models.run_well(&["add", "allowed", "--from", &address, "--unpinned", "--allow-host", "localhost"]);
    models
        .run_badly(&["add", "x", "--from", &address, "--unpinned", "--allow-host", "calhost"], &["to host localhost"]);

    server.set(weights, Reply::Redirect(weights.to_owned()));
    models.run_badly(&["add", "x", "--from", &address, "--unpinned"], &["more than 5 redirects"]);
}

#[test]
fn a_proxy_of_the_environment_is_used() {
    let (proxy, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&proxy, "http://models.invalid/m", &tiny);
    let sums = models.dir.path().join("SUMS");
    fs::write(&sums, sums_of(&tiny)).expect("written");
    let arguments = ["add", "x", "--from", "http://models.invalid/m", "--sums", sums.to_str().expect("a plain path")];
    let mut command = models.command(&arguments);
    let said = said(
        command.env("HTTP_PROXY", proxy.address("")).env("http_proxy", proxy.address("")).spawn().expect("it starts"),
    );
    assert!(said.ok, "{}", said.error);
    assert!(proxy.requests().iter().all(|line| line.starts_with("GET http://models.invalid/m/")));
}

#[test]
fn without_a_sum_nothing_is_taken_over_plain_http_from_elsewhere() {
    let models = Models::new();
    let from = ["--from", "http://models.invalid/m"];
    models.run_badly(&[&["add", "x", "--unpinned"], &from[..]].concat(), &["plain http", "config.json"]);
    let sum = "0".repeat(64);
    models.run_badly(&[&["add", "x", "--sha256", &sum], &from[..]].concat(), &["plain http", "config.json"]);
    models.run_badly(&[&["add", "x"], &from[..]].concat(), &["no SHA-256", "--unpinned"]);
    models.run_badly(&["add", "someone/x"], &["no SHA-256", "--unpinned"]);
}

#[test]
fn names_lead_to_no_other_folder() {
    let models = Models::new();
    fs::create_dir_all(models.path("")).expect("made");
    let outside = models.dir.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("config.json"), "{}").expect("written");
    for name in ["../outside", "..", ".", "", "/etc", "a/../b", ".hidden", "a\\b", "ä", "-x"] {
        if !name.starts_with('-') {
            models.run_badly(&["remove", name], &["cannot be a model's name"]);
        }
        models.run_badly(&["add", "x", "--from", "/nowhere", "--as", name], &["cannot be a model's name"]);
    }
    for name in ["../outside", "a/../b", "a//b", "/a"] {
        models.run_badly(&["add", name, "--from", "/nowhere"], &["cannot be a model's name"]);
        models.run_badly(&["add", name, "--unpinned"], &["cannot be a model's name"]);
    }
    models.run_badly(&["add", "a/b", "--unpinned", "--revision", "../../x"], &["cannot be a model's name"]);
    assert!(outside.join("config.json").exists());

    // A link is removed, not what it leads to.
    std::os::unix::fs::symlink(&outside, models.path("link")).expect("made");
    models.run_well(&["remove", "link"]);
    assert!(outside.join("config.json").exists());
    // What is no model stays.
    fs::create_dir(models.path("notes")).expect("made");
    fs::write(models.path("notes/text"), "mine").expect("written");
    models.run_badly(&["remove", "notes"], &["no model's folder"]);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let models = Models::new();
    for arguments in [
        &[] as &[&str],
        &["fetch", "x"],
        &["add"],
        &["add", "x", "y"],
        &["add", "x", "--frm", "y"],
        &["add", "x", "--from"],
        &["add", "x", "--from", "https://h/m", "--hub", "https://h"],
        &["add", "x", "--from", "https://h/m", "--unpinned", "--sha256", &"0".repeat(64)],
        &["add", "x", "--from", "https://h/m", "--sha256", "abc"],
        &["add", "x", "--from", "https://h/m?key=1", "--unpinned"],
        &["add", "x", "--from", "ftp://h/m", "--unpinned"],
        &["add", "x", "--from", "https://h/m", "--timeout", "0"],
        &["add", "unknown-model"],
        &["list", "x"],
    ] {
        models.run_badly(arguments, &[]);
    }
    assert!(models.run_well(&["--help"]).contains("usage: ragent-model"));
}

#[test]
fn a_folder_of_this_machine_serves_as_well() {
    let (models, tiny) = (Models::new(), Tiny::plain());
    let source = tiny.write();
    let path = source.path().to_str().expect("a plain path");
    models.run_well(&["add", "tiny", "--from", path]);
    models.run_badly(&["add", "x", "--from", path, "--sha256", &"0".repeat(64)], &["wrong SHA-256"]);
    models.run_badly(&["add", "x", "--from", "/no/such/folder"], &["there is no /no/such/folder/config.json"]);
}

#[test]
fn a_model_takes_the_place_of_another_only_when_it_is_whole() {
    let (server, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&server, "/m", &tiny);
    let address = server.address("/m");
    models.run_well(&["add", "x", "--from", &address, "--unpinned"]);
    let replace = ["add", "x", "--from", &address, "--unpinned", "--replace", "--query-prefix", "a "];
    server.set("/m/model.safetensors", Reply::Truncated(tiny.safetensors()));
    models.run_badly(&replace, &["was not received"]);
    assert_eq!(Encoder::open(&models.path("x")).expect("the old one opens").query_prefix(), "");
    server.set("/m/model.safetensors", Reply::Bytes(tiny.safetensors()));
    models.run_well(&replace);
    assert_eq!(Encoder::open(&models.path("x")).expect("the new one opens").query_prefix(), "a ");
    assert_eq!(models.entries(), ["x"]);
}

#[test]
fn an_interrupted_download_leaves_nothing_that_looks_like_a_model() {
    let (server, models, tiny) = (Server::start(), Models::new(), Tiny::plain());
    serve(&server, "/m", &tiny);
    server.set("/m/model.safetensors", Reply::Stalled);
    let address = server.address("/m");
    for signal in ["TERM", "INT", "KILL"] {
        let asked = server.requests().len();
        let child = models.command(&["add", "x", "--from", &address, "--unpinned"]).spawn().expect("it starts");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !server.requests()[asked..].iter().any(|line| line.contains("safetensors")) {
            assert!(Instant::now() < deadline, "the weights are asked for");
            thread::sleep(Duration::from_millis(10));
        }
        // One at a time, and the other's files are left alone.
        models.run_badly(&["add", "y", "--from", &address, "--unpinned"], &["another ragent-model"]);
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        let said = said(child);
        assert!(!said.ok);
        if signal != "KILL" {
            assert!(said.error.contains("interrupted"), "{}", said.error);
            assert!(models.entries().is_empty(), "{:?}", models.entries());
        }
    }
    // What a killed run left is no model, and goes away with the next.
    assert!(models.run_well(&["list"]).contains("no model"));
    assert_eq!(models.entries().len(), 1);
    server.set("/m/model.safetensors", Reply::Bytes(tiny.safetensors()));
    models.run_well(&["add", "x", "--from", &address, "--unpinned"]);
    assert_eq!(models.entries(), ["x"]);
}

#[test]
fn a_broken_model_does_not_hide_the_others_from_the_list() {
    let models = Models::new();
    models.run_well(&["add", "good", "--from", Tiny::plain().write().path().to_str().expect("a plain path")]);
    fs::create_dir(models.path("broken")).expect("made");
    fs::write(models.path("broken/config.json"), "{").expect("written");
    let list = models.run_well(&["list"]);
    assert!(list.contains("broken\n    cannot be used") && list.contains("good\n    embeds"), "{list}");
    models.run_well(&["remove", "broken"]);
}

/// The real model, its files known by their sums.
#[test]
fn a_known_model_is_taken_only_as_it_is_known() {
    let models = Models::new();
    let root = match std::env::var_os("RAGENT_MODEL_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/models")),
    };
    let source = root.join("all-MiniLM-L6-v2");
    assert!(source.join("config.json").exists(), "run `make setup`, or set RAGENT_MODEL_DIR");
    let from = source.to_str().expect("a plain path");
    let out = models.run_well(&["add", "all-MiniLM-L6-v2", "--from", from]);
    for words in ["384 dimensions", "254 tokens", "languages: en", "prepared: yes"] {
        assert!(out.contains(words), "\"{out}\" does not say \"{words}\"");
    }
    // Another model under its name, and it under another model's name.
    let tiny = Tiny::plain().write();
    let from_tiny = tiny.path().to_str().expect("a plain path");
    let replace = ["add", "sentence-transformers/all-MiniLM-L6-v2", "--replace", "--from", from_tiny];
    models.run_badly(&replace, &["config.json has the wrong SHA-256"]);
    models.run_badly(&["add", "bge-small-en-v1.5", "--from", from], &["config.json has the wrong SHA-256"]);
}
