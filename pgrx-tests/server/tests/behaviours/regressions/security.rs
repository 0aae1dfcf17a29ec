//! Somebody's code that ran as somebody else, or brought the server down.

use ragent_server_tests::database::{Database, current, quote};
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;

use super::{collect_with, make};

/// A role that may make tables, with a schema `evil` where `note(how)` logs as whom it runs and tries to climb.
async fn make_mallory(db: &Database<'_>, admin: &Session) -> (String, Session) {
    let mallory = db.create_role("mallory").await;
    let name = quote(&mallory);
    admin.run(&format!("CREATE SCHEMA evil AUTHORIZATION {name}; GRANT CREATE ON SCHEMA public TO {name}")).await;
    let session = db.connect_as(&mallory).await;
    session
        .run(&format!(
            "CREATE SEQUENCE evil.witness;
             CREATE TABLE evil.log (who text DEFAULT current_user, how text);
             GRANT USAGE ON SCHEMA evil TO PUBLIC; GRANT ALL ON evil.log TO PUBLIC; GRANT ALL ON SEQUENCE evil.witness TO PUBLIC;
             CREATE FUNCTION evil.note(how text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
             BEGIN
                 BEGIN
                    INSERT INTO evil.log (how) VALUES (note.how);
                 EXCEPTION WHEN OTHERS THEN
                    -- What cannot be written can still be told.
                    IF current_user <> '{mallory}' THEN RAISE WARNING 'evil: % as %', note.how, current_user; END IF;
                 END;
                 BEGIN
                    ALTER ROLE {name} SUPERUSER;
                 EXCEPTION WHEN OTHERS THEN NULL;
                 END;
                 RETURN true;
             END $$;
             CREATE FUNCTION evil.still(how text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
                $$ BEGIN RETURN evil.note(how); END $$;"
        ))
        .await;
    (mallory, session)
}

/// Whoever ran mallory's code other than herself, as the log and the warnings of a session tell, and whether she climbed.
async fn damage(admin: &Session, victim: &Session, mallory: &str) -> Vec<String> {
    let mut damage =
        admin.column(&format!("SELECT DISTINCT who || ' ran ' || how FROM evil.log WHERE who <> '{mallory}'")).await;
    damage.extend(victim.notices().iter().map(|n| n.message().to_owned()).filter(|m| m.starts_with("evil:")));
    damage.extend(
        admin.column(&format!("SELECT 'climbed' FROM pg_roles WHERE rolname = '{mallory}' AND rolsuper")).await,
    );
    damage
}

/// What looks at all collections without naming one.
const LOOKS: [&str; 6] = [
    "SELECT * FROM rag.status",
    "SELECT * FROM rag.search('honest bait')",
    "SELECT * FROM rag.search(array_fill(0.1, ARRAY[384])::vector)",
    "SELECT rag.ask('honest bait?', chat_model => 'fake/chat')",
    "SELECT * FROM rag.collections",
    "SELECT * FROM rag.failures",
];

#[tokio::test]
async fn a_superuser_who_names_no_table_runs_no_owners_code() {
    let (db, admin) = Database::open().await;
    make(&admin, "honest").await;
    let (mallory, session) = make_mallory(&db, &admin).await;
    session
        .run(
            "CREATE DOMAIN evil.id AS int CHECK (evil.note('domain'));
             CREATE TYPE evil.kind AS ENUM ('a', 'b');
             CREATE FUNCTION evil.to_json(evil.kind) RETURNS json LANGUAGE plpgsql AS
                $$ BEGIN PERFORM evil.note('cast to json'); RETURN '1'; END $$;
             CREATE CAST (evil.kind AS json) WITH FUNCTION evil.to_json(evil.kind);
             CREATE FUNCTION evil.to_text(evil.kind) RETURNS text LANGUAGE plpgsql AS
                $$ BEGIN PERFORM evil.note('cast to text'); RETURN 'a'; END $$;
             CREATE CAST (evil.kind AS text) WITH FUNCTION evil.to_text(evil.kind) AS IMPLICIT;
             CREATE TABLE bait (id evil.id PRIMARY KEY, body text, kind evil.kind);
             INSERT INTO bait VALUES (1, 'bait', 'a'), (2, 'more bait', 'b'); GRANT SELECT ON bait TO PUBLIC;
             CREATE TABLE spanned (id evil.id[] PRIMARY KEY, body text); INSERT INTO spanned VALUES ('{1}', 'bait');
             GRANT SELECT ON spanned TO PUBLIC",
        )
        .await;
    session
        .run(
            "SELECT rag.create_collection('bait', 'bait', '{body}', title => 'kind', metadata => '{kind}',
                                          embedding_model => 'fake/embed-384')",
        )
        .await;
    // Domains inside of other types: refusing them as keys is fine as well.
    let _ = session
        .try_rows("SELECT rag.create_collection('spanned', 'spanned', '{body}', embedding_model => 'fake/embed-384')")
        .await;
    current(&session).await;
    // Constant expressions are evaluated when a query is planned.
    for attack in [
        "CREATE INDEX ON bait (evil.still('index'))",
        "CREATE INDEX ON bait (id) WHERE evil.still('predicate')",
        "CREATE INDEX ON bait_chunks (evil.still('index of chunks'))",
        "ALTER TABLE bait ENABLE ROW LEVEL SECURITY; CREATE POLICY evil ON bait USING (evil.note('policy'))",
    ] {
        session.run(attack).await;
        for look in LOOKS {
            let _ = admin.try_rows(look).await;
            assert_eq!(damage(&admin, &admin, &mallory).await, Vec::<String>::new(), "{look}\nafter {attack}");
        }
        // Nor when it is named.
        let _ = admin.try_rows("SELECT * FROM rag.search('bait', 'bait')").await;
        assert_eq!(damage(&admin, &admin, &mallory).await, Vec::<String>::new(), "named, after {attack}");
    }
    assert!(session.number("SELECT count(*) FROM evil.log").await > 0, "the trap does not work at all");
}

#[tokio::test]
async fn a_policy_that_decides_about_a_searcher_cannot_write_as_the_searcher() {
    let (db, admin) = Database::open().await;
    let (mallory, session) = make_mallory(&db, &admin).await;
    let alice = db.create_role("alice").await;
    let alice_session = db.connect_as(&alice).await;
    admin.run(&format!("CREATE TABLE diary (line text); ALTER TABLE diary OWNER TO {}", quote(&alice))).await;
    make(&session, "bait").await;
    session
        .run(
            "CREATE FUNCTION evil.judge() RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN
                BEGIN SET LOCAL transaction_read_only = off; EXCEPTION WHEN OTHERS THEN NULL; END;
                BEGIN SET LOCAL ROLE NONE; EXCEPTION WHEN OTHERS THEN NULL; END;
                BEGIN INSERT INTO public.diary VALUES ('forged'); EXCEPTION WHEN OTHERS THEN NULL; END;
                RETURN true;
             END $$;
             GRANT SELECT ON bait TO PUBLIC; ALTER TABLE bait ENABLE ROW LEVEL SECURITY;
             CREATE POLICY judge ON bait USING (evil.judge())",
        )
        .await;
    current(&session).await;
    alice_session.run("SELECT * FROM rag.search('bait'); SELECT * FROM rag.status").await;
    alice_session.run("SELECT * FROM rag.search('bait', 'bait')").await;
    alice_session.run("SELECT rag.ask('bait?', chat_model => 'fake/chat')").await;
    assert_eq!(alice_session.number("SELECT count(*) FROM diary").await, 0);
    assert_eq!(damage(&admin, &alice_session, &mallory).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_policy_that_searches_in_many_ways_does_not_crash_the_server() {
    let (db, admin) = Database::open().await;
    let (_mallory, session) = make_mallory(&db, &admin).await;
    let bob = db.create_role("bob").await;
    session
        .run("CREATE TABLE bait (id int PRIMARY KEY, body text); INSERT INTO bait VALUES (1, 'one'), (2, 'two')")
        .await;
    collect_with(&session, "bait", "fake/embed-8").await;
    current(&session).await;
    // More tables than plans are kept; each search of one needs plans of its own.
    session
        .run(
            "DO $$ BEGIN FOR i IN 1..110 LOOP
                EXECUTE format('CREATE TABLE evil.t%s (id int PRIMARY KEY, body text)', i);
                PERFORM rag.create_collection('t' || i, format('evil.t%s', i)::regclass, '{body}',
                                              embedding_model => 'fake/embed-8', dimensions => 8);
                EXECUTE format('GRANT SELECT ON evil.t%s TO PUBLIC', i);
             END LOOP; END $$",
        )
        .await;
    session
        .run(
            "CREATE FUNCTION evil.busy() RETURNS boolean LANGUAGE plpgsql AS $$
             DECLARE v vector := array_fill(0.1, ARRAY[8]);
             BEGIN
                IF current_setting('evil.depth', true) = '1' THEN RETURN true; END IF;
                PERFORM set_config('evil.depth', '1', true);
                FOR i IN 1..110 LOOP PERFORM count(*) FROM rag.search(v, 't' || i, 1 + i); END LOOP;
                FOR i IN 1..60 LOOP PERFORM count(*) FROM rag.search(v, 'bait', 1 + i); END LOOP;
                FOR i IN 1..300 LOOP EXECUTE format('SELECT %s + count(*) FROM pg_am', i); END LOOP;
                PERFORM set_config('evil.depth', '', true);
                RETURN true;
             END $$;
             GRANT SELECT ON bait TO PUBLIC; ALTER TABLE bait ENABLE ROW LEVEL SECURITY;
             CREATE POLICY busy ON bait USING (evil.busy())",
        )
        .await;
    let bob = db.connect_as(&bob).await;
    let search = "SELECT count(*) FROM rag.search(array_fill(0.1, ARRAY[8])::vector, 'bait', 5)";
    assert_eq!(bob.number(search).await, 2);
    assert_eq!(bob.number(search).await, 2);
}

#[tokio::test]
async fn a_source_that_changes_hands_leaves_its_former_owners_triggers_unrun() {
    let (db, admin) = Database::open().await;
    let (mallory, session) = make_mallory(&db, &admin).await;
    make(&session, "bait").await;
    current(&session).await;
    session
        .run(
            "CREATE FUNCTION evil.on_row() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM evil.note('trigger'); RETURN NEW; END $$;
             CREATE TRIGGER evil BEFORE INSERT OR UPDATE ON bait_chunks FOR EACH ROW EXECUTE FUNCTION evil.on_row();
             CREATE INDEX ON bait_chunks (evil.still(content))",
        )
        .await;
    make(&admin, "others").await;
    admin.run("ALTER TABLE bait OWNER TO postgres; INSERT INTO bait VALUES (3, 'three')").await;
    let blocked = "SELECT last_error IS NOT NULL FROM rag.status WHERE collection = 'bait'";
    admin.wait_until("the collection to be blocked", PATIENCE, blocked).await;
    let error = admin.value("SELECT last_error FROM rag.status WHERE collection = 'bait'").await;
    assert!(error.contains("owner"), "{error}");
    // Others go on, and nobody searches it by accident.
    assert_eq!(admin.value("SELECT rag.wait_until_current('others', '20 s')").await, "t");
    assert_eq!(admin.number("SELECT count(*) FROM rag.search('others') WHERE collection = 'others'").await, 2);
    admin.refusal("SELECT * FROM rag.search('bait', 'bait')", "55000").await;
    assert_eq!(damage(&admin, &admin, &mallory).await, Vec::<String>::new());
    // Whoever owns the source now gets rid of it.
    admin.run("SELECT rag.drop_collection('bait')").await;
    assert_eq!(damage(&admin, &admin, &mallory).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_membership_that_is_given_or_taken_counts_at_the_next_search_of_the_same_session() {
    let (db, admin) = Database::open().await;
    make(&admin, "notes").await;
    let (team, member) = (db.create_role("team").await, db.create_role("member").await);
    admin
        .run(&format!(
            "GRANT SELECT ON notes TO {team}, {member}; ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
             CREATE POLICY of_team ON notes TO {team} USING (true); CREATE POLICY of_member ON notes TO {member} USING (id = 1)"
        ))
        .await;
    current(&admin).await;
    let session = db.connect_as(&member).await;
    let found = "SELECT count(*) FROM rag.search('one two', 'notes')";
    assert_eq!(session.number(found).await, 1);
    for (change, rows) in [
        (format!("GRANT {team} TO {member}"), 2),
        (format!("REVOKE {team} FROM {member}"), 1),
        (format!("GRANT {team} TO {member}"), 2),
    ] {
        admin.run(&change).await;
        assert_eq!(session.number(found).await, rows, "{change}");
    }
    admin.run(&format!("REVOKE {team} FROM {member}")).await;
    // Before PostgreSQL 16 it is the role that inherits, then it is the membership.
    admin.run(&format!("ALTER ROLE {member} NOINHERIT; GRANT {team} TO {member}")).await;
    assert_eq!(session.number(found).await, 1);
}
