//! What the SPI layer promises.

#[pgrx::pg_schema]
mod tests {
    use crate::pg::spi::{self, Snapshot, Statement};
    use pgrx::prelude::*;

    fn has_transaction_id() -> bool {
        spi::connect(|s| {
            s.query(Snapshot::Active, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL", &[]).one().unwrap()
        })
    }

    #[pg_test]
    fn reading_assigns_no_transaction_id() {
        // The test harness itself may have written; a subtransaction would not show it, so only the change counts.
        let before = has_transaction_id();
        spi::connect(|s| {
            s.query(Snapshot::Active, "SELECT count(*) FROM pg_class", &[]);
            s.query(Snapshot::New, "SELECT count(*) FROM pg_class", &[]);
        });
        assert_eq!(has_transaction_id(), before);
    }

    #[pg_test]
    fn a_statement_with_a_new_snapshot_sees_what_was_just_written() {
        Spi::run("CREATE TABLE public.t (a int)").unwrap();
        let n: Option<i64> = spi::connect(|s| {
            s.run("INSERT INTO public.t SELECT generate_series(1, 3)", &[]);
            s.query(Snapshot::New, "SELECT count(*) FROM public.t", &[]).one()
        });
        assert_eq!(n, Some(3));
    }

    #[pg_test]
    fn more_statements_than_are_kept_still_run() {
        spi::connect(|s| {
            for i in 0..600 {
                let one: Option<i32> = s.query(Snapshot::Active, &format!("SELECT {i}"), &[]).one();
                assert_eq!(one, Some(i));
            }
        });
    }

    #[pg_test]
    fn a_cursor_gives_every_row_once() {
        let seen = spi::connect(|s| {
            let statement = Statement::new("SELECT generate_series(1, $1)".to_owned());
            let mut cursor = s.cursor(&statement, &[25.into()]);
            let mut seen = Vec::new();
            loop {
                let rows = cursor.fetch(10);
                let before = seen.len();
                seen.extend(rows.iter().map(|row| row.need::<i32>(1)));
                if seen.len() == before {
                    break;
                }
            }
            seen
        });
        assert_eq!(seen, (1..=25).collect::<Vec<_>>());
    }

    #[pg_test(error = "column 1 has type 25, which is not a i32")]
    fn a_column_of_another_type_is_refused_rather_than_misread() {
        spi::connect(|s| s.query(Snapshot::Active, "SELECT 'x'::text", &[]).one::<i32>());
    }
}
