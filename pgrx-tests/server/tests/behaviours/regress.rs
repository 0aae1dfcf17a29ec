//! SQL in, SQL out: every `regress/sql/*.sql` prints what `regress/expected/*.out` says.
//!
//! `REGRESS_ACCEPT=1 cargo test -p ragent-server-tests regress` writes the expected files anew; read the difference.

use std::path::{Path, PathBuf};
use std::process::Command;

use ragent_server_tests::database::Database;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../regress")
}

/// What psql prints for a script, errors included, in the order they come.
async fn output_of(script: &Path) -> String {
    let db = Database::new().await;
    // psql writes errors to another stream: one shell line brings both together in order.
    let psql = db.cluster.psql_command(&db.name);
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg("exec \"$0\" -X -a -q -v VERBOSITY=default -f - < \"$1\" 2>&1")
        .arg(psql.get_program())
        .arg(script);
    for (name, value) in psql.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    let output = shell.env("LC_ALL", "C").output().expect("sh can be started");
    let text = String::from_utf8(output.stdout).expect("psql prints UTF-8");
    text.replace("psql:<stdin>:", "line ").replace(&db.provider.base_url(), "http://provider/v1")
}

fn difference(expected: &Path, actual: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), actual).expect("it can be written");
    let output = Command::new("diff").arg("-u").arg(expected).arg(file.path()).output().expect("diff can be started");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn every_script_prints_what_is_expected() {
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(folder().join("sql"))
        .expect("there is a folder of scripts")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "sql"))
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    let accept = std::env::var_os("REGRESS_ACCEPT").is_some();
    let mut failures = String::new();
    for script in scripts {
        let name = script.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let expected = folder().join("expected").join(format!("{name}.out"));
        let actual = output_of(&script).await;
        let known = std::fs::read_to_string(&expected).unwrap_or_default();
        if accept {
            std::fs::write(&expected, &actual).expect("the expected output can be written");
        } else if known != actual {
            failures.push_str(&format!("=== {name} ===\n{}\n", difference(&expected, &actual)));
        }
    }
    assert!(failures.is_empty(), "output differs (accept with REGRESS_ACCEPT=1):\n{failures}");
}
