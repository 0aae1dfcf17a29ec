//! The DDL of chunk tables.

use crate::collection::chunk_table::ChunkTable;
use crate::pg::spi::quote;
use crate::registry::statements::{columns, hash_of_texts};
use pgrx::spi::quote_literal;

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
        // The policy's subquery names the content columns so that reading a chunk asks for the same rights as
        // reading them; it also makes PostgreSQL follow their renaming and refuse to drop them unasked.
        let content_names: Vec<String> = self.content.iter().map(|c| c.name.clone()).collect();
        let readable = columns("s", &[source.key.columns.clone(), content_names].concat());
        let texts: Vec<String> = self.content.iter().map(|column| column.as_text("s")).collect();
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
                PRIMARY KEY ({key_list}, chunk)
            );
            ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
            CREATE POLICY rag_same_as_source ON {table} FOR SELECT
                USING (EXISTS (SELECT {readable} FROM {source_name} s WHERE {same_key}
                               AND {hash} OPERATOR(pg_catalog.=) {table}.source_hash));
            {comments}",
            keys = key_definitions.join(", "),
            vector = self.embedding.sql_type(),
            source_name = source.name,
            same_key = source.key.join("s", &source.key.columns, &table, &self.key_columns),
            // Not by xmin, which is quicker: system columns cannot be granted, and a role may have columns only.
            hash = hash_of_texts(&texts),
            comments = self.comments(&table),
        )
    }

    /// Creates its index, once the rows are there that it is to begin with.
    pub fn index(&self) -> String {
        format!("CREATE INDEX ON {} USING hnsw (embedding {})", self.qualified_name(), self.embedding.operator_class())
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
                "Hash of that version's content: a chunk whose row has changed since is not shown to others",
            ),
            ("embedding", "Embedding of title and text"),
        ];
        let keys = self.key_columns.iter().map(|name| (name.as_str(), "Primary key of the source row"));
        for (column, text) in keys.chain(described) {
            sql.push_str(&format!("COMMENT ON COLUMN {table}.{} IS {};", quote(column), quote_literal(text)));
        }
        sql
    }
}
