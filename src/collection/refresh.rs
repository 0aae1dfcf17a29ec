//! `rag.refresh`: triggers that are off are made anew, and so is a chunk table that is gone, has lost its policy or columns, or was
//! made for a former owner.

use super::chunk_table::{self, ChunkTable};
use super::create::{NewCollection, check_snapshot};
use super::follow;
use super::source::Table;
use super::statements::{self, leftover};
use crate::error::Result;
use crate::pg::lock::Lock;
use crate::pg::role;
use crate::pg::spi::quote;
use crate::pg::xact;
use crate::provider::{self, ModelName};
use crate::registry::{self, Collection};

/// Compares a collection with its source, after making its triggers, and where that must be its chunk table, anew.
///
/// # Errors
/// 25001 the snapshot is fixed, 42704 there is none, 42501 the role does not own the source, 55000 something else is wrong
/// with it, and those of [`Table::check`] and of the model.
pub fn refresh(name: &str) -> Result<()> {
    check_snapshot("rag.refresh")?;
    registry::must_own(&*registry::existing(name)?)?;
    // One at a time, and no worker claims rows of it meanwhile.
    Lock::claims(registry::existing(name)?.id).hold();
    statements::follow_columns(registry::existing(name)?.id);
    let c = registry::existing(name)?;
    registry::must_own(&c)?;
    c.check_source()?;
    c.check_partitions()?;
    // One whose key has other types than the source's may follow yet, and keeps what is embedded.
    let c = match follow::convert_key(&c) {
        Ok(()) => registry::existing(name)?,
        Err(_) => c,
    };
    // Without the key it was made for there is nothing to compare it with, nor to make another one of.
    let has_columns = c.vectors.has_own_columns || c.key.types.len() != c.key.columns.len();
    let is_whole =
        !c.vectors.table_kind.is_empty() && has_columns && statements::has_policy(&c) && statements::has_key(&c);
    if c.check_owner().is_ok() && is_whole {
        c.check()?;
        statements::mend(&c);
    } else {
        rebuild(&c)?;
    }
    // The worker does it, too, where one runs.
    match xact::attempt(|| follow::grants(c.id)) {
        Ok(Ok(())) => {}
        Ok(Err(e)) | Err(e) => pgrx::warning!("the grants of the chunk table are not up to date: {e}"),
    }
    Ok(())
}

fn rebuild(c: &Collection) -> Result<()> {
    let source = Table::check(c.source.table)?;
    let of = |columns: &[registry::Column]| columns.iter().map(|column| Some(column.name.clone())).collect::<Vec<_>>();
    let content = source.check_columns("content", of(&c.content))?;
    let metadata = source.check_columns("metadata", of(&c.metadata))?;
    for column in c.title.iter().chain(&c.link) {
        source.check_column(&column.name)?;
    }
    // The worker asks the model as the owner, so the owner must be allowed to.
    let model = ModelName::parse(&c.generation.model)?;
    provider::embedding_model_facts(&model, source.owner)?;
    // What a former owner may have touched is not taken over.
    let is_own = c.check_owner().is_ok() && source.key.columns == c.key.columns;
    let former = is_own.then(|| leftover::of_collection(c)).flatten();
    let former = former.map(|former| {
        statements::forget_generations(c);
        leftover::set_aside(former)
    });
    if former.is_none() && !statements::drop_chunk_table(c) {
        pgrx::notice!("{} belongs to {} and stays as it is", c.vectors.table_name, role::name(c.vectors.owner));
    }
    let (schema, table) = chunk_table::free_name(&source, &c.name, &c.vectors.table_name)?;
    let runs_code = statements::runs_code(source.oid);
    statements::rebuild(
        c,
        &NewCollection {
            chunks: ChunkTable {
                collection: &c.name,
                source: &source,
                content: &content,
                schema,
                name: table,
                key_columns: chunk_table::key_names(&source.key.columns),
                embedding: c.vectors.embedding.clone(),
            },
            title: c.title.as_ref().map(|column| column.name.clone()),
            link: c.link.as_ref().map(|column| column.name.clone()),
            metadata: metadata.into_iter().map(|column| column.name).collect(),
            model: c.generation.model.clone(),
            recipe: c.generation.recipe.clone(),
            description: c.description.clone(),
            serve_stale: c.serve_stale,
        },
        former.as_ref(),
    );
    if runs_code {
        pgrx::notice!(
            "what is attached to {} (triggers, policies, expressions in indexes, checks and statistics) runs as {} from now on",
            source.name,
            quote(&role::name(source.owner))
        );
    }
    Ok(())
}
