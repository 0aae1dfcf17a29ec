//! The DDL of chunk tables.

use crate::collection::chunk_table::ChunkTable;
use crate::pg::spi::quote;
use pgrx::spi::quote_literal;

/// The policy that shows a chunk to those who may see its row. It names no columns of the source, so that those can be altered and
/// dropped; it names the key columns of the chunk table, whose type can be altered only while it is not there.
pub fn create_policy(table: &str, key_columns: &[String]) -> String {
    let key: Vec<String> = key_columns.iter().map(|name| quote(name)).collect();
    format!(
        "CREATE POLICY rag_same_as_source ON {table} FOR SELECT
            USING (rag_internal.shows_row(tableoid, source_hash, {}));",
        key.join(", ")
    )
}

impl ChunkTable<'_> {
    /// Creates the table with its policy and its comments.
    pub fn ddl(&self) -> String {
        let (table, source) = (self.qualified_name(), self.source);
        let key_definitions: Vec<String> = source
            .key_columns
            .iter()
            .zip(&self.key_columns)
            .map(|(k, name)| format!("{} {}{} NOT NULL", quote(name), k.sql_type, k.collation))
            .collect();
        let key_list = self.key_columns.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", ");
        format!(
            "CREATE TABLE {table} (
                {keys},
                chunk pg_catalog.int4 NOT NULL,
                chunk_id pg_catalog.int8 NOT NULL UNIQUE,
                content pg_catalog.text NOT NULL,
                content_hash pg_catalog.bytea NOT NULL,
                model pg_catalog.text NOT NULL,
                source_xmin pg_catalog.xid NOT NULL,
                source_hash pg_catalog.int8 NOT NULL,
                embedding {vector} NOT NULL,
                is_copy pg_catalog.bool NOT NULL,
                PRIMARY KEY ({key_list}, chunk)
            );
            ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
            {policy}
            {comments}",
            keys = key_definitions.join(", "),
            vector = self.embedding.sql_type(),
            policy = create_policy(&table, &self.key_columns),
            comments = self.comments(&table),
        )
    }

    /// Creates the index by which equal texts are found.
    pub fn index_of_texts(&self) -> String {
        format!("CREATE INDEX ON {} (content_hash, is_copy, chunk_id)", self.qualified_name())
    }

    /// Creates the index of the embeddings, once the rows are there that it is to begin with.
    pub fn index(&self) -> String {
        format!(
            "CREATE INDEX ON {} USING hnsw (embedding {}) WHERE NOT is_copy",
            self.qualified_name(),
            self.embedding.operator_class()
        )
    }

    fn comments(&self, table: &str) -> String {
        let mut sql = format!(
            "COMMENT ON TABLE {table} IS {};",
            quote_literal(format!(
                "Chunks of {} and their embeddings, kept current by pg_ragent (collection {}); readable by those who can read the row",
                self.source.name, self.collection
            ))
        );
        let described = [
            ("chunk", "Number of the chunk within its row, from 1"),
            ("chunk_id", "Number of the chunk, unlike all others of this database"),
            ("content", "Text of the chunk"),
            ("content_hash", "SHA-256 of model, title and text: a chunk whose hash is unchanged is not embedded again"),
            ("model", "Model of the embedding, as server/model"),
            ("source_xmin", "xmin of the row version the chunk was made of"),
            (
                "source_hash",
                "Hash of that version's title and content: a chunk whose row has changed since is not shown to others",
            ),
            ("embedding", "Embedding of title and text"),
            (
                "is_copy",
                "Whether another chunk of the same content_hash is in the index of the embeddings in this one's place",
            ),
        ];
        let keys = self.key_columns.iter().map(|name| (name.as_str(), "Primary key of the source row"));
        for (column, text) in keys.chain(described) {
            sql.push_str(&format!("COMMENT ON COLUMN {table}.{} IS {};", quote(column), quote_literal(text)));
        }
        sql
    }
}
