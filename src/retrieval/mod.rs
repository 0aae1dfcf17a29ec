//! A query and the passages the asker may see.
//!
//! A [`Search`] names its [`Scope`]. An `Arm` finds candidates in a collection, with its owner's rights; `widen` keeps those
//! that the asking role may see, and asks for more until there are enough or none are left. A new way to find candidates is
//! a file that implements `Arm`, and its line in `search`.

#[allow(clippy::result_large_err)]
mod api;
mod arm;
mod found;
mod query_vectors;
mod scope;
mod search;
mod shown;
mod statements;
mod vector;
pub mod waiting;
mod widen;

pub use found::Found;
pub use scope::Scope;
pub use search::{Query, Search, search, search_and_tell};
