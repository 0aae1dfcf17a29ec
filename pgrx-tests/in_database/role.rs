//! Acting as somebody else ends when it should.

#[pgrx::pg_schema]
mod tests {
    use crate::pg::role::{self, ActingAs, BOOTSTRAP_SUPERUSER, Settings};
    use pgrx::prelude::*;

    fn oid(name: &str) -> pg_sys::Oid {
        Spi::get_one_with_args("SELECT $1::regrole::oid", &[name.into()]).unwrap().unwrap()
    }

    #[pg_test]
    fn user_and_search_path_come_back_when_the_guard_is_dropped() {
        Spi::run("CREATE ROLE guest; SET LOCAL search_path = public, rag").unwrap();
        let before = (role::current(), role::setting("search_path"));
        {
            let _acting = ActingAs::restricted(oid("guest"));
            assert_eq!(role::current(), oid("guest"));
            assert_eq!(role::setting("search_path").as_deref(), Some("pg_catalog, pg_temp"));
            {
                let _inner = ActingAs::superuser();
                assert_eq!(role::current(), BOOTSTRAP_SUPERUSER);
            }
            assert_eq!(role::current(), oid("guest"));
        }
        assert_eq!((role::current(), role::setting("search_path")), before);
    }

    #[pg_test]
    fn user_and_search_path_come_back_after_an_error_caught_in_sql() {
        Spi::run("CREATE ROLE guest; SET LOCAL search_path = public, rag").unwrap();
        let before = (role::current(), role::setting("search_path"));
        Spi::run(
            "DO $$ BEGIN PERFORM rag.search('[1,2]'::vector, 'no such collection'); EXCEPTION WHEN OTHERS THEN NULL; END $$",
        )
        .unwrap();
        assert_eq!((role::current(), role::setting("search_path")), before);
    }

    #[pg_test]
    fn a_setting_holds_until_its_level_ends() {
        let before = role::setting("application_name");
        {
            let settings = Settings::new();
            settings.set("application_name", "for a while");
            assert_eq!(role::setting("application_name").as_deref(), Some("for a while"));
        }
        assert_eq!(role::setting("application_name"), before);
    }
}
