//! `rag_internal.collection`: reading, creating, dropping.

use crate::error::{Error, Result};
use crate::pg::catalog;
use crate::pg::role::{ActingAs, SUPERUSER, Settings};
use crate::pg::spi::{self, Mode, Row, arg, quote};
use pgrx::pg_sys;

/// One row of `rag_internal.collection`, with what statements about it need.
#[derive(Debug, Clone)]
pub struct Collection {
    /// Its number.
    pub id: i32,
    /// Its name.
    pub name: String,
    /// The source table.
    pub source: pg_sys::Oid,
    /// The source's schema-qualified name, quoted; empty when the table is gone.
    pub source_name: String,
    /// `pg_class.relkind` of the source.
    pub source_kind: String,
    /// Whether the source became a partition, or part of an inheritance, after it was registered.
    pub shares_rows: bool,
    /// The source's owner.
    pub owner: pg_sys::Oid,
    /// The chunk table.
    pub chunk_oid: pg_sys::Oid,
    /// The chunk table's owner: the source's, unless somebody changed one of them.
    pub chunk_owner: pg_sys::Oid,
    /// `pg_class.relkind` of the chunk table.
    pub chunk_kind: String,
    /// Source columns it names that are no longer there.
    pub missing_columns: Vec<String>,
    /// The chunk table's schema-qualified name, quoted; empty when the table is gone.
    pub chunk_table: String,
    /// Key columns in the source.
    pub key_columns: Vec<String>,
    /// Key columns in the chunk table.
    pub chunk_key_columns: Vec<String>,
    /// Base types of the key columns, as SQL: a domain's check is somebody's code, which a search must not run.
    pub key_types: Vec<String>,
    /// Equality operators of the key columns, schema-qualified, from the primary key's index.
    pub key_operators: Vec<String>,
    /// Content columns.
    pub content_columns: Vec<String>,
    /// For each of them, whether its type is built in.
    pub content_is_plain: Vec<bool>,
    /// Title column.
    pub title_column: Option<String>,
    /// Link column.
    pub link_column: Option<String>,
    /// Metadata columns.
    pub metadata_columns: Vec<String>,
    /// For each of them, whether its type is built in, so that making JSON of it runs nobody's cast.
    pub metadata_is_plain: Vec<bool>,
    /// Embedding model, `server/model`.
    pub embedding_model: String,
    /// Length of its vectors.
    pub dimensions: i32,
    /// Longest chunk.
    pub chunk_tokens: i32,
    /// Overlap of chunks.
    pub chunk_overlap: i32,
    /// What it is about.
    pub description: Option<String>,
    /// Whether the role asked about may read the source's columns.
    pub may_read: bool,
    /// Whether the worker noted an error.
    pub has_error: bool,
}

/// `alias.column` for each column, separated by commas.
pub fn columns(alias: &str, names: &[String]) -> String {
    names.iter().map(|n| format!("{alias}.{}", quote(n))).collect::<Vec<_>>().join(", ")
}

/// Longest vectors that `vector` can be indexed with; up to twice that, `halfvec` can.
pub const MAX_VECTOR_INDEX: i32 = 2000;
/// Longest vectors that can be indexed at all.
pub const MAX_HALFVEC_INDEX: i32 = 4000;

// $1: name or NULL; $2: the role whose rights are asked about. may_read() reads current_user's rights, so here the
// same conditions stand with the role as an argument.
const SELECT: &str = "SELECT c.id, c.name, c.source::pg_catalog.oid,
       CASE WHEN r.oid IS NULL THEN '' ELSE pg_catalog.format('%I.%I', n.nspname, r.relname) END,
       coalesce(r.relowner, 0::pg_catalog.oid),
       CASE WHEN cr.oid IS NULL THEN '' ELSE pg_catalog.format('%I.%I', cn.nspname, cr.relname) END,
       c.key_columns, c.chunk_key_columns, coalesce(k.types, '{}'), coalesce(k.operators, '{}'),
       c.content_columns, c.title_column, c.link_column, c.metadata_columns,
       c.embedding_model, c.dimensions, c.chunk_tokens, c.chunk_overlap, c.description,
       coalesce(pg_catalog.has_schema_privilege($2, r.relnamespace, 'USAGE')
                AND (pg_catalog.has_table_privilege($2, r.oid, 'SELECT') OR NOT EXISTS (
           SELECT FROM pg_catalog.unnest(c.key_columns || c.content_columns || c.metadata_columns
                                         || c.title_column || c.link_column) AS used (name)
           LEFT JOIN pg_catalog.pg_attribute a
                  ON a.attrelid = c.source AND a.attname = used.name AND a.attnum > 0 AND NOT a.attisdropped
           WHERE used.name IS NOT NULL
             AND NOT coalesce(pg_catalog.has_column_privilege($2, c.source::pg_catalog.oid, a.attnum, 'SELECT'), false))),
           false),
       c.last_error IS NOT NULL, coalesce(k.typmods, '{}'),
       coalesce((SELECT pg_catalog.array_agg(coalesce(a.atttypid, 0::pg_catalog.oid) ORDER BY u.place)
                 FROM pg_catalog.unnest(c.metadata_columns) WITH ORDINALITY AS u (name, place)
                 LEFT JOIN pg_catalog.pg_attribute a
                        ON a.attrelid = c.source AND a.attname = u.name AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
       coalesce((SELECT pg_catalog.array_agg(coalesce(a.atttypid, 0::pg_catalog.oid) ORDER BY u.place)
                 FROM pg_catalog.unnest(c.content_columns) WITH ORDINALITY AS u (name, place)
                 LEFT JOIN pg_catalog.pg_attribute a
                        ON a.attrelid = c.source AND a.attname = u.name AND a.attnum > 0 AND NOT a.attisdropped), '{}'),
       coalesce(r.relkind::pg_catalog.text, ''), c.chunk_table::pg_catalog.oid, coalesce(cr.relowner, 0::pg_catalog.oid),
       coalesce(cr.relkind::pg_catalog.text, ''),
       coalesce((SELECT pg_catalog.array_agg(used.name)
                 FROM pg_catalog.unnest(c.key_columns || c.content_columns || c.metadata_columns
                                        || c.title_column || c.link_column) AS used (name)
                 WHERE used.name IS NOT NULL AND NOT EXISTS (
                     SELECT FROM pg_catalog.pg_attribute a
                     WHERE a.attrelid = c.source AND a.attname = used.name AND a.attnum > 0 AND NOT a.attisdropped)), '{}'),
       coalesce(r.relispartition, false) OR EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.source)
       OR r.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.source)
  FROM rag_internal.collection c
  LEFT JOIN pg_catalog.pg_class r ON r.oid = c.source
  LEFT JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
  LEFT JOIN pg_catalog.pg_class cr ON cr.oid = c.chunk_table
  LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = cr.relnamespace
  LEFT JOIN LATERAL (
      SELECT pg_catalog.array_agg(a.atttypid ORDER BY u.place) AS types,
             pg_catalog.array_agg(a.atttypmod ORDER BY u.place) AS typmods,
             pg_catalog.array_agg(pg_catalog.format('OPERATOR(%I.%s)', opn.nspname, op.oprname) ORDER BY u.place) AS operators
      FROM pg_catalog.unnest(c.key_columns) WITH ORDINALITY AS u (name, place)
      JOIN pg_catalog.pg_attribute a
        ON a.attrelid = c.source AND a.attname = u.name AND a.attnum > 0 AND NOT a.attisdropped
      JOIN pg_catalog.pg_index i ON i.indrelid = c.source AND i.indisprimary
      JOIN LATERAL ROWS FROM (pg_catalog.unnest(i.indkey::pg_catalog.int2[]), pg_catalog.unnest(i.indclass::pg_catalog.oid[])) AS ik (attnum, opclass)
        ON ik.attnum = a.attnum
      JOIN pg_catalog.pg_opclass oc ON oc.oid = ik.opclass
      JOIN pg_catalog.pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amopstrategy = 3
           AND ao.amoplefttype = oc.opcintype AND ao.amoprighttype = oc.opcintype
      JOIN pg_catalog.pg_operator op ON op.oid = ao.amopopr
      JOIN pg_catalog.pg_namespace opn ON opn.oid = op.oprnamespace
  ) k ON true";

fn read(row: &Row<'_>) -> Collection {
    let key_types: Vec<pg_sys::Oid> = row.need(9);
    let key_typmods: Vec<i32> = row.need(22);
    let metadata_types: Vec<pg_sys::Oid> = row.need(23);
    let content_types: Vec<pg_sys::Oid> = row.need(24);
    let is_plain = |types: Vec<pg_sys::Oid>| types.into_iter().map(catalog::is_built_in_type).collect();
    Collection {
        id: row.need(1),
        name: row.need(2),
        source: row.need(3),
        source_name: row.need(4),
        owner: row.need(5),
        chunk_table: row.need(6),
        key_columns: row.need(7),
        chunk_key_columns: row.need(8),
        key_types: key_types.iter().zip(key_typmods).map(|(t, m)| catalog::base_type_name(*t, m)).collect(),
        key_operators: row.need(10),
        content_columns: row.need(11),
        title_column: row.get(12),
        link_column: row.get(13),
        metadata_columns: row.need(14),
        metadata_is_plain: is_plain(metadata_types),
        content_is_plain: is_plain(content_types),
        source_kind: row.need(25),
        chunk_oid: row.need(26),
        chunk_owner: row.need(27),
        chunk_kind: row.need(28),
        missing_columns: row.need(29),
        shares_rows: row.get(30).unwrap_or(false),
        embedding_model: row.need(15),
        dimensions: row.need(16),
        chunk_tokens: row.need(17),
        chunk_overlap: row.need(18),
        description: row.get(19),
        may_read: row.need(20),
        has_error: row.need(21),
    }
}

/// The collection of that name.
pub fn by_name(name: &str, role: pg_sys::Oid) -> Option<Collection> {
    select("WHERE c.name = $1", arg(name.to_owned()), role).pop()
}

/// The collection of that number, with the superuser's rights.
pub fn by_id(id: i32) -> Option<Collection> {
    select("WHERE c.id = $1", arg(id), SUPERUSER).pop()
}

/// The collection of that number, as a role sees it.
pub fn by_id_as(id: i32, role: pg_sys::Oid) -> Option<Collection> {
    select("WHERE c.id = $1", arg(id), role).pop()
}

/// As [`by_id`], also where the transaction's own snapshot is older than the collection.
pub fn by_id_now(id: i32) -> Option<Collection> {
    spi::with_latest_snapshot(|| select_with(Mode::Read, "WHERE c.id = $1", arg(id), SUPERUSER).pop())
}

/// All collections, by name.
pub fn all(role: pg_sys::Oid) -> Vec<Collection> {
    select("WHERE $1::pg_catalog.text IS NULL ORDER BY c.name", arg(None::<String>), role)
}

fn select(condition: &str, key: spi::Arg<'_>, role: pg_sys::Oid) -> Vec<Collection> {
    select_with(Mode::Write, condition, key, role)
}

fn select_with(mode: Mode, condition: &str, key: spi::Arg<'_>, role: pg_sys::Oid) -> Vec<Collection> {
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        let rows = s.query(mode, &format!("{SELECT} {condition}"), &[key, arg(role)]);
        rows.iter().map(|row| read(&row)).collect()
    })
}

impl Collection {
    /// Checks that its tables and columns are as it needs them. SQLSTATE 55000.
    pub fn check(&self) -> Result<()> {
        let broken = |what: String, hint: &str| {
            Err(Error::new(
                pgrx::PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("collection \"{}\" cannot be used: {what}", self.name),
                hint,
            ))
        };
        if !matches!(self.source_kind.as_str(), "r" | "p") || self.chunk_kind != "r" {
            return broken(
                "its source or its chunk table is not there, or is not a table".into(),
                "Remove the collection with rag.drop_collection.",
            );
        }
        if self.shares_rows {
            return broken(
                format!("{} has become a partition or part of an inheritance", self.source_name),
                "Rows that come through another table are missed. Undo it, or drop the collection and register the partitioned table.",
            );
        }
        if self.chunk_owner != self.owner {
            return broken(
                format!("{} and its chunk table {} have different owners", self.source_name, self.chunk_table),
                "See what the former owner attached to the chunk table, then ALTER TABLE ... OWNER TO; or drop the collection and create it anew.",
            );
        }
        if !self.missing_columns.is_empty() {
            return broken(
                format!("{} no longer has the column \"{}\"", self.source_name, self.missing_columns.join("\", \"")),
                "Add the column again, or drop the collection and create it anew.",
            );
        }
        if self.key_types.len() != self.key_columns.len() {
            return broken(
                format!("the primary key of {} is no longer ({})", self.source_name, self.key_columns.join(", ")),
                "Restore the primary key, or drop the collection and create it anew.",
            );
        }
        Ok(())
    }

    /// Each content column as text. By the output function where the type is not built in: a cast could be somebody's
    /// code.
    pub fn content_as_text(&self, alias: &str) -> Vec<String> {
        self.content_columns
            .iter()
            .zip(&self.content_is_plain)
            .map(|(name, plain)| column_as_text(alias, name, *plain))
            .collect()
    }

    /// A 64-bit hash of a source row's content: a chunk whose row has another one by now is out of date.
    pub fn content_hash(&self, alias: &str) -> String {
        hash_of_texts(&self.content_as_text(alias))
    }

    /// The SQL type of its embeddings, qualified, with its length.
    pub fn vector_type(&self) -> String {
        vector_type(self.dimensions)
    }

    /// `left.key = right.key AND ...`, with the operators of the primary key.
    pub fn key_join(&self, left: &str, left_names: &[String], right: &str, right_names: &[String]) -> String {
        left_names
            .iter()
            .zip(right_names)
            .zip(&self.key_operators)
            .map(|((l, r), operator)| format!("{left}.{} {operator} {right}.{}", quote(l), quote(r)))
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    /// `jsonb_build_object('id', alias.id, ...)`: the key as the surface shows it, named as in the source.
    pub fn key_object(&self, alias: &str, names: &[String]) -> String {
        let pairs: Vec<String> = self
            .key_columns
            .iter()
            .zip(names)
            .map(|(shown, name)| format!("{}, {alias}.{}", pgrx::spi::quote_literal(shown), quote(name)))
            .collect();
        format!("pg_catalog.jsonb_build_object({})", pairs.join(", "))
    }

    /// `pg_catalog.jsonb_to_record(value) AS alias (id bigint, ...)`: the key's columns with their types.
    pub fn key_record(&self, value: &str, alias: &str) -> String {
        let fields: Vec<String> = self
            .key_columns
            .iter()
            .zip(&self.key_types)
            .map(|(name, sql_type)| format!("{} {sql_type}", quote(name)))
            .collect();
        format!("pg_catalog.jsonb_to_record({value}) AS {alias} ({})", fields.join(", "))
    }
}

/// A column as text; the builtin cast where it is one, else the type's output function.
fn column_as_text(alias: &str, name: &str, plain: bool) -> String {
    let column = format!("{alias}.{}", quote(name));
    if plain {
        format!("{column}::pg_catalog.text")
    } else {
        format!("CASE WHEN {column} IS NOT NULL THEN pg_catalog.format('%s', {column}) END")
    }
}

fn hash_of_texts(texts: &[String]) -> String {
    format!(
        "pg_catalog.hashtextextended(pg_catalog.concat({}) COLLATE pg_catalog.\"C\", 0)",
        texts.join(", E'\\x1f', ")
    )
}

/// The SQL type for embeddings of a length: `schema.vector(n)` or `schema.halfvec(n)`.
pub fn vector_type(dimensions: i32) -> String {
    let (schema, _) = catalog::vector_schema();
    let name = if dimensions <= MAX_VECTOR_INDEX { "vector" } else { "halfvec" };
    format!("{schema}.{name}({dimensions})")
}

/// What a new collection is made of. Everything is checked by then.
pub struct NewCollection {
    /// Name.
    pub name: String,
    /// Source table.
    pub source: crate::collection::statements::Source,
    /// Schema of the chunk table.
    pub chunk_schema: String,
    /// Name of the chunk table.
    pub chunk_name: String,
    /// Content columns.
    pub content: Vec<String>,
    /// Title column.
    pub title: Option<String>,
    /// Link column.
    pub link: Option<String>,
    /// Metadata columns.
    pub metadata: Vec<String>,
    /// Embedding model.
    pub embedding_model: String,
    /// Length of its vectors.
    pub dimensions: i32,
    /// Longest chunk.
    pub chunk_tokens: i32,
    /// Overlap.
    pub chunk_overlap: i32,
    /// Description.
    pub description: Option<String>,
}

/// Columns of a chunk table besides the key.
const CHUNK_COLUMNS: [&str; 7] =
    ["chunk", "content", "content_hash", "model", "source_xmin", "source_hash", "embedding"];

impl NewCollection {
    /// Creates chunk table, catalog row and triggers, and queues the rows there are.
    pub fn create(&self) {
        let key: Vec<String> = self.source.key.iter().map(|k| k.name.clone()).collect();
        let chunk_key = chunk_key_names(&key);
        let chunk_table = format!("{}.{}", quote(&self.chunk_schema), quote(&self.chunk_name));
        {
            let _acting = ActingAs::owner(self.source.owner);
            spi::connect(|s| s.utility(&self.chunk_table_sql(&chunk_table, &chunk_key)));
        }
        let id = self.insert(&chunk_table, &key, &chunk_key);
        let collection = by_id(id).expect("inserted just now");
        // So that DROP TABLE of the source needs no CASCADE although the policy names it.
        catalog::depend_on(collection.chunk_oid, collection.source);
        {
            let _acting = ActingAs::owner(self.source.owner);
            spi::connect(|s| {
                s.utility(&crate::ingest::statements::capture::create_triggers(
                    &collection,
                    self.source.is_partitioned,
                ));
            });
        }
        {
            let _acting = ActingAs::superuser();
            spi::connect(|s| s.run("SELECT rag_internal.sync_grants($1)", &[arg(id)]));
        }
        crate::ingest::statements::queue::queue_all(&collection);
    }

    fn chunk_table_sql(&self, table: &str, chunk_key: &[String]) -> String {
        let (schema, _) = catalog::vector_schema();
        let vector = vector_type(self.dimensions);
        let operators = if self.dimensions <= MAX_VECTOR_INDEX { "vector_cosine_ops" } else { "halfvec_cosine_ops" };
        let key_definitions: Vec<String> = self
            .source
            .key
            .iter()
            .zip(chunk_key)
            .map(|(k, name)| format!("{} {}{} NOT NULL", quote(name), k.sql_type, k.collation))
            .collect();
        let key_list = chunk_key.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", ");
        let source = &self.source.qualified_name;
        let key: Vec<String> = self.source.key.iter().map(|k| k.name.clone()).collect();
        let same_key: Vec<String> = self
            .source
            .key
            .iter()
            .zip(chunk_key)
            .map(|(k, name)| format!("s.{} {} {table}.{}", quote(&k.name), k.equality, quote(name)))
            .collect();
        // The policy's subquery names the content columns so that reading a chunk asks for the same rights as
        // reading them; it also makes PostgreSQL follow their renaming and refuse to drop them unasked.
        let readable = columns("s", &[key, self.content.clone()].concat());
        let texts: Vec<String> = self
            .content
            .iter()
            .map(|name| {
                let plain =
                    self.source.columns.iter().any(|c| c.name == *name && catalog::is_built_in_type(c.type_oid));
                column_as_text("s", name, plain)
            })
            .collect();
        // Not by xmin, which is quicker: system columns cannot be granted, and a role may have columns only.
        let current = format!("{} = {table}.source_hash", hash_of_texts(&texts));
        let comments = self.chunk_comments(table, chunk_key);
        format!(
            "CREATE TABLE {table} (
                {keys},
                chunk pg_catalog.int4 NOT NULL,
                content pg_catalog.text NOT NULL,
                content_hash pg_catalog.bytea NOT NULL,
                model pg_catalog.text NOT NULL,
                source_xmin pg_catalog.xid NOT NULL,
                source_hash pg_catalog.int8 NOT NULL,
                embedding {vector} NOT NULL,
                PRIMARY KEY ({key_list}, chunk)
            );
            CREATE INDEX ON {table} USING hnsw (embedding {schema}.{operators});
            ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
            CREATE POLICY rag_same_as_source ON {table} FOR SELECT
                USING (EXISTS (SELECT {readable} FROM {source} s WHERE {same_key} AND {current}));
            {comments}",
            keys = key_definitions.join(", "),
            same_key = same_key.join(" AND "),
        )
    }

    fn chunk_comments(&self, table: &str, chunk_key: &[String]) -> String {
        let mut sql = format!(
            "COMMENT ON TABLE {table} IS {};",
            pgrx::spi::quote_literal(format!(
                "Chunks of {} and their embeddings, kept current by pg_ragent (collection {}); readable by those who can read the row",
                self.source.qualified_name, self.name
            ))
        );
        let described = [
            ("chunk", "Number of the chunk within its row, from 1"),
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
        let keys = chunk_key.iter().map(|name| (name.as_str(), "Primary key of the source row"));
        for (column, text) in keys.chain(described) {
            sql.push_str(&format!(
                "COMMENT ON COLUMN {table}.{} IS {};",
                quote(column),
                pgrx::spi::quote_literal(text)
            ));
        }
        sql
    }

    fn insert(&self, chunk_table: &str, key: &[String], chunk_key: &[String]) -> i32 {
        const SQL: &str = "INSERT INTO rag_internal.collection (name, source, chunk_table, key_columns, chunk_key_columns,
                content_columns, title_column, link_column, metadata_columns, embedding_model, dimensions,
                chunk_tokens, chunk_overlap, description)
            VALUES ($1, $2::pg_catalog.regclass, $3::pg_catalog.regclass, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
            RETURNING id";
        let _acting = ActingAs::superuser();
        spi::connect(|s| {
            let rows = s.query(
                Mode::Write,
                SQL,
                &[
                    arg(self.name.clone()),
                    arg(self.source.oid),
                    arg(chunk_table.to_owned()),
                    arg(key.to_vec()),
                    arg(chunk_key.to_vec()),
                    arg(self.content.clone()),
                    arg(self.title.clone()),
                    arg(self.link.clone()),
                    arg(self.metadata.clone()),
                    arg(self.embedding_model.clone()),
                    arg(self.dimensions),
                    arg(self.chunk_tokens),
                    arg(self.chunk_overlap),
                    arg(self.description.clone()),
                ],
            );
            rows.one().expect("RETURNING gives a row")
        })
    }
}

/// The key's names in the chunk table: the source's, unless one of ours is called the same.
fn chunk_key_names(key: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in key {
        let mut name = column.clone();
        while CHUNK_COLUMNS.contains(&name.as_str())
            || names.contains(&name)
            || (name != *column && key.contains(&name))
        {
            name = format!("key_{name}");
        }
        names.push(name);
    }
    names
}

/// Removes a collection: chunk table, triggers, queue, failures, catalog row.
pub fn drop(collection: &Collection) {
    if !collection.source_name.is_empty() {
        let _acting = ActingAs::owner(collection.owner);
        let settings = Settings::new();
        // Which of the triggers there are depends on the kind of table.
        settings.set("client_min_messages", "warning");
        spi::connect(|s| s.utility(&crate::ingest::statements::capture::drop_triggers(collection)));
    }
    if collection.chunk_kind == "r" {
        let _acting = ActingAs::owner(collection.chunk_owner);
        spi::connect(|s| s.utility(&format!("DROP TABLE {}", collection.chunk_table)));
    }
    let _acting = ActingAs::superuser();
    spi::connect(|s| {
        // Dropping the chunk table forgets the collection by the event trigger; where those are off, this does.
        s.run("DELETE FROM rag_internal.queue WHERE collection = $1", &[arg(collection.id)]);
        s.run("DELETE FROM rag_internal.failure WHERE collection = $1", &[arg(collection.id)]);
        s.run("DELETE FROM rag_internal.collection WHERE id = $1", &[arg(collection.id)]);
    });
}

/// Notes why the worker could not go on with a collection, or (None) that it went on.
pub fn note_error(id: i32, error: Option<&str>) {
    const SQL: &str = "UPDATE rag_internal.collection
        SET last_error = $2, last_error_at = CASE WHEN $2 IS NULL THEN NULL ELSE pg_catalog.clock_timestamp() END
        WHERE id = $1 AND last_error IS DISTINCT FROM $2";
    spi::connect(|s| s.run(SQL, &[arg(id), arg(error.map(str::to_owned))]));
}
