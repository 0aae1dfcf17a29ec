//! Embeds texts on one thread and prints how long it took: one half of `bench/embedding`.
//!
//! `throughput MODEL_FOLDER TEXTS_JSONL QUERIES_JSONL [GROUP]`; each line of the files has a field `text`. GROUP is the number of
//! texts of one call, 64 if it is not given. Prints one line of JSON: texts, seconds for all of them, the median milliseconds
//! for one query, and the milliseconds to open the model. Tokenizing is part of the time.

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

    let start = Instant::now();
    let mut encoder = if std::env::var_os("UNPREPARED").is_some() {
        Encoder::open_unprepared(Path::new(model))?
    } else {
        Encoder::open(Path::new(model))?
    };
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
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
    println!(
        r#"{{"texts": {}, "seconds": {seconds:.6}, "query_ms": {query_ms:.4}, "open_ms": {open_ms:.2}}}"#,
        texts.len()
    );
    Ok(())
}

/// The field `text` of each line of a file.
fn read(path: &str) -> Result<Vec<String>, Box<dyn Error>> {
    #[derive(serde::Deserialize)]
    struct Line {
        text: String,
    }
    std::fs::read_to_string(path)?.lines().map(|line| Ok(serde_json::from_str::<Line>(line)?.text)).collect()
}
