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

    /// The collections that can be searched now. Of all, those that cannot are left out with a warning: somebody else's broken
    /// table must not keep a role from searching its own.
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
            Self::All => Ok(registry::all_readable().into_iter().filter(is_usable).collect()),
        }
    }

    /// One of these collections as it is now, its tables locked against changes until the transaction ends. `None` when it
    /// was dropped or, of all, can no longer be used.
    ///
    /// # Errors
    /// Of one: 55000 it can no longer be used.
    pub fn held(self, collection: &Rc<Collection>) -> Result<Option<Rc<Collection>>> {
        let Some(now) = registry::held(collection.clone()) else { return Ok(None) };
        match self {
            Self::One(_) => now.check().map(|()| Some(now)),
            Self::All => Ok(Some(now).filter(is_usable)),
        }
    }
}

fn is_usable(c: &Rc<Collection>) -> bool {
    c.check().inspect_err(|e| pgrx::warning!("{e}")).is_ok()
}
