//! Which collections are searched.

use crate::error::{Error, Result};
use crate::pg::role;
use crate::provider::ModelName;
use crate::registry::{self, Collection, Trust};
use pgrx::{PgLogLevel, PgSqlErrorCode};
use ragent_core::text::list;
use std::rc::Rc;

/// Which collections are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The one of this name, because the asker said so.
    One(&'a str),
    /// The one of this name, of all that are searched where the asker names none.
    OneOfAll(&'a str),
    /// All that the current role may read, of owners that it trusts.
    All,
}

impl<'a> Scope<'a> {
    /// The one that is named, or all.
    pub fn of(name: Option<&'a str>) -> Self {
        name.map_or(Self::All, Self::One)
    }

    /// Whether the asker named what is searched. What goes wrong is an error then, and else a warning: somebody else's
    /// broken table must not keep a role from searching its own.
    pub fn is_named(self) -> bool {
        matches!(self, Self::One(_))
    }

    /// The collections that can be searched now: of all, the role's own first. Says which are left out of all.
    ///
    /// # Errors
    /// Of one: 42704 there is none, 42501 the role may not read it, 55000 it cannot be used.
    pub fn collections(self) -> Result<Vec<Rc<Collection>>> {
        match self {
            Self::One(name) => {
                let collection = registry::readable(name)?;
                collection.check()?;
                Ok(vec![collection])
            }
            Self::OneOfAll(name) => {
                let found = registry::readable(name).and_then(|c| c.check().map(|()| c));
                Ok(found.inspect_err(|e| registry::warn(name, e)).into_iter().collect())
            }
            Self::All => {
                let all = registry::unnamed();
                let (searched, others) = without_others_models(all.trusted);
                let left_out: Vec<_> = others.into_iter().chain(all.left_out).collect();
                say_left_out(&left_out);
                Ok(searched.into_iter().filter(is_usable).collect())
            }
        }
    }
}

fn is_usable(c: &Rc<Collection>) -> bool {
    c.check().inspect_err(|e| registry::warn(&c.name, e)).is_ok()
}

/// Of models that only strangers' collections have, no more than this are asked: each costs a request, and may keep one waiting.
const MOST_STRANGERS_MODELS: usize = 4;

/// Parts collections in those that are searched and those whose model is one too many.
fn without_others_models(found: Vec<(Trust, Rc<Collection>)>) -> (Vec<Rc<Collection>>, Vec<Rc<Collection>>) {
    let mut models = vec![crate::guc::embedding_model()];
    models.extend(found.iter().filter(|(t, _)| *t != Trust::Harmless).map(|(_, c)| c.generation.model.clone()));
    let mut others = 0;
    let mut is_searched = |trust: Trust, c: &Collection| {
        let model = &c.generation.model;
        if trust != Trust::Harmless
            || models.contains(model)
            || ModelName::parse(model).is_ok_and(|m| m.server == "local")
        {
            return true;
        }
        others += 1;
        if others <= MOST_STRANGERS_MODELS {
            models.push(model.clone());
        }
        others <= MOST_STRANGERS_MODELS
    };
    let (searched, left_out): (Vec<_>, Vec<_>) = found.into_iter().partition(|(trust, c)| is_searched(*trust, c));
    let collections = |found: Vec<(Trust, Rc<Collection>)>| found.into_iter().map(|(_, c)| c).collect();
    (collections(searched), collections(left_out))
}

/// So many collections are named where something is told of several.
pub(super) const MOST_NAMED: usize = 5;

fn say_left_out(left_out: &[Rc<Collection>]) {
    if left_out.is_empty() {
        return;
    }
    let named = |c: &Rc<Collection>| format!("\"{}\" of {}", c.name, role::name(c.source.owner));
    let names = list(left_out.iter().map(named), MOST_NAMED);
    let n = left_out.len();
    let count = if n == 1 { "1 collection is".to_owned() } else { format!("{n} collections are") };
    Error::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        format!("{count} left out, of owners that {} does not trust: {names}", role::name(role::current())),
        "Name a collection to search it, or list its owner in rag.trusted_owners: code of that owner then runs with your rights.",
    )
    .tell(PgLogLevel::NOTICE);
}
