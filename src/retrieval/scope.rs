//! Which collections are searched.

use crate::error::Result;
use crate::registry::{self, Collection};
use std::rc::Rc;

/// Which collections are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The one of this name.
    One(&'a str),
    /// All that the current role may read.
    All,
}

impl<'a> Scope<'a> {
    /// The one that is named, or all.
    pub fn of(name: Option<&'a str>) -> Self {
        name.map_or(Self::All, Self::One)
    }

    /// The collections that can be searched now, their tables locked against changes. Of all, those that cannot are left out with a warning: somebody else's
    /// broken table must not keep a role from searching its own.
    ///
    /// # Errors
    /// Of one: 42704 there is none, 42501 the role may not read it, 55000 it cannot be used.
    pub fn collections(self) -> Result<Vec<Rc<Collection>>> {
        let name = match self {
            Self::One(name) => name,
            Self::All => {
                return Ok(registry::all_readable().into_iter().filter_map(registry::held).filter(is_usable).collect());
            }
        };
        let collection = match registry::held(registry::readable(name)?) {
            Some(collection) => collection,
            None => registry::existing(name)?,
        };
        collection.check()?;
        Ok(vec![collection])
    }
}

fn is_usable(c: &Rc<Collection>) -> bool {
    c.check().inspect_err(|e| pgrx::warning!("{e}")).is_ok()
}
