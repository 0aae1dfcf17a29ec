//! What models read from us.
