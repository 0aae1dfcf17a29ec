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
-- Nobody makes triggers of it but rag.create_collection, as a superuser. Only attaching a partition copies them as the role that
-- does it; see rag_internal.grant_capture.
REVOKE EXECUTE ON FUNCTION rag_internal.capture() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.capture() IS 'Trigger of source tables: notes in rag_internal.queue which rows changed. Created and removed by rag.create_collection and rag.drop_collection';

CREATE FUNCTION rag_internal.grant_quietly(statement text) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'grant_quietly_wrapper';
REVOKE EXECUTE ON FUNCTION rag_internal.grant_quietly(text) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.grant_quietly(text) IS
'Carries out a GRANT or REVOKE, with the current role''s rights, without event triggers';

-- Where a collection's source is partitioned, PostgreSQL copies the capture triggers to a new partition, and asks whether the
-- role that adds it may EXECUTE their function. So owners of such sources may, which is settled before any table is created or
-- altered: an owner can change without anybody being told (REASSIGN OWNED).
CREATE FUNCTION rag_internal.grant_capture() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owners oid[];
    holders oid[];
    affected oid;
BEGIN
    FOR attempt IN 1..2 LOOP
        SELECT ARRAY(SELECT DISTINCT r.relowner FROM rag_internal.collection c JOIN pg_class r ON r.oid = c.source
                     WHERE r.relkind = 'p' AND r.relowner <> p.proowner),
               ARRAY(SELECT a.grantee FROM aclexplode(p.proacl) a WHERE a.grantee <> p.proowner)
        INTO owners, holders
        FROM pg_proc p WHERE p.oid = 'rag_internal.capture()'::regprocedure;
        IF owners <@ holders AND holders <@ owners THEN
            RETURN;
        END IF;
        -- The privileges of a function are one row, which one transaction may change at a time.
        IF attempt = 1 THEN
            LOCK TABLE rag_internal.collection IN SHARE UPDATE EXCLUSIVE MODE;
        END IF;
    END LOOP;
    FOREACH affected IN ARRAY owners LOOP
        IF affected <> ALL (holders) THEN
            PERFORM rag_internal.grant_quietly(
                format('GRANT EXECUTE ON FUNCTION rag_internal.capture() TO %I', pg_get_userbyid(affected)));
        END IF;
    END LOOP;
    FOREACH affected IN ARRAY holders LOOP
        IF affected <> ALL (owners) THEN
            PERFORM rag_internal.grant_quietly(
                format('REVOKE EXECUTE ON FUNCTION rag_internal.capture() FROM %s CASCADE',
                       CASE WHEN affected = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(affected)) END));
        END IF;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.grant_capture() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.grant_capture() IS
'Lets the owners of partitioned sources EXECUTE rag_internal.capture, as adding a partition asks for, and nobody else';

CREATE FUNCTION rag_internal.grant_capture_before() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_EVENT <> 'ddl_command_start' THEN
        RAISE EXCEPTION 'rag_internal.grant_capture_before() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    PERFORM rag_internal.grant_capture();
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.grant_capture_before() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.grant_capture_before() IS 'Event trigger: lets owners of partitioned sources add partitions';
CREATE EVENT TRIGGER rag_grant_capture ON ddl_command_start
    WHEN TAG IN ('CREATE TABLE', 'CREATE FOREIGN TABLE', 'CREATE SCHEMA', 'ALTER TABLE') EXECUTE FUNCTION rag_internal.grant_capture_before();
COMMENT ON EVENT TRIGGER rag_grant_capture IS 'pg_ragent: lets owners of partitioned sources add partitions';

CREATE FUNCTION rag_internal.revoke_capture() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'rag_internal.collection'::regclass THEN
        RAISE EXCEPTION 'rag_internal.revoke_capture() is a trigger of rag_internal.collection, not of %', TG_RELID::regclass
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this trigger.';
    END IF;
    PERFORM rag_internal.grant_capture();
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.revoke_capture() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.revoke_capture() IS
'Trigger of rag_internal.collection: when one goes, its owner may no longer EXECUTE rag_internal.capture, and so can be dropped';
CREATE TRIGGER revoke_capture AFTER DELETE ON rag_internal.collection
    FOR EACH STATEMENT EXECUTE FUNCTION rag_internal.revoke_capture();
COMMENT ON TRIGGER revoke_capture ON rag_internal.collection IS 'Takes back what a collection''s owner was granted for its sake';

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
'Queues the rows of rag.failures again, of one collection or of all whose source the current role owns, and ends their pauses. Returns how many rows';

CREATE FUNCTION wait_until_current(collection text DEFAULT NULL, timeout interval DEFAULT '1 hour') RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wait_until_current_wrapper';
COMMENT ON FUNCTION wait_until_current(text, interval) IS
'Waits until what was queued when it was called is embedded, of one collection or of all the role may read. False: the time was over before';

CREATE FUNCTION rag_internal.wake_at_commit() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wake_at_commit_wrapper';
COMMENT ON FUNCTION rag_internal.wake_at_commit() IS 'Wakes the workers of this database when the transaction commits';
