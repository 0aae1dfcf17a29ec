//! The chunks of a collection as they were when everything was embedded, with the content they were made of.

use std::collections::HashMap;

use ragent_server_tests::session::Session;
use serde_json::Value;

use super::table::Table;

/// A chunk.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub number: i64,
    pub content: String,
    pub embedding: Vec<f32>,
}

/// A row's content and its chunks.
#[derive(Debug, Clone)]
pub struct Row {
    pub content: Value,
    pub chunks: Vec<Chunk>,
}

/// The rows of a collection by their keys, which are JSON arrays.
pub type Stored = HashMap<String, Row>;

/// Reads a JSON text of the server's.
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn is_seen(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.trim().is_empty())
}

/// Reads it as the superuser.
pub async fn read(admin: &Session, table: &Table) -> Stored {
    let key = Table::key_values(&table.key_names());
    let mut stored = Stored::new();
    let mut titles = HashMap::new();
    let (content, title) = (table.content_values(), table.title_value());
    for row in admin.rows(&format!("SELECT {key}, {content}, {title} FROM {}", table.sql())).await {
        let [Some(key), Some(content), title] = &row[..] else { panic!("NULL in {row:?}") };
        titles.insert(json(key).to_string(), title.clone().unwrap_or_default());
        let row = Row { content: json(content), chunks: Vec::new() };
        assert!(stored.insert(json(key).to_string(), row).is_none(), "key {key} twice");
    }
    let key = Table::key_values(&table.chunk_keys);
    let chunks = format!("SELECT {key}, chunk, content, embedding FROM {} ORDER BY chunk_id", table.chunk_table);
    for row in admin.rows(&chunks).await {
        let [Some(key), Some(number), Some(content), Some(embedding)] = &row[..] else { panic!("NULL in {row:?}") };
        let row = stored.get_mut(&json(key).to_string()).unwrap_or_else(|| panic!("a chunk of no row: {key}"));
        // What has no content is found by its title.
        let is_titled = row.content.as_array().is_some_and(|texts| texts.iter().all(|text| !is_seen(text.as_str())));
        let words = if is_titled { titles[&json(key).to_string()].clone() } else { row.content.to_string() };
        let strange = content.split_whitespace().find(|word| !words.contains(word));
        assert_eq!(strange, None, "a chunk of key {key} has text that its row has not: {content:?}");
        row.chunks.push(Chunk {
            number: number.parse().expect("chunks are numbered"),
            content: content.clone(),
            embedding: json(embedding)
                .as_array()
                .map_or_else(Vec::new, |vector| vector.iter().map(|x| x.as_f64().unwrap_or(f64::NAN) as f32).collect()),
        });
    }
    for (key, row) in &stored {
        let has_text = is_seen(row.content[0].as_str()) || is_seen(Some(titles[key].as_str()));
        assert!(!has_text || !row.chunks.is_empty(), "the row of key {key} has no chunk: {}", row.content);
    }
    stored
}
