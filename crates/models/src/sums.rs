//! SHA-256 sums of a model's files.

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::Failure;
use crate::source::FILES;

/// Sums by file name, in small hexadecimal digits.
#[derive(Debug, Clone, Default)]
pub struct Sums(BTreeMap<String, String>);

impl Sums {
    /// From lines as `sha256sum` writes them. Names may have a folder before them; what is no file of a model is left out.
    ///
    /// # Errors
    ///
    /// A line of another form; a file without which there is no model is missing.
    pub fn parse(text: &str, path: &Path) -> Result<Sums, Failure> {
        let hint = "Write it with sha256sum, in the model's folder: one line a file, the sum, two blanks, the name.";
        let mut sums = Sums::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let (sum, name) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            let name = name.trim_start_matches([' ', '\t', '*']).trim_end();
            if !is_sum(sum) || name.is_empty() {
                return Err(Failure::new(format!("{} has a line that is no SHA-256 sum", path.display()), hint));
            }
            let is_at_end = |file: &&str| name == *file || name.ends_with(&format!("/{file}"));
            // The longest, since config.json is also the end of 1_Pooling/config.json.
            if let Some(file) = FILES.iter().map(|file| file.name).filter(is_at_end).max_by_key(|file| file.len()) {
                sums.insert(file, sum);
            }
        }
        match FILES.iter().find(|file| file.is_required && sums.of(file.name).is_none()) {
            Some(file) => Err(Failure::new(format!("{} has no sum of {}", path.display(), file.name), hint)),
            None => Ok(sums),
        }
    }

    pub fn insert(&mut self, name: &str, sum: &str) {
        self.0.insert(name.to_owned(), sum.to_ascii_lowercase());
    }

    pub fn of(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

/// Whether this is a SHA-256 sum in hexadecimal digits.
pub fn is_sum(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Sums, String> {
        Sums::parse(text, Path::new("SUMS")).map_err(|failure| failure.to_string())
    }

    #[test]
    fn sums_are_read_as_sha256sum_writes_them() {
        let (a, b, c, d) = ("A".repeat(64), "b".repeat(64), "c".repeat(64), "d".repeat(64));
        let sums = parse(&format!(
            "{a}  m/config.json\n{b} *m/tokenizer.json\r\n\n{c}  m/model.safetensors\n{d}  m/1_Pooling/config.json\n{d}  m/vocab.txt\n"
        ));
        let sums = sums.expect("read");
        assert_eq!(sums.of("config.json"), Some("a".repeat(64).as_str()));
        assert_eq!(sums.of("1_Pooling/config.json"), Some(d.as_str()));
        assert_eq!(sums.as_map().len(), 4);
    }

    #[test]
    fn what_is_no_list_of_sums_is_refused() {
        let sum = "a".repeat(64);
        for (text, words) in [
            (String::new(), "no sum of config.json"),
            (format!("{sum}  config.json\n{sum}  tokenizer.json\n"), "no sum of model.safetensors"),
            ("abc  config.json".to_owned(), "no SHA-256 sum"),
            (sum.clone(), "no SHA-256 sum"),
            ("<html></html>".to_owned(), "no SHA-256 sum"),
        ] {
            let message = parse(&text).expect_err("refused");
            assert!(message.contains(words), "{message}");
        }
    }
}
