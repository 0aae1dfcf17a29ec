//! Catalog look-ups.

#[pgrx::pg_schema]
mod tests {
    use crate::pg::catalog;
    use pgrx::prelude::*;

    fn type_oid(name: &str) -> pg_sys::Oid {
        Spi::get_one_with_args("SELECT $1::regtype::oid", &[name.into()]).unwrap().unwrap()
    }

    #[pg_test]
    fn a_domains_base_type_is_named_with_its_modifier() {
        Spi::run("CREATE DOMAIN short AS varchar(7) CHECK (value <> 'x'); CREATE DOMAIN shorter AS short").unwrap();
        assert_eq!(catalog::base_type_name(type_oid("shorter"), -1), "character varying(7)");
        assert_eq!(catalog::base_type_name(type_oid("int8"), -1), "bigint");
    }

    #[pg_test]
    fn only_types_without_foreign_code_are_built_in() {
        Spi::run("CREATE TYPE mood AS ENUM ('ok'); CREATE DOMAIN positive AS int CHECK (value > 0)").unwrap();
        for (name, built_in) in [
            ("text", true),
            ("jsonb", true),
            ("int4[]", true),
            ("positive", true),
            ("mood", false),
            ("mood[]", false),
            ("rag_internal.collection", false),
        ] {
            assert_eq!(catalog::is_built_in_type(type_oid(name)), built_in, "{name}");
        }
    }

    #[pg_test]
    fn the_vector_type_is_found_whatever_the_search_path() {
        Spi::run("SET LOCAL search_path = ''").unwrap();
        let schema = catalog::vector_schema();
        assert_eq!(schema, "public");
    }
}
