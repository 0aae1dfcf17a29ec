//! Who may write to the queue: any role, while it is made to by capture.

use std::cell::Cell;

thread_local! {
    static GIVEN: Cell<Option<i32>> = const { Cell::new(None) };
}

/// Whether this process may write to the queue for this collection right now: what the queue's policy asks.
pub fn is_given(collection: i32) -> bool {
    GIVEN.get() == Some(collection)
}

/// While it lives, this process may write to the queue for one collection, whatever role it is.
pub struct Permit {
    before: Option<i32>,
}

impl Permit {
    /// Gives it.
    pub fn give(collection: i32) -> Self {
        Self { before: GIVEN.replace(Some(collection)) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        GIVEN.set(self.before);
    }
}
