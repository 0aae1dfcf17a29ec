//! Embeds texts on one thread and prints how long it took: one half of `bench/embedding`.
//!
//! `throughput MODEL_FOLDER TEXTS_JSONL QUERIES_JSONL [GROUP]`; each line of the files has a field `text`. GROUP is the number of
//! texts of one call, 64 if it is not given. Prints one line of JSON: texts, seconds for all of them, the median milliseconds
//! for one query, the milliseconds to open the model, and the megabytes of memory that this process shares with no other,
//! after opening the model and at the end, less what it had before (0 where the system does not tell).
//! Tokenizing is part of the time. With UNPREPARED in the environment the prepared file is not used.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use ragent_encoder::Encoder;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, texts, queries, rest @ ..] = arguments.as_slice() else {
        return Err("usage: throughput MODEL_FOLDER TEXTS_JSONL QUERIES_JSONL [GROUP]".into());
    };
    let group = rest.first().map_or(Ok(64), |group| group.parse())?;
    let (texts, queries) = (read(texts)?, read(queries)?);

    let private_before = private_mb();
    let start = Instant::now();
    let mut encoder = if std::env::var_os("UNPREPARED").is_some() {
        Encoder::open_unprepared(Path::new(model))?
    } else {
        Encoder::open(Path::new(model))?
    };
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let open_mb = private_mb() - private_before;
    let mut embed = |texts: &[String]| {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        encoder.embed(&texts, &mut || true)
    };
    embed(&texts[..texts.len().min(16)])?;

    let mut times = Vec::with_capacity(queries.len());
    for query in &queries {
        let start = Instant::now();
        embed(std::slice::from_ref(query))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let query_ms = times[times.len() / 2];

    let start = Instant::now();
    for group in texts.chunks(group) {
        embed(group)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let private_mb = private_mb() - private_before;
    println!(
        r#"{{"texts": {}, "seconds": {seconds:.6}, "query_ms": {query_ms:.4}, "open_ms": {open_ms:.2}, "open_mb": {open_mb:.1}, "private_mb": {private_mb:.1}}}"#,
        texts.len()
    );
    Ok(())
}

/// Anonymous memory of this process, as Linux counts it; mapped files are not in it.
fn private_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}

/// The field `text` of each line of a file.
fn read(path: &str) -> Result<Vec<String>, Box<dyn Error>> {
    #[derive(serde::Deserialize)]
    struct Line {
        text: String,
    }
    std::fs::read_to_string(path)?.lines().map(|line| Ok(serde_json::from_str::<Line>(line)?.text)).collect()
}
