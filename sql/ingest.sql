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
GRANT INSERT (collection, key, keys, rows) ON rag_internal.queue TO PUBLIC;
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
