//! Every SQL block of the README and the guides runs.
//!
//! One psql session a file, top to bottom, against the fake provider in place of the one the guide names. A block that
//! cannot run here begins with ```` ```sql skip ````, and why must be said beside it.

use std::path::{Path, PathBuf};

use ragent_server_tests::cluster::{Cluster, SUPERUSER};
use ragent_server_tests::provider::FakeProvider;

const REAL_PROVIDER: &str = "https://api.openai.com/v1";

/// The root of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout has a root")
}

/// An SQL block and the line it starts on.
struct Block {
    line: usize,
    sql: String,
}

/// The blocks of a page that shall run.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut in_other = false;
    for (number, line) in page.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.sql.push_str(line);
                block.sql.push('\n');
            }
            (None, Some(info)) if in_other => in_other = !info.is_empty(),
            (None, Some("sql")) => open = Some(Block { line: number + 1, sql: String::new() }),
            (None, Some(_)) => in_other = true,
            (None, None) => {}
        }
    }
    blocks
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let guides = std::fs::read_dir(root().join("docs")).expect("there is a folder of guides");
    let guides = guides.map(|entry| entry.expect("a readable folder").path());
    pages.extend(guides.filter(|path| path.extension().is_some_and(|e| e == "md")));
    pages.sort();
    pages
}

/// The page's blocks as one psql script, each announced so that a failure names its line.
fn script(page: &str, provider: &FakeProvider) -> String {
    let blocks = blocks(page);
    let all: String = blocks.iter().map(|b| b.sql.as_str()).collect();
    let mut script = String::new();
    let server = format!(
        "CREATE SERVER openai FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'openai', base_url '{REAL_PROVIDER}',
             api_key_env 'OPENAI_API_KEY');\n"
    );
    let needs_server = all.contains("openai/") && !all.contains("CREATE SERVER openai");
    if !all.contains("CREATE EXTENSION") {
        script.push_str("CREATE EXTENSION pg_ragent CASCADE;\n");
        if needs_server {
            script.push_str(&server);
        }
    }
    for block in &blocks {
        script.push_str(&format!("\\echo block at line {}\n{}\n", block.line, block.sql));
        if needs_server && block.sql.contains("CREATE EXTENSION") {
            script.push_str(&server);
        }
    }
    script.replace(REAL_PROVIDER, &provider.base_url())
}

#[tokio::test]
async fn every_sql_block_runs() {
    let cluster = Cluster::builder().environment("OPENAI_API_KEY", "sk-of-the-guides").start().await;
    let mut ran = 0;
    for (n, path) in pages().iter().enumerate() {
        let page = std::fs::read_to_string(path).expect("a readable page");
        let count = blocks(&page).len();
        if count == 0 {
            continue;
        }
        let provider = FakeProvider::start();
        let database = format!("page{n}");
        cluster.connect("postgres", SUPERUSER).await.run(&format!("CREATE DATABASE {database}")).await;
        let file = cluster.socket_folder().join(format!("{database}.sql"));
        std::fs::write(&file, script(&page, &provider)).expect("the script can be written");
        let mut psql = cluster.psql_command(&database);
        psql.env("PGOPTIONS", "-c statement_timeout=120s").arg("-f").arg(&file);
        let output = psql.output().expect("psql can be started");
        let said = String::from_utf8_lossy(&output.stdout);
        let place =
            said.lines().rev().find(|line| line.starts_with("block at line")).unwrap_or("before the first block");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}, {place}:\n{errors}", path.display());
        ran += count;
        cluster.psql("postgres", &format!("DROP DATABASE {database} WITH (FORCE)"));
    }
    assert!(ran > 0, "the README has no SQL");
    println!("{ran} blocks ran");
}

#[test]
fn blocks_are_found_and_skipped_as_marked() {
    let page =
        "text\n```sql\nSELECT 1;\n```\n```sql skip\nSELECT 2;\n```\n```text\n```\n  ```sql\n  SELECT 3;\n  ```\n";
    let found: Vec<(usize, String)> = blocks(page).into_iter().map(|b| (b.line, b.sql)).collect();
    assert_eq!(found, [(2, "SELECT 1;\n".to_owned()), (10, "  SELECT 3;\n".to_owned())]);
}
