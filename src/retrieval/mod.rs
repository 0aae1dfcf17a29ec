//! A query and the passages the asker may see.
//!
//! A [`Search`] names its [`Scope`]. An [`arm::Arm`] finds candidates in a collection, with its owner's rights; `visible` says
//! which of them the asking role may see, and `widen` asks for more until enough are visible or none are left.

#[allow(clippy::result_large_err)]
mod api;
mod arm;
mod found;
mod query_vectors;
mod scope;
mod search;
mod statements;
mod vector;
mod widen;

pub use found::Found;
pub use scope::Scope;
pub use search::{Query, Search, search};
