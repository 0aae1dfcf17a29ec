//! Whose code runs with whose rights: strangers' collections where none is named, tables that change hands, event triggers.

use std::process::Command;
use std::time::{Duration, Instant};

use ragent_server_tests::database::{Database, current, granted, quote};
use ragent_server_tests::session::Session;
use ragent_server_tests::wait::PATIENCE;

/// A role with a schema `other` that everybody may use, and its session.
async fn make_stranger(db: &Database<'_>, admin: &Session) -> (String, Session) {
    let name = db.create_role("stranger").await;
    admin
        .run(&format!("CREATE SCHEMA other AUTHORIZATION {}; GRANT USAGE ON SCHEMA other TO PUBLIC", quote(&name)))
        .await;
    let session = db.connect_as(&name).await;
    session.run("SET search_path = other, public").await;
    (name, session)
}

/// A table `id`, `body` of one row that everybody may read, as a collection of the same name.
async fn make(session: &Session, schema: &str, name: &str) {
    session
        .run(&format!(
            "CREATE TABLE {schema}.{name} (id int PRIMARY KEY, body text); INSERT INTO {schema}.{name} VALUES (1, 'The colour of one {name} is blue.');
             GRANT SELECT ON {schema}.{name} TO PUBLIC"
        ))
        .await;
    session
        .run(&format!(
            "SELECT rag.create_collection('{name}', '{schema}.{name}', '{{body}}', embedding_model => 'fake/embed-64')"
        ))
        .await;
}

/// What a session was told since it was last asked: severity and message, and the hint.
fn told_since(session: &Session, before: usize) -> Vec<String> {
    let told = |n: &tokio_postgres::error::DbError| {
        format!("{} {} | {}", n.severity(), n.message(), n.hint().unwrap_or_default())
    };
    session.notices().iter().skip(before).map(told).collect()
}

/// The collections a search of all finds something in.
const FOUND: &str = "SELECT collection FROM rag.search('one') ORDER BY 1";

/// What looks at all collections without naming one.
const LOOKS: [&str; 5] = [
    FOUND,
    "SELECT * FROM rag.search(array_fill(0.1, ARRAY[64])::vector)",
    "SELECT rag.ask('one good?', chat_model => 'fake/chat')",
    "SELECT * FROM rag.status",
    "SELECT * FROM rag.collections",
];

#[tokio::test]
async fn a_strangers_policy_runs_for_those_only_who_name_its_table_or_trust_its_owner() {
    let (db, admin) = Database::open().await;
    let (stranger, session) = make_stranger(&db, &admin).await;
    let victim = db.create_role("victim").await;
    make(&admin, "public", "good").await;
    make(&session, "other", "bait").await;
    current(&admin).await;
    session
        .run(
            "CREATE FUNCTION judge() RETURNS boolean LANGUAGE plpgsql AS
                $$ BEGIN RAISE WARNING 'as % of %', current_user, current_query(); RETURN true; END $$;
             ALTER TABLE bait ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON bait USING (judge())",
        )
        .await;
    let victim = db.connect_as(&victim).await;
    for look in LOOKS {
        let before = victim.notices().len();
        victim.run(look).await;
        let told = told_since(&victim, before);
        assert!(!told.iter().any(|t| t.starts_with("WARNING")), "{look}: {told:?}");
        if !look.contains("FROM rag.status") && !look.contains("FROM rag.collections") {
            assert_eq!(told.len(), 1, "{look}: {told:?}");
            let left_out = format!("NOTICE 1 collection is left out, of owners that {}", db.name);
            assert!(told[0].starts_with(&left_out) && told[0].contains(&format!("\"bait\" of {stranger}")), "{told:?}");
            assert!(told[0].contains("rag.trusted_owners"), "{told:?}");
        }
    }
    assert_eq!(victim.column(FOUND).await, ["good"]);
    // Seen, not counted.
    assert_eq!(
        victim.column("SELECT collection || coalesce(rows::text, '-') FROM rag.status ORDER BY 1").await,
        ["bait-", "good1"]
    );
    // Whoever names it asks for it, as by a SELECT.
    assert_eq!(victim.number("SELECT count(*) FROM rag.search('one', 'bait')").await, 1);
    victim.run(&format!("SET rag.trusted_owners = nobody_here, {}", quote(&stranger))).await;
    assert_eq!(victim.column(FOUND).await, ["bait", "good"]);
    assert_eq!(victim.column("SELECT rows FROM rag.status").await, ["1", "1"]);
    victim.run("RESET rag.trusted_owners").await;
    assert_eq!(victim.column(FOUND).await, ["good"]);
    // A member has the owner's privileges.
    admin.run(&format!("GRANT {} TO {}", quote(&stranger), quote(&format!("{}_victim", db.name)))).await;
    assert_eq!(victim.column(FOUND).await, ["bait", "good"]);
}

#[tokio::test]
async fn whoever_owns_the_database_is_trusted_and_so_is_a_table_without_code() {
    let (db, admin) = Database::open().await;
    let (stranger, session) = make_stranger(&db, &admin).await;
    let victim = db.connect_as(&db.create_role("victim").await).await;
    session.run("CREATE TABLE plain (id int PRIMARY KEY, body text CHECK (length(body) > 2), twice int GENERATED ALWAYS AS (id * 2) STORED)").await;
    session.run("INSERT INTO plain VALUES (1, 'one plain'); GRANT SELECT ON plain TO PUBLIC; CREATE INDEX ON plain (lower(body))").await;
    session.run("SELECT rag.create_collection('plain', 'plain', '{body}', embedding_model => 'fake/embed-64')").await;
    current(&session).await;
    assert_eq!(victim.column(FOUND).await, ["plain"]);
    assert_eq!(victim.column("SELECT rows FROM rag.status").await, ["1"]);
    for code in [
        "CREATE FUNCTION f(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1'; CREATE INDEX i ON plain (f(body))",
        "DROP INDEX i; CREATE INDEX i ON plain (id) WHERE f(body) = 'x'",
        "DROP INDEX i; CREATE STATISTICS s ON f(body), id FROM plain",
        "DROP STATISTICS s; ALTER TABLE plain ADD CONSTRAINT c CHECK (f(body) <> 'x')",
        "ALTER TABLE plain DROP CONSTRAINT c; ALTER TABLE plain ADD g text GENERATED ALWAYS AS (f(body)) STORED",
        "ALTER TABLE plain DROP g; CREATE INDEX i ON plain_chunks (f(content))",
    ] {
        session.run(code).await;
        assert_eq!(victim.column(FOUND).await, Vec::<String>::new(), "{code}");
        assert_eq!(victim.column("SELECT rows FROM rag.status").await, ["∅"], "{code}");
    }
    admin.run(&format!("ALTER DATABASE {} OWNER TO {}", db.name, quote(&stranger))).await;
    assert_eq!(victim.column(FOUND).await, ["plain"]);
    admin.run(&format!("ALTER DATABASE {} OWNER TO postgres", db.name)).await;
    assert_eq!(victim.column(FOUND).await, Vec::<String>::new());
}

#[tokio::test]
async fn strangers_make_nobody_ask_many_models() {
    let (db, admin) = Database::open().await;
    let (_, session) = make_stranger(&db, &admin).await;
    let victim = db.connect_as(&db.create_role("victim").await).await;
    for i in 1..=6 {
        session
            .run(&format!(
                "CREATE TABLE t{i} (id int PRIMARY KEY, body text); INSERT INTO t{i} VALUES (1, 'one of {i}');
                 GRANT SELECT ON t{i} TO PUBLIC"
            ))
            .await;
        session
            .run(&format!(
                "SELECT rag.create_collection('t{i}', 't{i}', '{{body}}', embedding_model => 'fake/embed-{}')",
                8 * i
            ))
            .await;
    }
    current(&session).await;
    assert_eq!(victim.column(FOUND).await, ["t1", "t2", "t3", "t4"]);
    victim.run("SET rag.embedding_model = 'fake/embed-48'").await;
    assert_eq!(victim.column(FOUND).await, ["t1", "t2", "t3", "t4", "t6"]);
}

#[tokio::test]
async fn names_of_trusted_owners_are_checked_when_they_are_set() {
    let (_db, session) = Database::open().await;
    session
        .run("SET rag.trusted_owners = ''; SET rag.trusted_owners = 'a, \"B c\"'; SET rag.trusted_owners = a, b")
        .await;
    assert_eq!(session.value("SHOW rag.trusted_owners").await, "a, b");
    for wrong in ["'a,,b'", "'\"a'", "'a b'", "','"] {
        session.refusal(&format!("SET rag.trusted_owners = {wrong}"), "22023").await;
    }
}

#[tokio::test]
async fn what_one_unnamed_collection_does_wrong_is_a_warning_and_ends_nothing() {
    let (db, admin) = Database::open().await;
    let (stranger, session) = make_stranger(&db, &admin).await;
    let victim = db.connect_as(&db.create_role("victim").await).await;
    make(&admin, "public", "good").await;
    make(&session, "other", "bait").await;
    current(&admin).await;
    victim
        .run(&format!("SET rag.embedding_model = 'fake/embed-64'; SET rag.trusted_owners = {}", quote(&stranger)))
        .await;
    assert_eq!(victim.column(FOUND).await, ["bait", "good"]);
    for (broken, mended) in [
        (
            "ALTER TABLE bait_chunks RENAME COLUMN content TO contents",
            "ALTER TABLE bait_chunks RENAME COLUMN contents TO content",
        ),
        (
            "ALTER TABLE bait ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON bait USING (1 / (id - 1) = 1)",
            "DROP POLICY p ON bait; ALTER TABLE bait DISABLE ROW LEVEL SECURITY",
        ),
        ("ALTER TABLE bait_chunks DROP chunk_id", "SELECT rag.drop_collection('bait'); DROP TABLE bait"),
        ("ALTER TABLE bait DROP CONSTRAINT bait_pkey", "ALTER TABLE bait ADD PRIMARY KEY (id)"),
    ] {
        session.run(broken).await;
        let before = victim.notices().len();
        assert_eq!(victim.column(FOUND).await, ["good"], "{broken}");
        let told = told_since(&victim, before);
        assert!(told.len() == 1 && told[0].starts_with("WARNING collection \"bait\""), "{broken}: {told:?}");
        for look in LOOKS {
            victim.run(look).await;
            victim.run(&format!("BEGIN READ ONLY; {look}; SELECT 1; COMMIT")).await;
        }
        let before = victim.notices().len();
        let answer = victim.value("SELECT rag.ask('What is the colour of one good?')").await;
        assert!(answer.contains("one good is blue"), "{broken}: {answer} {:?}", told_since(&victim, before));
        assert_eq!(victim.column("SELECT rows FROM rag.status WHERE collection = 'good'").await, ["1"], "{broken}");
        // Named, it is an error.
        assert!(victim.try_rows("SELECT * FROM rag.search('one', 'bait')").await.is_err(), "{broken}");
        session.run(mended).await;
        if mended.contains("DROP TABLE") {
            make(&session, "other", "bait").await;
        }
    }
    current(&admin).await;
    assert_eq!(victim.column(FOUND).await, ["bait", "good"]);
}

#[tokio::test]
async fn a_lock_on_an_unnamed_collection_is_not_waited_for() {
    let (db, admin) = Database::open().await;
    let (_stranger, session) = make_stranger(&db, &admin).await;
    let victim = db.connect_as(&db.create_role("victim").await).await;
    make(&admin, "public", "good").await;
    make(&session, "other", "bait").await;
    current(&admin).await;
    for lock in [
        "LOCK TABLE other.bait",
        "LOCK TABLE other.bait_chunks",
        "REINDEX INDEX other.bait_pkey",
        "REINDEX INDEX other.bait_chunks_embedding_idx",
        "ALTER TABLE other.bait ADD COLUMN more int",
    ] {
        session.run(&format!("BEGIN; {lock}")).await;
        for look in LOOKS {
            let began = Instant::now();
            victim.run(&format!("SET statement_timeout = '20 s'; {look}")).await;
            assert!(began.elapsed() < Duration::from_secs(5), "{look} took {:?} under {lock}", began.elapsed());
        }
        assert_eq!(victim.column(FOUND).await, ["good"], "{lock}");
        session.run("ROLLBACK").await;
        assert_eq!(victim.column(FOUND).await, ["bait", "good"], "after {lock}");
    }
}

#[tokio::test]
async fn an_open_transaction_of_one_owner_holds_up_nobody_elses_commands_and_grants() {
    let (db, admin) = Database::open().await;
    let (_, session) = make_stranger(&db, &admin).await;
    let reader = db.create_role("reader").await;
    make(&admin, "public", "good").await;
    make(&session, "other", "trap").await;
    current(&admin).await;
    // Something of the stranger's waits to be tried again.
    session
        .run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now' USING ERRCODE = '55006'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON trap_chunks FOR EACH ROW EXECUTE FUNCTION refuse();
             CREATE INDEX bait ON trap (body); INSERT INTO trap VALUES (2, 'Another one.')",
        )
        .await;
    let waits = "SELECT count(*) = 1 FROM rag_internal.waiting WHERE collection <> 0";
    admin.wait_until("the wait", PATIENCE, waits).await;
    admin.run("SET statement_timeout = '5s'; REVOKE SELECT ON good FROM PUBLIC").await;
    for in_hand in ["DROP INDEX bait", "SELECT rag.retry_failures()", "SELECT rag.refresh('trap')"] {
        admin.wait_until("the wait", PATIENCE, waits).await;
        session.run(&format!("BEGIN; {in_hand}")).await;
        admin.run("CREATE INDEX mine ON good (body)").await;
        admin.run("DROP INDEX mine").await;
        admin.run("SELECT rag.retry_failures()").await;
        admin.run("ALTER SERVER fake VERSION '2'").await;
        let grants = |what: &str, direction: &str| format!("{what} SELECT ON good {direction} {}", quote(&reader));
        let is_granted = format!("has_table_privilege('{reader}', 'good_chunks', 'SELECT')");
        admin.run(&grants("GRANT", "TO")).await;
        admin.wait_until(in_hand, PATIENCE, &format!("SELECT {is_granted}")).await;
        admin.run(&grants("REVOKE", "FROM")).await;
        admin.wait_until(in_hand, PATIENCE, &format!("SELECT NOT {is_granted}")).await;
        assert_eq!(admin.value("SELECT state FROM rag.status WHERE collection = 'good'").await, "ok", "{in_hand}");
        session.run("ROLLBACK").await;
    }
    // A type is waited for some seconds, in however many tables it is used.
    admin.run("CREATE TYPE public.shared AS ENUM ('one')").await;
    for n in 0..8 {
        session.run(&format!("CREATE TABLE t{n} (id int PRIMARY KEY, body public.shared)")).await;
        session
            .run(&format!(
                "SELECT rag.create_collection('t{n}', 't{n}', '{{body}}', embedding_model => 'fake/embed-64')"
            ))
            .await;
    }
    session.run("BEGIN; LOCK TABLE t0, t1, t2, t3, t4, t5, t6, t7").await;
    admin.run("ALTER TYPE public.shared ADD VALUE 'two'").await;
}

#[tokio::test]
async fn cancel_and_timeout_end_a_search_of_all_collections() {
    let (db, admin) = Database::open().await;
    make(&admin, "public", "good").await;
    make(&admin, "public", "slow").await;
    current(&admin).await;
    admin
        .run(
            "CREATE FUNCTION slowly() RETURNS boolean LANGUAGE sql AS 'SELECT true FROM pg_sleep(60)';
             ALTER TABLE slow ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON slow USING (slowly())",
        )
        .await;
    let victim = db.connect_as(&db.create_role("victim").await).await;
    for look in ["SELECT * FROM rag.search('one')", "SELECT * FROM rag.status"] {
        let began = Instant::now();
        victim.error(&format!("SET statement_timeout = '300 ms'; {look}"), "57014").await;
        assert!(began.elapsed() < Duration::from_secs(10), "{look}");
        victim.run("RESET statement_timeout").await;
        let (ended, ()) = tokio::join!(victim.try_rows(look), async {
            let waits = format!(
                "SELECT coalesce(wait_event = 'PgSleep', false) FROM pg_stat_activity WHERE pid = {}",
                victim.pid
            );
            admin.wait_until("the policy to sleep", PATIENCE, &waits).await;
            admin.run(&format!("SELECT pg_cancel_backend({})", victim.pid)).await;
        });
        assert!(ended.is_err(), "{look}");
    }
}

#[tokio::test]
async fn many_collections_of_others_leave_room_for_ones_own() {
    let (db, admin) = Database::open().await;
    let (_stranger, session) = make_stranger(&db, &admin).await;
    let victim = db.create_role("victim").await;
    admin.run(&format!("CREATE SCHEMA mine AUTHORIZATION {}", quote(&victim))).await;
    let victim = db.connect_as(&victim).await;
    make(&victim, "mine", "zebra").await;
    session
        .run(
            "DO $$ BEGIN FOR i IN 1..70 LOOP
                EXECUTE format('CREATE TABLE other.x%s (id int PRIMARY KEY, body text); GRANT SELECT ON other.x%1$s TO PUBLIC', i);
                PERFORM rag.create_collection('!' || i, format('other.x%s', i)::regclass, '{body}', embedding_model => 'fake/embed-64');
             END LOOP; END $$",
        )
        .await;
    current(&victim).await;
    let answer = victim.value("SELECT rag.ask('one zebra?', chat_model => 'fake/chat')").await;
    assert!(answer.contains("one zebra is blue"), "{answer}");
    let offered = db.provider.chat_requests();
    let tools = offered.iter().filter_map(|r| r.get("tools")).next().expect("tools were offered").to_string();
    assert!(tools.contains("zebra"), "{tools}");
}

/// A stranger's collection with code of its owner's in every place that can hold some, which tries to make its owner a superuser.
async fn make_trap(session: &Session, owner: &str) {
    make(session, "other", "bait").await;
    current(session).await;
    session
        .run(&format!(
            "CREATE FUNCTION climb() RETURNS boolean LANGUAGE plpgsql AS $$
             BEGIN
                IF current_user <> '{owner}' THEN ALTER ROLE {name} SUPERUSER; END IF;
                RETURN true;
             EXCEPTION WHEN insufficient_privilege THEN RETURN true;
             END $$;
             CREATE FUNCTION still() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN other.climb(); END $$;
             CREATE FUNCTION on_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM other.climb(); RETURN NEW; END $$;
             CREATE DOMAIN watched AS text CHECK (other.climb());
             CREATE TRIGGER go BEFORE INSERT OR UPDATE ON bait_chunks FOR EACH ROW EXECUTE FUNCTION on_row();
             CREATE INDEX ON bait_chunks (id) WHERE still();
             ALTER TABLE bait_chunks ALTER model TYPE watched;
             CREATE STATISTICS s ON still(), content FROM bait_chunks;
             ALTER TABLE bait_chunks ADD CHECK (still());
             CREATE INDEX ON bait (body) WHERE still()",
            name = quote(owner)
        ))
        .await;
}

/// REASSIGN OWNED fires no event trigger, so what changes hands by it, there and back, is seen only by what is done meanwhile.
#[tokio::test]
async fn what_is_attached_to_a_table_while_it_is_anothers_is_noticed() {
    let (db, admin) = Database::open().await;
    let (owner, other) = (db.create_role("owner").await, db.create_role("other").await);
    let (owner, other) = (quote(&owner), quote(&other));
    admin.run(&format!("GRANT ALL ON SCHEMA public TO {owner}, {other}")).await;
    let attached = [
        "CREATE INDEX ON notes (length(body))",
        "CREATE POLICY later ON notes USING (true)",
        "ALTER POLICY first ON notes USING (id > 0)",
        "CREATE TABLE part PARTITION OF notes FOR VALUES IN (1)",
        "CREATE SCHEMA more CREATE TABLE part PARTITION OF public.notes DEFAULT",
    ];
    admin.run(&format!("GRANT CREATE ON DATABASE {} TO {other}", quote(&db.name))).await;
    for attach in attached {
        admin
            .run(&format!(
                "CREATE TABLE notes (id int, part int, body text, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
                 CREATE POLICY first ON notes USING (true);
                 ALTER TABLE notes OWNER TO {owner}"
            ))
            .await;
        admin.run("SELECT rag.create_collection('notes', 'notes', '{body}', embedding_model => 'fake/embed-64')").await;
        admin.run(&format!("REASSIGN OWNED BY {owner} TO {other}; REASSIGN OWNED BY {other} TO {owner}")).await;
        admin.run("SELECT * FROM rag.search('x', 'notes')").await;
        admin
            .run(&format!(
                "REASSIGN OWNED BY {owner} TO {other}; SET ROLE {other}; {attach}; RESET ROLE;
                 REASSIGN OWNED BY {other} TO {owner}"
            ))
            .await;
        admin.refusal("SELECT * FROM rag.search('x', 'notes')", "55000").await;
        admin.run("DROP TABLE notes").await;
    }
}

#[tokio::test]
async fn a_collection_that_changes_hands_waits_for_its_new_owner() {
    let (db, admin) = Database::open().await;
    let (stranger, session) = make_stranger(&db, &admin).await;
    let name = quote(&stranger);
    let climbed = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{stranger}'");
    make_trap(&session, &stranger).await;
    let changes = [
        "REASSIGN OWNED BY FORMER TO postgres; GRANT ALL ON SCHEMA other TO FORMER",
        "ALTER TABLE other.bait OWNER TO postgres",
        "ALTER TABLE CHUNKS OWNER TO postgres",
        // Given back, it may carry what somebody attached in between.
        "ALTER TABLE CHUNKS OWNER TO postgres; ALTER TABLE CHUNKS OWNER TO FORMER",
        "REASSIGN OWNED BY FORMER TO postgres; GRANT ALL ON SCHEMA other TO FORMER;
         CREATE INDEX ON CHUNKS (chunk) WHERE pg_catalog.length('x') = 1;
         ALTER TABLE CHUNKS OWNER TO FORMER; ALTER TABLE other.bait OWNER TO FORMER",
    ];
    for (change, rows) in changes.into_iter().zip(2..) {
        let chunks = admin.value("SELECT chunk_table FROM rag.collections").await;
        admin.run(&change.replace("FORMER", &name).replace("CHUNKS", &chunks)).await;
        // Nobody but the former owner does anything any more: what runs as somebody else runs because of us.
        admin.run(&format!("GRANT ALL ON other.bait TO {name}")).await;
        session.run(&format!("INSERT INTO other.bait VALUES ({rows}, 'later')")).await;
        for searcher in [&session, &admin] {
            let error = searcher.refusal("SELECT * FROM rag.search('x', 'bait')", "55000").await;
            assert!(error.hint().unwrap_or_default().contains("rag.refresh('bait')"), "{error:?}");
            searcher.run(FOUND).await;
            searcher.run("SELECT * FROM rag.status").await;
        }
        let status = admin.rows("SELECT last_error, last_error_hint FROM rag.status WHERE collection = 'bait'").await;
        assert!(format!("{status:?}").contains("rag.refresh"), "{change}: {status:?}");
        admin.refusal("SELECT rag.wait_until_current('bait', '60 s')", "55000").await;
        // Another collection goes on.
        make(&admin, "public", "good").await;
        assert_eq!(admin.value("SELECT rag.wait_until_current(timeout => '60 s')").await, "t");
        admin.run("SELECT rag.drop_collection('good'); DROP TABLE good").await;
        assert_eq!(admin.value(&climbed).await, "f", "{change}");
        if rows == 2 {
            session.refusal("SELECT rag.refresh('bait')", "42501").await;
            // What is attached to the source is the new owner's to look at.
            admin.run("DROP INDEX other.bait_body_idx; SELECT rag.refresh('bait')").await;
            assert_eq!(admin.value("SELECT rag.wait_until_current('bait', '60 s')").await, "t");
            assert_eq!(admin.number("SELECT count(*) FROM rag.search('one later', 'bait')").await, rows);
            assert_eq!(admin.value("SELECT chunk_table FROM rag.collections").await, "other.bait_chunks");
        }
        admin.run(&format!("ALTER TABLE other.bait OWNER TO {name}")).await;
        session.run("SELECT rag.refresh('bait')").await;
        assert_eq!(session.value("SELECT rag.wait_until_current('bait', '60 s')").await, "t", "{change}");
        let searched = session.number("SELECT count(*) FROM rag.search('one later', 'bait')").await;
        assert_eq!(searched, rows, "{change}");
        let owner =
            session.value("SELECT relowner::regrole FROM pg_class JOIN rag.collections ON chunk_table = oid").await;
        assert_eq!(owner, stranger, "{change}");
    }
    assert_eq!(admin.value(&climbed).await, "f");
}

#[tokio::test]
async fn a_partition_of_another_owner_keeps_the_whole_from_being_read() {
    let (db, admin) = Database::open().await;
    let (stranger, session) = make_stranger(&db, &admin).await;
    let heir = db.create_role("heir").await;
    admin.run(&format!("GRANT ALL ON SCHEMA other TO {}", quote(&heir))).await;
    let create = "SELECT rag.create_collection('parts', 'other.parts', '{body}', embedding_model => 'fake/embed-64')";
    let search = "SELECT count(*) FROM rag.search('one two', 'parts')";
    session
        .run(
            "CREATE TABLE parts (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
             CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
             CREATE TABLE lowest PARTITION OF low FOR VALUES FROM (0) TO (10);
             CREATE TABLE high PARTITION OF parts FOR VALUES FROM (100) TO (200);
             INSERT INTO parts VALUES (1, 'one'), (101, 'two')",
        )
        .await;
    session.run(create).await;
    current(&session).await;
    assert_eq!(session.number(search).await, 2);
    // Known to the session by then.
    admin.run("ALTER TABLE other.lowest OWNER TO postgres").await;
    assert_eq!(session.number(search).await, 2, "a superuser's code harms nobody");
    admin.run(&format!("ALTER TABLE other.lowest OWNER TO {}", quote(&heir))).await;
    for searcher in [&session, &admin] {
        let error = searcher.refusal(search, "55000").await;
        assert!(error.message().contains("other.lowest"), "{error:?}");
    }
    session.refusal("SELECT rag.refresh('parts')", "55000").await;
    admin.run(&format!("ALTER TABLE other.lowest OWNER TO {}", quote(&stranger))).await;
    assert_eq!(session.number(search).await, 2);
    admin.run(&format!("ALTER TABLE other.parts OWNER TO {}", quote(&heir))).await;
    let error = admin.refusal("SELECT rag.refresh('parts')", "55000").await;
    assert!(error.hint().unwrap_or_default().contains("ALTER TABLE other."), "{error:?}");
    for part in ["low", "lowest", "high"] {
        admin.run(&format!("ALTER TABLE other.{part} OWNER TO {}", quote(&heir))).await;
    }
    admin.refusal(search, "55000").await;
    admin.run("SELECT rag.refresh('parts')").await;
    current(&admin).await;
    assert_eq!(admin.number(search).await, 2);
    admin.run("SELECT rag.drop_collection('parts')").await;
    admin.run(&format!("ALTER TABLE other.high OWNER TO {}", quote(&stranger))).await;
    admin.error(create, "42501|55000").await;
}

#[tokio::test]
async fn refresh_mends_a_chunk_table_that_is_gone_or_empty() {
    let (db, admin) = Database::open().await;
    db.create_collection(&admin, "articles", &["one", "two", "three"]).await;
    let reader = db.create_role("reader").await;
    admin.run(&format!("GRANT SELECT ON articles TO {}", quote(&reader))).await;
    let count = "SELECT count(*) FROM rag.search('one two three', 'articles')";
    admin.run("SELECT rag.refresh('articles')").await;
    current(&admin).await;
    assert_eq!(admin.number(count).await, 3);
    admin.run("TRUNCATE articles_chunks; SELECT rag.refresh('articles')").await;
    current(&admin).await;
    assert_eq!(admin.number(count).await, 3);
    admin.run("ALTER EVENT TRIGGER rag_forget_dropped DISABLE; DROP TABLE articles_chunks").await;
    admin.run("ALTER EVENT TRIGGER rag_forget_dropped ENABLE").await;
    let error = admin.refusal(count, "55000").await;
    assert!(error.hint().unwrap_or_default().contains("rag.refresh"), "{error:?}");
    let status = admin.value("SELECT last_error_hint FROM rag.status").await;
    assert!(status.contains("rag.refresh"), "{status}");
    admin.run("SELECT rag.refresh('articles')").await;
    current(&admin).await;
    assert_eq!(admin.number(count).await, 3);
    let reader = db.connect_as(&reader).await;
    assert_eq!(reader.number("SELECT count(*) FROM articles_chunks").await, 3, "it is granted as the former one was");
    reader.refusal("SELECT rag.refresh('articles')", "42501").await;
    // A column that goes leaves the policy, which does not name it; one of that name and content is as good.
    admin
        .run(
            "CREATE TEMP TABLE kept AS SELECT id, body FROM articles; ALTER TABLE articles DROP COLUMN body;
             ALTER TABLE articles ADD body text; UPDATE articles a SET body = k.body FROM kept k WHERE k.id = a.id",
        )
        .await;
    assert_eq!(reader.number("SELECT count(*) FROM articles_chunks").await, 3);
    admin.run("DROP POLICY rag_same_as_source ON articles_chunks").await;
    assert_eq!(reader.number("SELECT count(*) FROM articles_chunks").await, 0);
    admin.run("SELECT rag.refresh('articles')").await;
    current(&admin).await;
    assert_eq!(reader.number("SELECT count(*) FROM articles_chunks").await, 3);
    admin.refusal("SELECT rag.refresh('nothing')", "42704").await;
    admin.refusal("SELECT rag.refresh(NULL)", "22004").await;
    admin.refusal("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT rag.refresh('articles')", "25001").await;
    admin.run("ROLLBACK; INSERT INTO articles VALUES (4, 'x', 'four'); DELETE FROM articles WHERE id = 1").await;
    current(&admin).await;
    assert_eq!(admin.number(count).await, 3);
    admin.run("SELECT rag.drop_collection('articles')").await;
    assert_eq!(admin.number("SELECT count(*) FROM rag_internal.chunk_owner").await, 0);
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_restore_serves_whoever_owns_the_tables_then_unless_they_had_changed_hands() {
    let (db, admin) = Database::open().await;
    let (stranger, session) = make_stranger(&db, &admin).await;
    let heir = db.create_role("heir").await;
    make(&session, "other", "kept").await;
    make(&session, "other", "given").await;
    current(&admin).await;
    admin.run(&format!("GRANT CREATE ON SCHEMA other TO {0}; ALTER TABLE other.given OWNER TO {0}; ALTER TABLE other.given_chunks OWNER TO {0}", quote(&heir))).await;
    for no_owner in [false, true] {
        let mut dump = db.cluster.installation.program("pg_dump");
        dump.args(["-U", "postgres", "-h"]).arg(db.cluster.socket_folder()).arg(&db.name);
        if no_owner {
            dump.arg("--no-owner");
        }
        let dump = output(&mut dump);
        let restored = format!("{}_restored_{no_owner}", db.name);
        db.cluster.psql("postgres", &format!("CREATE DATABASE {restored} TEMPLATE template0"));
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), dump).expect("it can be written");
        output(db.cluster.psql_command(&restored).arg("-v").arg("ON_ERROR_STOP=1").arg("-f").arg(file.path()));
        {
            let there = db.cluster.connect(&restored, "postgres").await;
            let owner = if no_owner { "postgres" } else { stranger.as_str() };
            assert_eq!(there.value("SELECT owner FROM rag.collections WHERE name = 'kept'").await, owner);
            assert_eq!(there.number("SELECT count(*) FROM rag.search('one', 'kept')").await, 1, "no_owner {no_owner}");
            there.refusal("SELECT * FROM rag.search('one', 'given')", "55000").await;
            there.run("SELECT rag.refresh('given')").await;
            there.run("SELECT rag.wait_until_current('given', '60 s')").await;
            assert_eq!(there.number("SELECT count(*) FROM rag.search('one', 'given')").await, 1, "no_owner {no_owner}");
        }
        db.cluster.psql("postgres", &format!("DROP DATABASE {restored} WITH (FORCE)"));
    }
}

#[tokio::test]
async fn event_triggers_of_the_database_see_the_callers_path_and_rights() {
    let (db, admin) = Database::open().await;
    let role = db.create_role("maker").await;
    let reader = db.create_role("reader").await;
    admin
        .run(&format!(
            "CREATE SCHEMA audit; GRANT USAGE ON SCHEMA audit TO PUBLIC; CREATE SCHEMA mine AUTHORIZATION {name};
             CREATE TABLE audit.log (tag text, object text, who name); GRANT INSERT ON audit.log TO PUBLIC;
             CREATE FUNCTION audit.note() RETURNS event_trigger LANGUAGE plpgsql AS $$
             BEGIN
                 INSERT INTO log SELECT command_tag, object_identity, current_user FROM pg_event_trigger_ddl_commands();
             END $$;
             CREATE FUNCTION audit.note_drop() RETURNS event_trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO log SELECT 'DROP', object_identity, current_user FROM pg_event_trigger_dropped_objects(); END $$;
             CREATE EVENT TRIGGER audit ON ddl_command_end EXECUTE FUNCTION audit.note();
             CREATE EVENT TRIGGER audit_drop ON sql_drop EXECUTE FUNCTION audit.note_drop();
             ALTER ROLE {name} SET search_path = mine, audit",
            name = quote(&role)
        ).replace("CREATE EVENT TRIGGER audit ON", "SET search_path = public, audit; CREATE EVENT TRIGGER audit ON"))
        .await;
    let maker = db.connect_as(&role).await;
    for (session, who) in [(&maker, role.as_str()), (&admin, "postgres")] {
        admin.run("TRUNCATE audit.log").await;
        // The superuser does it for the role.
        maker.run("CREATE TABLE mine.t (id int PRIMARY KEY, body text); INSERT INTO mine.t VALUES (1, 'one')").await;
        session.run("SELECT rag.create_collection('t', 'mine.t', '{body}', embedding_model => 'fake/embed-64')").await;
        assert_eq!(session.value("SELECT rag.wait_until_current('t', '60 s')").await, "t");
        session.run(&format!("GRANT SELECT ON mine.t TO {}", quote(&reader))).await;
        granted(&admin).await;
        session.run(&format!("REVOKE SELECT ON mine.t FROM {}", quote(&reader))).await;
        granted(&admin).await;
        session.run("SELECT rag.drop_collection('t')").await;
        session.run("SELECT rag.create_collection('t', 'mine.t', '{body}', embedding_model => 'fake/embed-64')").await;
        session.run("DROP TABLE mine.t").await;
        let log = admin.column("SELECT DISTINCT tag || ' ' || object FROM audit.log").await;
        for entry in ["CREATE TABLE mine.t_chunks", "DROP mine.t_chunks"] {
            assert!(log.iter().any(|l| l == entry), "{who}: {entry} is not in {log:?}");
        }
        assert_eq!(admin.number("SELECT count(*) FROM audit.log WHERE tag = 'GRANT'").await, 2, "{who}");
        // Our DDL is the owner's.
        let others = format!(
            "SELECT count(*) FROM audit.log WHERE object LIKE '%t_chunks%' AND tag <> 'DROP' AND who <> '{role}'"
        );
        assert_eq!(admin.number(&others).await, 0, "{who}");
    }
    admin.run("DROP EVENT TRIGGER audit; DROP EVENT TRIGGER audit_drop").await;
}

#[tokio::test]
async fn nobodys_path_decides_what_event_triggers_find_as_somebody_else() {
    let (db, admin) = Database::open().await;
    let (owner, granter) = (db.create_role("owner").await, db.create_role("granter").await);
    admin
        .run(&format!(
            "CREATE SCHEMA o AUTHORIZATION {o}; CREATE SCHEMA g AUTHORIZATION {g}; GRANT USAGE ON SCHEMA o, g TO PUBLIC;
             CREATE TABLE public.log (who name); GRANT INSERT ON public.log TO PUBLIC;
             CREATE FUNCTION public.note() RETURNS event_trigger LANGUAGE plpgsql AS
                $$ BEGIN INSERT INTO log VALUES (current_user); END $$;
             CREATE EVENT TRIGGER audit ON ddl_command_end WHEN TAG IN ('GRANT') EXECUTE FUNCTION public.note()",
            o = quote(&owner),
            g = quote(&granter)
        ))
        .await;
    let owning = db.connect_as(&owner).await;
    make(&owning, "o", "t").await;
    owning.run(&format!("GRANT SELECT ON o.t TO {} WITH GRANT OPTION", quote(&granter))).await;
    let granting = db.connect_as(&granter).await;
    granting.run("CREATE TABLE g.log (who name); GRANT ALL ON g.log TO PUBLIC; SET search_path = g, public").await;
    granting.run("GRANT SELECT ON o.t TO pg_monitor").await;
    granted(&admin).await;
    let by_owner = format!("SELECT count(*) FROM g.log WHERE who <> '{granter}'");
    assert_eq!(admin.number(&by_owner).await, 0);
    assert!(admin.value("SELECT has_table_privilege('pg_monitor', 'o.t_chunks', 'SELECT')").await == "t");
    admin.run("DROP EVENT TRIGGER audit").await;
}

#[tokio::test]
async fn operators_of_others_get_into_nothing_that_the_script_creates() {
    let (db, admin) = Database::open().await;
    let stranger = db.create_role("stranger").await;
    admin.run(&format!("DROP EXTENSION pg_ragent CASCADE; DROP EXTENSION IF EXISTS vector CASCADE; GRANT CREATE ON SCHEMA public TO {}", quote(&stranger))).await;
    let session = db.connect_as(&stranger).await;
    session
        .run(
            "DO $do$
             DECLARE pair text[]; op text;
             BEGIN
                 FOREACH pair SLICE 1 IN ARRAY ARRAY[['oid', 'regclass'], ['regclass', 'oid'], ['text', 'text'], ['name', 'text'],
                    ['integer', 'integer'], ['bigint', 'integer'], ['\"char\"', '\"char\"'], ['uuid', 'uuid'], ['oid', 'oid'],
                    ['boolean', 'boolean'], ['timestamptz', 'timestamptz'], ['jsonb', 'text']]
                 LOOP
                    FOREACH op IN ARRAY ARRAY['=', '<>', '<', '>', '<=', '>=', '-', '+', '||', '->'] LOOP
                        EXECUTE format('CREATE FUNCTION public.%I(%s, %s) RETURNS boolean LANGUAGE sql AS ''SELECT true''',
                                       'evil' || op, pair[1], pair[2]);
                        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
                                       op, pair[1], pair[2], 'evil' || op);
                    END LOOP;
                 END LOOP;
             END $do$;
             CREATE FUNCTION public.coalesce_all(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
             CREATE FUNCTION public.md5(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
             CREATE FUNCTION public.count(text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
             CREATE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()'",
        )
        .await;
    admin.run("CREATE EXTENSION pg_ragent CASCADE").await;
    let caught = format!(
        "SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid) || ' uses ' || pg_describe_object(d.refclassid, d.refobjid, 0)
         FROM pg_depend d
         LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
         LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
         WHERE '{stranger}'::regrole IN (o.oprowner, p.proowner) AND d.classid <> 'pg_operator'::regclass"
    );
    // Under the path of before, this query would be caught itself.
    admin.run("SET search_path = pg_catalog").await;
    assert_eq!(admin.column(&caught).await, Vec::<String>::new());
    // A schema of that name that others can create in is not ours.
    admin
        .run(&format!(
            "DROP EXTENSION pg_ragent CASCADE; DROP SCHEMA IF EXISTS rag CASCADE; CREATE SCHEMA rag AUTHORIZATION {}",
            quote(&stranger)
        ))
        .await;
    admin.refusal("CREATE EXTENSION pg_ragent", "42P06").await;
    admin.run("DROP SCHEMA rag; CREATE EXTENSION pg_ragent").await;
}

#[tokio::test]
async fn commands_of_everybody_work_where_functions_are_not_for_everybody() {
    let (db, admin) = Database::open().await;
    admin
        .run("DROP EXTENSION pg_ragent CASCADE; ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        .await;
    admin.run("CREATE EXTENSION pg_ragent").await;
    let (_stranger, session) = make_stranger(&db, &admin).await;
    session.run("CREATE TABLE t (id int); GRANT SELECT ON t TO PUBLIC; ALTER TABLE t ADD b int; DROP TABLE t").await;
}

/// Whoever owns a chunk table can give its columns other types, whose casts and operators are its own.
#[tokio::test]
async fn a_chunk_table_whose_columns_have_other_types_is_not_read() {
    let (db, admin) = Database::open().await;
    let (_, session) = make_stranger(&db, &admin).await;
    let victim = db.connect_as(&db.create_role("victim").await).await;
    make(&session, "other", "bait").await;
    current(&admin).await;
    session
        .run(
            "CREATE TYPE kind AS ENUM ('1', '2');
             CREATE FUNCTION as_int(kind) RETURNS int LANGUAGE plpgsql AS
                $$ BEGIN RAISE WARNING 'as % in %', current_user, current_query(); RETURN 1; END $$;
             CREATE CAST (kind AS int) WITH FUNCTION as_int(kind) AS IMPLICIT;
             CREATE DOMAIN words AS text",
        )
        .await;
    assert_eq!(victim.column(FOUND).await, ["bait"]);
    for alteration in [
        "ALTER TABLE bait_chunks DROP CONSTRAINT bait_chunks_pkey; DROP POLICY rag_same_as_source ON bait_chunks;
         ALTER TABLE bait_chunks ALTER id TYPE kind USING id::text::kind",
        "ALTER TABLE bait_chunks ALTER content TYPE words",
        "DROP INDEX bait_chunks_embedding_idx; ALTER TABLE bait_chunks ALTER embedding TYPE real[] USING embedding::real[]",
        "ALTER TABLE bait_chunks ALTER chunk TYPE bigint",
        "ALTER TABLE bait_chunks RENAME content_hash TO hash",
    ] {
        session.run(alteration).await;
        for look in LOOKS {
            let before = victim.notices().len();
            victim.run(look).await;
            let told = told_since(&victim, before);
            assert!(!told.iter().any(|t| t.starts_with("WARNING as ")), "{look} after {alteration}: {told:?}");
        }
        let before = victim.notices().len();
        assert_eq!(victim.column(FOUND).await, Vec::<String>::new(), "{alteration}");
        let told = told_since(&victim, before);
        assert!(told.len() == 1 && told[0].contains("1 collection is left out"), "{alteration}: {told:?}");
        let error = victim.error("SELECT * FROM rag.search('one', 'bait')", "55000").await;
        assert!(error.message().contains("no longer has the columns it was made with"), "{}", error.message());
        session.run("SELECT rag.refresh('bait')").await;
        current(&admin).await;
        assert_eq!(victim.column(FOUND).await, ["bait"], "refreshed after {alteration}");
    }
    // A column of the owner's own does no harm.
    session.run("ALTER TABLE bait_chunks ADD mine kind").await;
    assert_eq!(victim.column(FOUND).await, ["bait"]);
}

/// The privileges that a superuser has of every role are no reason to trust it.
#[tokio::test]
async fn a_superuser_trusts_those_only_whom_others_would() {
    let (db, admin) = Database::open().await;
    let (stranger, session) = make_stranger(&db, &admin).await;
    let root = db.create_role("root").await;
    admin.run(&format!("ALTER ROLE {} SUPERUSER", quote(&root))).await;
    let root_session = db.connect_as(&root).await;
    make(&admin, "public", "good").await;
    make(&session, "other", "bait").await;
    current(&admin).await;
    let counts = "SELECT rows FROM rag.status ORDER BY collection";
    for superuser in [&admin, &root_session] {
        assert_eq!(superuser.column(FOUND).await, ["bait", "good"]);
    }
    // A superuser is under no policies, so those run nothing.
    session.run("ALTER TABLE bait ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON bait USING (id = 1 / 0)").await;
    assert_eq!(root_session.column(FOUND).await, ["bait", "good"]);
    session
        .run(
            "CREATE FUNCTION spin(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_advisory_lock_shared(4711); RAISE WARNING 'ran'; RETURN true; END $$;
             CREATE INDEX ON bait (id) WHERE spin(1)",
        )
        .await;
    for superuser in [&admin, &root_session] {
        for look in LOOKS {
            let before = superuser.notices().len();
            superuser.run(look).await;
            let told = told_since(superuser, before);
            assert!(!told.iter().any(|t| t.starts_with("WARNING")), "{look}: {told:?}");
        }
        assert_eq!(superuser.number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND pid = pg_backend_pid()").await, 0);
        assert_eq!(superuser.column(FOUND).await, ["good"]);
        assert_eq!(superuser.column(counts).await, ["∅", "1"]);
    }
    admin.run(&format!("SET rag.trusted_owners = {}", quote(&stranger))).await;
    assert_eq!(admin.column(FOUND).await, ["bait", "good"]);
    admin.run(&format!("GRANT {} TO {}", quote(&stranger), quote(&root))).await;
    assert_eq!(root_session.column(FOUND).await, ["bait", "good"]);
    assert_eq!(root_session.column(counts).await, ["1", "1"]);
}
