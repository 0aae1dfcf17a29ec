//! Prepares a model folder for faster embedding: writes `model.ragent` beside `model.safetensors`.

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: ragent-prepare [--check] MODEL_FOLDER

Writes model.ragent into the folder, from its model.safetensors.
With --check, compares an existing model.ragent with its checksum and with model.safetensors instead.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        ["--check", dir] => check(Path::new(dir)),
        [dir] if !dir.starts_with('-') => prepare(Path::new(dir)),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn prepare(dir: &Path) -> Result<String, String> {
    let path = ragent_encoder::prepare(dir).map_err(|error| format!("error: {error}"))?;
    Ok(format!("wrote {}", path.display()))
}

fn check(dir: &Path) -> Result<String, String> {
    match ragent_encoder::verify_prepared(dir) {
        Ok(None) => Ok(format!("{}: model.ragent is up to date", dir.display())),
        Ok(Some(reason)) => Err(format!("error: {}: {reason}", dir.display())),
        Err(error) => Err(format!("error: {error}")),
    }
}
