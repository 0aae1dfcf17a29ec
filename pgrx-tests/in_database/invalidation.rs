//! A cache hears of everything it may be made of.

#[pgrx::pg_schema]
mod tests {
    use crate::pg::invalidation::{self, Change};
    use pgrx::prelude::*;

    fn oid(name: &str) -> pg_sys::Oid {
        Spi::get_one_with_args("SELECT $1::regclass::oid", &[name.into()]).unwrap().unwrap()
    }

    fn changes(ddl: &str) -> Vec<Change> {
        invalidation::take();
        Spi::run(ddl).unwrap();
        invalidation::take()
    }

    #[pg_test]
    fn an_altered_table_is_named_and_others_are_not() {
        Spi::run("CREATE TABLE a (x int); CREATE TABLE b (x int)").unwrap();
        let seen = changes("ALTER TABLE a RENAME COLUMN x TO y");
        assert!(seen.contains(&Change::Relation(oid("a"))), "{seen:?}");
        assert!(!seen.contains(&Change::Relation(oid("b"))), "{seen:?}");
        assert_eq!(changes("SELECT 1"), []);
    }

    #[pg_test]
    fn an_altered_type_is_named_by_its_hash() {
        Spi::run("CREATE TYPE mood AS ENUM ('ok')").unwrap();
        let hash = invalidation::type_hash(Spi::get_one("SELECT 'mood'::regtype::oid").unwrap().unwrap());
        let seen = changes("ALTER TYPE mood RENAME TO temper");
        assert!(seen.contains(&Change::Type(hash)), "{seen:?}");
    }

    #[pg_test]
    fn a_renamed_schema_and_more_changes_than_can_be_told_mean_everything() {
        Spi::run("CREATE SCHEMA one").unwrap();
        assert!(changes("ALTER SCHEMA one RENAME TO other").contains(&Change::Everything));
        let many = "DO $$ BEGIN FOR i IN 1..300 LOOP EXECUTE format('CREATE TABLE t%s (x int)', i); END LOOP; END $$";
        assert!(changes(many).contains(&Change::Everything));
    }

    #[pg_test]
    fn what_is_announced_is_heard_and_counted() {
        Spi::run("CREATE TABLE a (x int)").unwrap();
        invalidation::take();
        let before = invalidation::count();
        invalidation::announce(oid("a"));
        Spi::run("SELECT 1").unwrap();
        assert!(invalidation::take().contains(&Change::Relation(oid("a"))));
        assert!(invalidation::count() > before);
    }
}
