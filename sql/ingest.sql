-- Capture and the queue: what changed and is not embedded yet.

-- An entry is one row (key), many rows of one statement (keys), or, with neither, a comparison of everything. Numbers go up
-- by 1000: an entry of many rows becomes single ones, which get the numbers after its own and so keep their place.
CREATE TABLE rag_internal.queue (
    id             bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 1000),
    collection     integer NOT NULL,
    key            jsonb,
    keys           jsonb,
    rows           integer NOT NULL DEFAULT 1,
    queued_at      timestamptz NOT NULL DEFAULT pg_catalog.now(),
    attempts       integer NOT NULL DEFAULT 0,
    retry_at       timestamptz,
    error          text,
    error_hint     text,
    error_sqlstate text,
    claimed_by     integer,
    claimed_until  timestamptz,
    deaths         integer NOT NULL DEFAULT 0,
    is_bulk        boolean NOT NULL DEFAULT false,
    PRIMARY KEY (collection, id),
    -- Code that a writer's statement runs may write here while capture does.
    CONSTRAINT queue_rows CHECK (rows OPERATOR(pg_catalog.>=) 1 AND rows OPERATOR(pg_catalog.<) 1000),
    CONSTRAINT queue_key CHECK (pg_catalog.jsonb_typeof(key) OPERATOR(pg_catalog.=) 'object'),
    CONSTRAINT queue_keys CHECK (pg_catalog.jsonb_typeof(keys) OPERATOR(pg_catalog.=) 'object'
        AND NOT pg_catalog.jsonb_path_exists(keys, 'strict $.* ? (@.type() != "array" || @.size() >= 1000)'))
);
-- Compressing them would take the writer longer than writing them.
ALTER TABLE rag_internal.queue ALTER COLUMN keys SET STORAGE EXTERNAL;
-- Few entries are anything but a row that waits: what captures write goes into no other index than the primary key's.
CREATE INDEX queue_special ON rag_internal.queue (collection, id)
    WHERE key IS NULL OR retry_at IS NOT NULL OR claimed_by IS NOT NULL;
COMMENT ON INDEX rag_internal.queue_special IS 'Entries that are more than one row, postponed, or claimed by a worker';
SELECT pg_catalog.pg_extension_config_dump('rag_internal.queue', '');
SELECT pg_catalog.pg_extension_config_dump('rag_internal.queue_id_seq', '');
COMMENT ON TABLE rag_internal.queue IS 'Source rows that changed and are not embedded yet, written by the capture triggers in the writer''s own transaction';
COMMENT ON COLUMN rag_internal.queue.id IS 'Order of capture';
COMMENT ON COLUMN rag_internal.queue.collection IS 'rag_internal.collection.id';
COMMENT ON COLUMN rag_internal.queue.key IS 'Primary key of the row; NULL where keys is set, and for a comparison of all chunks with the source (after TRUNCATE)';
COMMENT ON COLUMN rag_internal.queue.keys IS 'Primary keys of the rows that one statement changed, where they were many: an array for each key column; at most 500 rows';
COMMENT ON COLUMN rag_internal.queue.rows IS 'Rows it stands for; 1 for a comparison';
COMMENT ON COLUMN rag_internal.queue.queued_at IS 'Begin of the transaction that changed the row';
COMMENT ON COLUMN rag_internal.queue.attempts IS 'Attempts that failed';
COMMENT ON COLUMN rag_internal.queue.retry_at IS 'Not to be tried before';
COMMENT ON COLUMN rag_internal.queue.error IS 'Why the last attempt failed';
COMMENT ON COLUMN rag_internal.queue.error_hint IS 'What to do about it';
COMMENT ON COLUMN rag_internal.queue.error_sqlstate IS 'Its SQLSTATE';
COMMENT ON COLUMN rag_internal.queue.claimed_by IS 'Process number of the worker that is at work on it; NULL: none';
COMMENT ON COLUMN rag_internal.queue.claimed_until IS 'When that claim ends, unless the worker renews it';
COMMENT ON COLUMN rag_internal.queue.deaths IS 'Workers that died at work on it: 2 for each that had nothing else at hand, 1 for all that had. With 4 it is given up';
COMMENT ON COLUMN rag_internal.queue.is_bulk IS 'Whether the row was changed together with many others; changes of few rows are embedded first';

CREATE TABLE rag_internal.failure (
    collection     integer NOT NULL,
    key            jsonb NOT NULL,
    attempts       integer NOT NULL,
    error          text NOT NULL,
    error_hint     text,
    error_sqlstate text,
    failed_at      timestamptz NOT NULL DEFAULT pg_catalog.now()
);
-- By hash: a key may be longer than an index entry.
CREATE UNIQUE INDEX failure_key ON rag_internal.failure (collection, md5(key::text));
SELECT pg_catalog.pg_extension_config_dump('rag_internal.failure', '');
COMMENT ON TABLE rag_internal.failure IS 'Rows given up after repeated failures; the view rag.failures shows them, rag.retry_failures queues them again';
COMMENT ON COLUMN rag_internal.failure.collection IS 'rag_internal.collection.id';
COMMENT ON COLUMN rag_internal.failure.key IS 'Primary key of the row';
COMMENT ON COLUMN rag_internal.failure.attempts IS 'Attempts made';
COMMENT ON COLUMN rag_internal.failure.error IS 'Why the last one failed';
COMMENT ON COLUMN rag_internal.failure.error_hint IS 'What to do about it';
COMMENT ON COLUMN rag_internal.failure.error_sqlstate IS 'Its SQLSTATE';
COMMENT ON COLUMN rag_internal.failure.failed_at IS 'When it was given up';

CREATE TABLE rag_internal.pause (
    collection integer PRIMARY KEY,
    until      timestamptz NOT NULL,
    times      integer NOT NULL DEFAULT 1
);
COMMENT ON TABLE rag_internal.pause IS 'Collections that are left alone for a while, because code of their owner held a worker or a comparison ended one; rag.status shows why, rag.retry_failures ends it';
COMMENT ON COLUMN rag_internal.pause.collection IS 'rag_internal.collection.id';
COMMENT ON COLUMN rag_internal.pause.until IS 'Not to be worked on before';
COMMENT ON COLUMN rag_internal.pause.times IS 'Pauses in a row; each is longer than the one before';

-- Rows come and go without waiting for anybody: sessions that alter parts of one source at a time do not meet here.
CREATE TABLE rag_internal.capture_gap (
    collection integer NOT NULL,
    since      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX capture_gap_collection ON rag_internal.capture_gap (collection);
SELECT pg_catalog.pg_extension_config_dump('rag_internal.capture_gap', '');
COMMENT ON TABLE rag_internal.capture_gap IS 'Collections of which a capture trigger was switched off, dropped or replaced: once all are on again, everything is compared';
COMMENT ON COLUMN rag_internal.capture_gap.collection IS 'rag_internal.collection.id';
COMMENT ON COLUMN rag_internal.capture_gap.since IS 'When that was';
COMMENT ON INDEX rag_internal.capture_gap_collection IS 'Gaps of a collection';

-- What workers remember of it they learn anew after a restart. It stands here so that people see it, and end it by taking the
-- row away: rag.retry_failures, rag.refresh and the event trigger rag_end_waiting do.
CREATE TABLE rag_internal.waiting (
    collection     integer NOT NULL DEFAULT 0,
    server         text NOT NULL DEFAULT '',
    role           oid NOT NULL DEFAULT 0,
    since          timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    noted_at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    until          timestamptz NOT NULL,
    times          integer NOT NULL DEFAULT 1,
    error          text,
    error_hint     text,
    error_sqlstate text,
    PRIMARY KEY (collection, server, role)
);
COMMENT ON TABLE rag_internal.waiting IS 'What workers leave alone for a while: a collection that cannot be worked on, a server that fails, or collections of an owner whose tables held the worker; rag.status shows it';
COMMENT ON COLUMN rag_internal.waiting.collection IS 'rag_internal.collection.id; 0 where a server or an owner waits';
COMMENT ON COLUMN rag_internal.waiting.server IS 'Name of the server; empty where it is no server';
COMMENT ON COLUMN rag_internal.waiting.role IS 'OID of the role that the server is asked for, or of the owner whose collections wait; 0 where one collection waits';
COMMENT ON COLUMN rag_internal.waiting.since IS 'When it began';
COMMENT ON COLUMN rag_internal.waiting.noted_at IS 'When it failed last';
COMMENT ON COLUMN rag_internal.waiting.until IS 'When it is tried again';
COMMENT ON COLUMN rag_internal.waiting.times IS 'Failures, or waits of an owner, in a row';
COMMENT ON COLUMN rag_internal.waiting.error IS 'Why a server is not asked; of collections, rag_internal.collection says it';
COMMENT ON COLUMN rag_internal.waiting.error_hint IS 'What to do about it';
COMMENT ON COLUMN rag_internal.waiting.error_sqlstate IS 'Its SQLSTATE';

COMMENT ON SEQUENCE rag_internal.queue_id_seq IS 'Order of capture';
COMMENT ON INDEX rag_internal.failure_key IS 'One failure for each row';

CREATE FUNCTION rag_internal.is_capturing(collection integer) RETURNS boolean
    LANGUAGE c STABLE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'is_capturing_wrapper';
COMMENT ON FUNCTION rag_internal.is_capturing(integer) IS 'Whether a capture trigger of this collection is writing to rag_internal.queue right now; the condition under which a role may';

-- Writers queue their rows as themselves: nothing of theirs is evaluated with more rights than they have.
-- The policy keeps everybody from writing to the queue in another way.
GRANT INSERT (collection, key, keys, rows, is_bulk) ON rag_internal.queue TO PUBLIC;
ALTER TABLE rag_internal.queue ENABLE ROW LEVEL SECURITY;
CREATE POLICY capture ON rag_internal.queue FOR INSERT TO PUBLIC WITH CHECK (rag_internal.is_capturing(collection));
COMMENT ON POLICY capture ON rag_internal.queue IS 'Roles write to the queue by the capture triggers only';

CREATE FUNCTION rag_internal.wake_worker() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wake_worker_wrapper';
REVOKE EXECUTE ON FUNCTION rag_internal.wake_worker() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.wake_worker() IS 'Trigger of rag_internal.queue: wakes the worker when the transaction commits';
CREATE TRIGGER wake_worker AFTER INSERT ON rag_internal.queue FOR EACH STATEMENT EXECUTE FUNCTION rag_internal.wake_worker();
-- Also for rows that arrive by replication, and when a restore brings collections after their queue.
ALTER TABLE rag_internal.queue ENABLE ALWAYS TRIGGER wake_worker;
COMMENT ON TRIGGER wake_worker ON rag_internal.queue IS 'Wakes the worker at commit';
CREATE TRIGGER wake_worker AFTER INSERT ON rag_internal.collection FOR EACH STATEMENT EXECUTE FUNCTION rag_internal.wake_worker();
ALTER TABLE rag_internal.collection ENABLE ALWAYS TRIGGER wake_worker;
COMMENT ON TRIGGER wake_worker ON rag_internal.collection IS 'Wakes the worker at commit';

CREATE FUNCTION rag_internal.capture() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'capture_wrapper';
-- PostgreSQL copies the triggers of a partitioned table to each new partition, as the role that adds it, which must be allowed to
-- EXECUTE their function. Whoever puts it on another table than a collection's source has a trigger that does nothing.
GRANT EXECUTE ON FUNCTION rag_internal.capture() TO PUBLIC;
COMMENT ON FUNCTION rag_internal.capture() IS 'Trigger of source tables: notes in rag_internal.queue which rows changed. Created and removed by rag.create_collection and rag.drop_collection';

-- The capture triggers as they should be. Ordinary tables get statement-level triggers with transition tables. Rows that arrive by
-- logical replication fire none of these, so there are row-level ones, too, that run only there (REPLICA). Partitioned tables get
-- row-level ones, which PostgreSQL copies to every partition, so that writing to a partition is captured. TRUNCATE has no
-- row-level triggers, and that of a partition fires none of its parent: each partition gets one of its own, but for
-- foreign tables.
CREATE FUNCTION rag_internal.capture_triggers(of_collection integer)
    RETURNS TABLE (relation oid, relation_name text, name text, is_clone boolean, definition text, mode "char", found "char", id oid)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE part (oid, is_whole) AS (
        SELECT c.source::oid, true FROM rag_internal.collection c WHERE c.id = of_collection
        UNION ALL
        SELECT i.inhrelid, false
        FROM part p JOIN pg_class r ON r.oid = p.oid AND r.relkind = 'p'
        JOIN pg_inherits i ON i.inhparent = p.oid AND NOT i.inhdetachpending),
    root AS (SELECT r.relkind FROM part p JOIN pg_class r ON r.oid = p.oid WHERE p.is_whole),
    wanted (word, event, level, type, fires, of_partitioned) AS (
        VALUES ('insert', 'INSERT', 'REFERENCING NEW TABLE AS rag_new FOR EACH STATEMENT', 4::int2, 'O'::"char", false),
               ('update', 'UPDATE', 'REFERENCING OLD TABLE AS rag_old NEW TABLE AS rag_new FOR EACH STATEMENT', 16, 'O', false),
               ('delete', 'DELETE', 'REFERENCING OLD TABLE AS rag_old FOR EACH STATEMENT', 8, 'O', false),
               ('insert_replica', 'INSERT', 'FOR EACH ROW', 5, 'R', false),
               ('update_replica', 'UPDATE', 'FOR EACH ROW', 17, 'R', false),
               ('delete_replica', 'DELETE', 'FOR EACH ROW', 9, 'R', false),
               ('truncate', 'TRUNCATE', 'FOR EACH STATEMENT', 32, 'A', false),
               ('insert', 'INSERT', 'FOR EACH ROW', 5, 'A', true),
               ('update', 'UPDATE', 'FOR EACH ROW', 17, 'A', true),
               ('delete', 'DELETE', 'FOR EACH ROW', 9, 'A', true),
               ('truncate', 'TRUNCATE', 'FOR EACH STATEMENT', 32, 'A', true))
    SELECT r.oid, format('%I.%I', n.nspname, r.relname), called.name, NOT p.is_whole AND w.type <> 32,
           format('CREATE TRIGGER %I AFTER %s ON %I.%I %s EXECUTE FUNCTION rag_internal.capture(%L)',
                  called.name, w.event, n.nspname, r.relname, w.level, of_collection::text),
           w.fires,
           CASE WHEN t.oid IS NULL THEN NULL
                WHEN t.tgfoid = 'rag_internal.capture()'::regprocedure AND t.tgtype = w.type AND t.tgqual IS NULL
                     AND t.tgargs = convert_to(of_collection::text, 'UTF8') || '\x00'::bytea THEN t.tgenabled
                ELSE '-'::"char" END,
           t.oid
    FROM part p
    JOIN pg_class r ON r.oid = p.oid AND r.relkind IN ('r', 'p', 'f')
    JOIN pg_namespace n ON n.oid = r.relnamespace
    CROSS JOIN root
    JOIN wanted w ON w.of_partitioned = (root.relkind = 'p') AND NOT (r.relkind = 'f' AND w.type = 32)
    CROSS JOIN LATERAL (SELECT format('rag_capture_%s_%s', of_collection, w.word)) AS called (name)
    LEFT JOIN pg_trigger t ON t.tgrelid = r.oid AND t.tgname = called.name;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.capture_triggers(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.capture_triggers(integer) IS
'The capture triggers that a collection''s source and its partitions should have, with what makes each and when it fires (pg_trigger.tgenabled), and what is found of it: NULL where it is missing, - where a trigger of that name is another';

CREATE FUNCTION rag_internal.capture_leftovers(of_collection integer, source oid) RETURNS TABLE (relation oid, name text, id oid)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Not copies: those go with what they are copies of. Nor those on tables of others, who could lock them against whoever drops
    -- what is left over.
    RETURN QUERY
    SELECT t.tgrelid, t.tgname::text, t.oid
    FROM pg_depend d
    JOIN pg_trigger t ON t.oid = d.objid AND t.tgparentid = 0
     AND t.tgargs = convert_to(of_collection::text, 'UTF8') || '\x00'::bytea
    JOIN pg_class r ON r.oid = t.tgrelid
    JOIN pg_class s ON s.oid = source AND s.relowner = r.relowner
    WHERE d.classid = 'pg_trigger'::regclass AND d.refclassid = 'pg_proc'::regclass
      AND d.refobjid = 'rag_internal.capture()'::regprocedure
      AND NOT EXISTS (SELECT FROM rag_internal.capture_triggers(of_collection) w WHERE w.id = t.oid);
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.capture_leftovers(integer, oid) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.capture_leftovers(integer, oid) IS
'Capture triggers of a collection that should not be there, on tables of its source''s owner: on partitions that were detached, or renamed ones; all of them where the collection is gone';

CREATE FUNCTION rag_internal.describe_capture(of_collection integer) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    triggers bigint;
    faults bigint;
    first text;
    since timestamptz;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE t.found IS DISTINCT FROM t.mode),
           min(format('trigger %I of %s is %s', t.name, t.relation_name,
                      CASE WHEN t.found IS NULL THEN 'missing' WHEN t.found = 'D' THEN 'disabled'
                           WHEN t.found = '-' THEN 'another one' ELSE 'enabled in another way' END))
               FILTER (WHERE t.found IS DISTINCT FROM t.mode)
    INTO triggers, faults, first
    FROM rag_internal.capture_triggers(of_collection) t;
    IF triggers = 0 THEN
        RETURN NULL;
    ELSIF faults = 0 THEN
        RETURN 'on';
    END IF;
    SELECT min(g.since) INTO since FROM rag_internal.capture_gap g WHERE g.collection = of_collection;
    RETURN 'off' || coalesce(' since ' || date_trunc('second', since), '') || ': ' || first
        || CASE WHEN faults > 1 THEN format(', and %s more', faults - 1) ELSE '' END;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.describe_capture(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.describe_capture(integer) IS 'What rag_internal.capture_state says, for whoever may read what is registered';

-- rag.status asks it for its reader, so everybody may call it; it says of triggers what pg_trigger says to everybody.
CREATE FUNCTION rag_internal.capture_state(of_collection integer) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'capture_state_wrapper';
GRANT EXECUTE ON FUNCTION rag_internal.capture_state(integer) TO PUBLIC;
COMMENT ON FUNCTION rag_internal.capture_state(integer) IS
'Whether changes of a collection''s source are noted: on, or what is wrong with its triggers, and since when, where that is known. NULL: the source is gone';

-- Past the event triggers of the database, since it is carried out as a superuser.
CREATE FUNCTION rag_internal.restore_capture(of_collection integer, what text) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'restore_capture_wrapper';
REVOKE EXECUTE ON FUNCTION rag_internal.restore_capture(integer, text) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.restore_capture(integer, text) IS
'Makes capture triggers as they should be: "modes" when enabled ones fire, "partitions" also what partitions miss, and what those have that are none any more, "all" everything';

CREATE FUNCTION rag_internal.follow_capture(of_collection integer, tag text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_off boolean;
    is_missing boolean;
    is_wrong boolean;
    has_gap boolean;
BEGIN
    SELECT coalesce(bool_or(t.found IN ('D', '-')), false), coalesce(bool_or(t.found IS NULL), false),
           coalesce(bool_or(t.found NOT IN ('D', '-') AND t.found <> t.mode), false)
    INTO is_off, is_missing, is_wrong
    FROM rag_internal.capture_triggers(of_collection) t;
    -- A restore makes triggers one after the other, and says when they fire behind each: what is missing is on its way, and so is
    -- how a trigger fires that was just made.
    IF tag = 'ALTER TABLE' AND is_wrong THEN
        PERFORM rag_internal.restore_capture(of_collection, 'modes');
    END IF;
    is_off := is_off OR tag IN ('ALTER TRIGGER', 'DROP TRIGGER') AND is_missing;
    has_gap := EXISTS (SELECT FROM rag_internal.capture_gap g WHERE g.collection = of_collection);
    IF is_off AND NOT has_gap THEN
        INSERT INTO rag_internal.capture_gap (collection) VALUES (of_collection);
    END IF;
    -- Also while others are off: two sessions that enable those of two partitions at a time see each other's as off.
    IF tag = 'ALTER TABLE' AND is_wrong OR has_gap AND NOT is_off THEN
        INSERT INTO rag_internal.queue (collection, key) VALUES (of_collection, NULL);
    END IF;
    IF has_gap AND NOT is_off AND NOT is_missing THEN
        PERFORM rag_internal.close_gap(of_collection);
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_capture(integer, text) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_capture(integer, text) IS
'After a command that may have changed a collection''s capture triggers: restores when they fire, notes that they are off, and has everything compared once they are on again';

CREATE FUNCTION rag_internal.close_gap(of_collection integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- What another session is about to remove, it removes.
    DELETE FROM rag_internal.capture_gap g
    WHERE g.ctid = ANY (ARRAY(SELECT o.ctid FROM rag_internal.capture_gap o WHERE o.collection = of_collection FOR UPDATE SKIP LOCKED));
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.close_gap(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.close_gap(integer) IS 'Forgets that capture of a collection was off';

CREATE VIEW failures WITH (security_barrier) AS
    SELECT c.name AS collection, f.key, f.attempts, f.error, f.error_hint AS hint, f.error_sqlstate AS sqlstate, f.failed_at
    FROM rag_internal.failure f
    JOIN rag_internal.collection c ON c.id = f.collection
    JOIN pg_catalog.pg_class r ON r.oid = c.source
    WHERE pg_catalog.pg_has_role(r.relowner, 'USAGE');
GRANT SELECT ON failures TO PUBLIC;
COMMENT ON VIEW failures IS 'Rows that could not be embedded, of the collections whose source the current role owns';
COMMENT ON COLUMN failures.collection IS 'Name of the collection';
COMMENT ON COLUMN failures.key IS 'Primary key of the row';
COMMENT ON COLUMN failures.attempts IS 'Attempts made';
COMMENT ON COLUMN failures.error IS 'Why the last one failed';
COMMENT ON COLUMN failures.hint IS 'What to do about it; NULL where the error had no hint';
COMMENT ON COLUMN failures.sqlstate IS 'Its SQLSTATE';
COMMENT ON COLUMN failures.failed_at IS 'When the row was given up';

CREATE FUNCTION retry_failures(collection text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'retry_failures_wrapper';
COMMENT ON FUNCTION retry_failures(text) IS
'Queues the rows of rag.failures again, of one collection or of all whose source the current role owns, and ends their pauses and those of their servers. Returns how many rows';

CREATE FUNCTION wait_until_current(collection text DEFAULT NULL, timeout interval DEFAULT '1 hour') RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wait_until_current_wrapper';
COMMENT ON FUNCTION wait_until_current(text, interval) IS
'Waits until what was queued when it was called is embedded, of one collection or of all the role may read. False: the time was over before. A collection that cannot be used is an error where it was named, else a warning';

CREATE FUNCTION rag_internal.has_text(value text) RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'has_text_wrapper';
-- Comparisons run as the owner of the source.
GRANT EXECUTE ON FUNCTION rag_internal.has_text(text) TO PUBLIC;
COMMENT ON FUNCTION rag_internal.has_text(text) IS
'Whether there is anything to see in a text: more than white space, control characters and other invisible ones';

CREATE FUNCTION verify(collection text)
    RETURNS TABLE (problem text, rows bigint, example jsonb, detail text, hint text)
    LANGUAGE c STABLE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'verify_wrapper';
COMMENT ON FUNCTION verify(text) IS
'Compares a collection with its source and looks at its triggers, without changing anything or keeping writers from their work: a row for each kind of fault, none where everything is right. Rows that are queued are no fault. problem is missing, stale, incomplete, other model or orphaned (chunks), failed (rows given up), capture (triggers), unreadable, unusable, or pending: so much is queued that it cannot be told. rows says how many rows of the source, or triggers, example names one of them';

CREATE FUNCTION rag_internal.wake_at_commit() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wake_at_commit_wrapper';
COMMENT ON FUNCTION rag_internal.wake_at_commit() IS 'Wakes the workers of this database when the transaction commits';

-- Whoever alters what may have kept workers waiting does not wait for them to try again.
CREATE FUNCTION rag_internal.end_waiting() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended tid[];
BEGIN
    IF TG_EVENT <> 'ddl_command_end' THEN
        RAISE EXCEPTION 'rag_internal.end_waiting() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    IF NOT EXISTS (SELECT FROM rag_internal.waiting) THEN
        RETURN;
    END IF;
    IF TG_TAG IN ('ALTER TABLE', 'CREATE INDEX') THEN
        ended := ARRAY(
            SELECT w.ctid FROM rag_internal.waiting w
            WHERE w.collection IN (
                SELECT c.id FROM pg_event_trigger_ddl_commands() d
                LEFT JOIN pg_index i ON i.indexrelid = d.objid
                JOIN rag_internal.generation g ON true
                JOIN rag_internal.collection c ON c.id = g.collection
                WHERE d.classid = 'pg_class'::regclass AND coalesce(i.indrelid, d.objid) IN (c.source, g.chunk_table))
            FOR UPDATE SKIP LOCKED);
    ELSIF TG_TAG <> 'GRANT'
          OR EXISTS (SELECT FROM pg_event_trigger_ddl_commands() d WHERE d.object_type ILIKE 'FOREIGN SERVER') THEN
        ended := ARRAY(
            SELECT w.ctid FROM rag_internal.waiting w
            WHERE w.collection <> 0 OR w.server <> '' AND TG_TAG !~ '^DROP (INDEX|TRIGGER)$'
            FOR UPDATE SKIP LOCKED);
    END IF;
    -- What another session ends, or a worker notes, is left to it: nobody's command waits for another's transaction.
    DELETE FROM rag_internal.waiting WHERE ctid = ANY (ended);
    IF FOUND THEN
        PERFORM rag_internal.wake_at_commit();
    END IF;
EXCEPTION WHEN OTHERS THEN
    -- It is tried again later all the same; nobody's command fails for this.
    NULL;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.end_waiting() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.end_waiting() IS 'Event trigger: what may be mended by a command is tried again at once';
CREATE EVENT TRIGGER rag_end_waiting ON ddl_command_end
    WHEN TAG IN ('CREATE SERVER', 'ALTER SERVER', 'DROP SERVER', 'CREATE USER MAPPING', 'ALTER USER MAPPING', 'DROP USER MAPPING', 'GRANT',
                 'ALTER TABLE', 'CREATE INDEX', 'DROP INDEX', 'DROP TRIGGER')
    EXECUTE FUNCTION rag_internal.end_waiting();
ALTER EVENT TRIGGER rag_end_waiting ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_end_waiting IS 'pg_ragent: what may be mended by a command is tried again at once';
