//! What a world should be like: roles and tables, as their changes left them.

use ragent_server_tests::random::Random;

use super::table::Table;

/// A copy is cheap: a change that may be undone is made to one.
#[derive(Debug, Clone)]
pub struct Model {
    /// Names of the ordinary roles; the first owns some of the tables.
    pub roles: Vec<String>,
    pub tables: Vec<Table>,
}

impl Model {
    /// The place of one of the tables.
    pub fn any_table(&self, random: &mut Random) -> usize {
        random.below(self.tables.len())
    }
}
