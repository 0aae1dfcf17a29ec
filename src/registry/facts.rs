//! What the catalogs say of the tables and columns a collection names, and whether it can be used as they are.

use super::{Collection, Embedding, Generation, Key, Recipe, Vectors};
use crate::error::{Error, Result};
use crate::pg::catalog;
use crate::pg::role;
use crate::pg::spi::{Row, quote};
use crate::pg::uniform::{self, Writing};
use pgrx::{PgSqlErrorCode, pg_sys};

/// The source of a collection.
#[derive(Debug, Clone)]
pub struct Source {
    /// The table.
    pub table: pg_sys::Oid,
    /// Its qualified name, quoted; empty when the table is gone.
    pub name: String,
    /// `pg_class.relkind`; empty when the table is gone.
    pub kind: String,
    /// Its owner.
    pub owner: pg_sys::Oid,
    /// Whether it became a partition, or part of an inheritance, after it was registered.
    pub shares_rows: bool,
    /// A partition that belongs to another role than the table.
    strange_partition: Option<String>,
    /// Numbers of the columns the collection uses.
    numbers: Vec<i16>,
    /// Columns it uses that are no longer there.
    missing: Vec<String>,
    /// Hashes of the types the statements over it are made from, as invalidations name them.
    pub(super) types: Vec<u32>,
}

impl Source {
    /// Whether the current role may SELECT every column the collection uses, now.
    pub fn is_readable(&self) -> bool {
        role::may_select(self.table, &self.numbers)
    }
}

/// A column of a source.
#[derive(Debug, Clone)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Whether its type is PostgreSQL's own, so that casting it runs nobody's code.
    pub is_built_in: bool,
    /// Whether its values are text as they are.
    pub is_text: bool,
    /// Its type.
    oid: pg_sys::Oid,
    /// What decides how its values are written.
    writing: Writing,
    /// Whether its values are `json`, or hold it: not all of that can be `jsonb`.
    holds_json: bool,
}

impl Column {
    /// A column of a type.
    pub fn new(name: String, type_oid: pg_sys::Oid) -> Self {
        let is_text = matches!(type_oid, pg_sys::TEXTOID | pg_sys::VARCHAROID);
        Self {
            name,
            is_built_in: catalog::is_built_in_type(type_oid),
            is_text,
            oid: type_oid,
            writing: uniform::writing(type_oid),
            holds_json: catalog::types_within(type_oid).contains(&pg_sys::JSONOID),
        }
    }

    /// The column as text, the same whatever the session's settings are: by the built-in cast, or by the type's output function
    /// where settings have a part in it or a cast could be somebody's code.
    pub fn as_text(&self, alias: &str) -> String {
        let column = format!("{alias}.{}", quote(&self.name));
        if self.writing == Writing::Alike && self.is_built_in {
            format!("{column}::pg_catalog.text")
        } else {
            format!("rag_internal.plain_text({column})")
        }
    }

    /// How many bytes that text has, at least, without making it: SQL of type `bigint`, where the type says it.
    pub fn length_of_text(&self, alias: &str) -> Option<String> {
        let length = || format!("pg_catalog.octet_length({alias}.{})::pg_catalog.int8", quote(&self.name));
        match self.oid {
            pg_sys::TEXTOID | pg_sys::VARCHAROID => Some(length()),
            // Two digits for each.
            pg_sys::BYTEAOID => Some(format!("2 OPERATOR(pg_catalog.*) {}", length())),
            _ => None,
        }
    }

    /// The column as its type's output function writes it.
    pub fn output(&self, alias: &str) -> String {
        if self.is_text {
            self.as_text(alias)
        } else {
            format!("rag_internal.plain_text({alias}.{})", quote(&self.name))
        }
    }

    /// The column as a value that `jsonb_build_object` takes, or its text, where a cast to JSON could be somebody's code.
    pub fn as_json(&self, alias: &str) -> String {
        let column = format!("{alias}.{}", quote(&self.name));
        if !self.is_built_in {
            self.output(alias)
        } else if self.writing == Writing::Alike && !self.holds_json {
            column
        } else {
            format!("rag_internal.plain_json({column})")
        }
    }
}

/// A row of `rag_internal.collection_facts`.
pub(super) fn read(row: &Row<'_>) -> Collection {
    let used: Vec<String> = row.need_named("used_columns");
    let numbers: Vec<i16> = row.need_named("used_numbers");
    let key_types: Vec<pg_sys::Oid> = row.need_named("key_types");
    let key_modifiers: Vec<i32> = row.need_named("key_modifiers");
    let content_types: Vec<pg_sys::Oid> = row.need_named("content_types");
    let metadata_types: Vec<pg_sys::Oid> = row.need_named("metadata_types");
    let title_type: pg_sys::Oid = row.need_named("title_type");
    let link_type: pg_sys::Oid = row.need_named("link_type");
    let all_types = key_types.iter().chain(&content_types).chain(&metadata_types).chain([&title_type, &link_type]);
    let types = all_types.flat_map(|t| catalog::types_within(*t)).map(crate::pg::invalidation::type_hash).collect();
    let columns = |names: Vec<String>, types: Vec<pg_sys::Oid>| {
        names.into_iter().zip(types).map(|(name, oid)| Column::new(name, oid)).collect()
    };
    let key_types: Vec<(pg_sys::Oid, i32)> = key_types.into_iter().zip(key_modifiers).collect();
    let title = row.named("title_column").map(|name| Column::new(name, title_type));
    let link = row.named("link_column").map(|name| Column::new(name, link_type));
    let key = Key::new(row.need_named("key_columns"), &key_types, row.need_named("key_equality"));
    let content: Vec<Column> = columns(row.need_named("content_columns"), content_types);
    let metadata: Vec<Column> = columns(row.need_named("metadata_columns"), metadata_types);
    let reading_runs_no_code = row.need_named("reading_runs_no_code")
        && key.is_built_in
        && content.iter().chain(&metadata).chain(&title).chain(&link).all(|column| column.is_built_in);
    Collection {
        id: row.need_named("id"),
        name: row.need_named("name"),
        description: row.named("description"),
        serve_stale: row.need_named("serve_stale"),
        has_error: row.need_named("has_error"),
        source: Source {
            table: row.need_named("source"),
            name: row.need_named("source_name"),
            kind: row.need_named("source_kind"),
            owner: row.need_named("source_owner"),
            shares_rows: row.need_named("shares_rows"),
            strange_partition: row.named("strange_partition"),
            missing: used.iter().zip(&numbers).filter(|(_, n)| **n == 0).map(|(name, _)| name.clone()).collect(),
            numbers,
            types,
        },
        key,
        content,
        title,
        link,
        metadata,
        reading_runs_no_code,
        generation: Generation {
            id: row.need_named("generation"),
            model: row.need_named("model"),
            recipe: Recipe {
                chunker: row.need_named("chunker"),
                tokens: row.need_named("chunk_tokens"),
                overlap: row.need_named("chunk_overlap"),
            },
        },
        vectors: Vectors {
            table: row.need_named("chunk_table"),
            table_name: row.need_named("chunk_table_name"),
            table_kind: row.need_named("chunk_table_kind"),
            owner: row.need_named("chunk_table_owner"),
            made_for: row.need_named("chunks_made_for"),
            changed_hands: row.need_named("changed_hands"),
            has_own_columns: row.need_named("has_own_columns"),
            index: row.need_named("embedding_index"),
            key_columns: row.need_named("chunk_key_columns"),
            column: row.need_named("embedding_column"),
            embedding: Embedding::new(row.need_named("dimensions")),
            is_adopted: row.need_named("is_adopted"),
        },
        statements: Default::default(),
    }
}

impl Collection {
    /// Checks that all partitions of its source belong to the source's owner. Who owns a partition can attach code to it, which
    /// runs when the whole is read.
    ///
    /// # Errors
    /// 55000, with which does not.
    pub fn check_partitions(&self) -> Result<()> {
        let Some(partition) = &self.source.strange_partition else { return Ok(()) };
        let owner = role::name(self.source.owner);
        Err(Error::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "collection \"{}\" cannot be used: {partition} has another owner than {}, whose partition it is",
                self.name, self.source.name
            ),
            format!("See what is attached to it, then ALTER TABLE {partition} OWNER TO {};", quote(&owner)),
        ))
    }

    /// Checks that its chunks were made for the owner that its source has now. Whoever owned the tables before may have
    /// attached code to them, which must not run with the rights of the one who got them.
    ///
    /// # Errors
    /// 55000, with who it was and what to do.
    pub fn check_owner(&self) -> Result<()> {
        self.check_partitions()?;
        let (source, chunks) = (&self.source, &self.vectors);
        // One that is not there belongs to nobody.
        let is_as_made = !chunks.changed_hands && chunks.made_for == source.owner && chunks.owner == source.owner;
        if chunks.table_kind.is_empty() || is_as_made {
            return Ok(());
        }
        let owner = role::name(source.owner);
        let (table, made_for) = (&chunks.table_name, role::name(chunks.made_for));
        let what = if chunks.owner != source.owner {
            format!(
                "the owner of {} is {owner}, that of its chunk table {table} {}",
                source.name,
                role::name(chunks.owner)
            )
        } else if chunks.made_for == pg_sys::InvalidOid || chunks.made_for == source.owner {
            format!("{} or its chunk table {table} has had another owner than {owner}", source.name)
        } else {
            format!("its chunk table {table} was made for another owner, {made_for}, than {owner}")
        };
        Err(Error::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("collection \"{}\" cannot be used: {what}", self.name),
            format!(
                "See what the former owner attached to {}: triggers, policies, expressions in indexes, checks and statistics run as {owner}. Then SELECT rag.refresh({}) makes the chunk table anew.",
                source.name,
                pgrx::spi::quote_literal(&self.name),
            ),
        ))
    }

    /// What its worker waits for: keys and capture triggers, which a restore makes last. It can be searched meanwhile.
    pub fn is_incomplete(&self) -> Option<Error> {
        super::statements::awaits_restore(self.id).then(|| {
            Error::new(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!(
                    "collection \"{}\" is not kept current: its capture triggers, or the key of its source or chunk table, are missing",
                    self.name
                ),
                format!(
                    "A restore makes them last. Where none is under way: SELECT rag.refresh({}).",
                    pgrx::spi::quote_literal(&self.name)
                ),
            )
        })
    }

    /// Whether the source is there: it can be gone where event triggers were off when it was dropped.
    ///
    /// # Errors
    /// 55000 it is not.
    pub fn check_source(&self) -> Result<()> {
        if matches!(self.source.kind.as_str(), "r" | "p") {
            return Ok(());
        }
        Err(Error::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("collection \"{}\" cannot be used: its source is not there, or is not a table", self.name),
            format!("To remove the collection: SELECT rag.drop_collection({}).", pgrx::spi::quote_literal(&self.name)),
        ))
    }

    /// Checks that its tables and columns are as it needs them.
    ///
    /// # Errors
    /// 55000, with what is wrong and what to do.
    pub fn check(&self) -> Result<()> {
        let broken = |what: String, hint: &str| {
            Err(Error::new(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("collection \"{}\" cannot be used: {what}", self.name),
                hint,
            ))
        };
        let (source, chunks) = (&self.source, &self.vectors);
        self.check_source()?;
        self.check_owner()?;
        if chunks.table_kind != "r" {
            return broken(
                "its chunk table is not there, or is not a table".into(),
                &format!("To have it made anew: SELECT rag.refresh({}).", pgrx::spi::quote_literal(&self.name)),
            );
        }
        if source.shares_rows {
            return broken(
                format!("{} has become a partition or part of an inheritance", source.name),
                "Rows that come through another table are missed. Undo it, or drop the collection and register the partitioned table.",
            );
        }
        if !source.missing.is_empty() {
            return broken(
                format!("{} no longer has the column \"{}\"", source.name, source.missing.join("\", \"")),
                "Add the column again, or drop the collection and create it anew.",
            );
        }
        if self.key.types.len() != self.key.columns.len() {
            return broken(
                format!("the primary key of {} is no longer ({})", source.name, self.key.columns.join(", ")),
                "Restore the primary key, or drop the collection and create it anew.",
            );
        }
        if !chunks.has_own_columns {
            return broken(
                format!("{} no longer has the columns it was made with, or not of the same types", chunks.table_name),
                &format!("To have it made anew: SELECT rag.refresh({}).", pgrx::spi::quote_literal(&self.name)),
            );
        }
        Ok(())
    }
}
