//! The jsonb datum is PostgreSQL's.

#[pgrx::pg_schema]
mod tests {
    use crate::pg::jsonb::Jsonb;
    use crate::pg::spi::{self, Snapshot};
    use pgrx::prelude::*;

    fn read(sql: &str) -> Option<Jsonb> {
        spi::connect(|s| s.query(Snapshot::Active, sql, &[]).one())
    }

    #[pg_test]
    fn a_value_comes_back_as_it_went_in() {
        for text in [r#"{"a": [1, 2.50, null, "x\\u0001\"y"], "b": {}}"#, "null", "7", "[]", r#""Ünïcödé 🐘""#] {
            let value = read(&format!("SELECT {}::jsonb", pgrx::spi::quote_literal(text))).unwrap();
            assert_eq!(value.text(), text);
            let again: Option<Jsonb> =
                spi::connect(|s| s.query(Snapshot::Active, "SELECT $1", &[value.clone().into()]).one());
            assert_eq!(again.as_ref(), Some(&value));
        }
    }

    #[pg_test]
    fn an_array_of_values_keeps_each_of_them() {
        let values = vec![read("SELECT '{\"id\": 1}'::jsonb").unwrap(), read("SELECT '[2]'::jsonb").unwrap()];
        let text: Option<String> =
            spi::connect(|s| s.query(Snapshot::Active, "SELECT $1::jsonb[]::text", &[values.into()]).one());
        assert_eq!(text.as_deref(), Some(r#"{"{\"id\": 1}",[2]}"#));
    }

    #[pg_test]
    fn a_stored_and_compressed_value_is_read_whole() {
        Spi::run("CREATE TABLE public.j AS SELECT jsonb_build_object('long', repeat('word ', 10000)) AS v").unwrap();
        let value: Option<Jsonb> = spi::connect(|s| s.query(Snapshot::New, "SELECT v FROM public.j", &[]).one());
        assert_eq!(value.unwrap().text().len(), 50_012);
    }
}
