-- Capture and the queue: what changed and is not embedded yet.

CREATE TABLE queue (
    id         bigint GENERATED ALWAYS AS IDENTITY,
    collection integer NOT NULL,
    key        jsonb,
    queued_at  timestamptz NOT NULL DEFAULT now(),
    attempts   integer NOT NULL DEFAULT 0,
    retry_at   timestamptz,
    error      text,
    PRIMARY KEY (collection, id)
);
CREATE INDEX ON queue (retry_at) WHERE retry_at IS NOT NULL;
SELECT pg_catalog.pg_extension_config_dump('queue', '');
SELECT pg_catalog.pg_extension_config_dump('queue_id_seq', '');
COMMENT ON TABLE queue IS 'Source rows that changed and are not embedded yet, written by the capture triggers in the writer''s own transaction';
COMMENT ON COLUMN queue.id IS 'Order of capture';
COMMENT ON COLUMN queue.collection IS 'rag.collection.id';
COMMENT ON COLUMN queue.key IS 'Primary key of the row; NULL: compare all chunks with the source (after TRUNCATE)';
COMMENT ON COLUMN queue.queued_at IS 'Begin of the transaction that changed the row';
COMMENT ON COLUMN queue.attempts IS 'Attempts that failed';
COMMENT ON COLUMN queue.retry_at IS 'Not to be tried before';
COMMENT ON COLUMN queue.error IS 'Why the last attempt failed';

CREATE TABLE failure (
    collection integer NOT NULL,
    key        jsonb NOT NULL,
    attempts   integer NOT NULL,
    error      text NOT NULL,
    failed_at  timestamptz NOT NULL DEFAULT now()
);
-- By hash: a key may be longer than an index entry.
CREATE UNIQUE INDEX failure_key ON failure (collection, md5(key::text));
SELECT pg_catalog.pg_extension_config_dump('failure', '');
COMMENT ON TABLE failure IS 'Rows given up after repeated failures; the view rag.failures shows them, rag.retry_failures queues them again';
COMMENT ON COLUMN failure.collection IS 'rag.collection.id';
COMMENT ON COLUMN failure.key IS 'Primary key of the row';
COMMENT ON COLUMN failure.attempts IS 'Attempts made';
COMMENT ON COLUMN failure.error IS 'Why the last one failed';
COMMENT ON COLUMN failure.failed_at IS 'When it was given up';

COMMENT ON SEQUENCE queue_id_seq IS 'Order of capture';
COMMENT ON INDEX failure_key IS 'One failure for each row';

CREATE FUNCTION is_capturing(collection integer) RETURNS boolean
    LANGUAGE c STABLE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'is_capturing_wrapper';
COMMENT ON FUNCTION is_capturing(integer) IS 'Whether a capture trigger of this collection is writing to rag.queue right now; the condition under which a role may';

-- Writers queue their rows as themselves: nothing of theirs is evaluated with more rights than they have.
-- The policy keeps everybody from writing to the queue in another way.
GRANT INSERT (collection, key) ON queue TO PUBLIC;
ALTER TABLE queue ENABLE ROW LEVEL SECURITY;
CREATE POLICY capture ON queue FOR INSERT TO PUBLIC WITH CHECK (@extschema@.is_capturing(collection));
COMMENT ON POLICY capture ON queue IS 'Roles write to the queue by the capture triggers only';

CREATE FUNCTION wake_worker() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wake_worker_wrapper';
COMMENT ON FUNCTION wake_worker() IS 'Trigger of rag.queue: wakes the worker when the transaction commits';
CREATE TRIGGER wake_worker AFTER INSERT ON queue FOR EACH STATEMENT EXECUTE FUNCTION wake_worker();
-- Also for rows that arrive by replication, and when a restore brings collections after their queue.
ALTER TABLE queue ENABLE ALWAYS TRIGGER wake_worker;
COMMENT ON TRIGGER wake_worker ON queue IS 'Wakes the worker at commit';
CREATE TRIGGER wake_worker AFTER INSERT ON collection FOR EACH STATEMENT EXECUTE FUNCTION wake_worker();
ALTER TABLE collection ENABLE ALWAYS TRIGGER wake_worker;
COMMENT ON TRIGGER wake_worker ON collection IS 'Wakes the worker at commit';

CREATE FUNCTION capture() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'capture_wrapper';
COMMENT ON FUNCTION capture() IS 'Trigger of source tables: notes in rag.queue which rows changed. Created and removed by rag.create_collection and rag.drop_collection';

CREATE VIEW failures WITH (security_barrier) AS
    SELECT c.name AS collection, f.key, f.attempts, f.error, f.failed_at
    FROM @extschema@.failure f
    JOIN @extschema@.collection c ON c.id = f.collection
    JOIN pg_catalog.pg_class r ON r.oid = c.source
    WHERE pg_catalog.pg_has_role(r.relowner, 'USAGE');
GRANT SELECT ON failures TO PUBLIC;
COMMENT ON VIEW failures IS 'Rows that could not be embedded, of the collections whose source the current role owns';
COMMENT ON COLUMN failures.collection IS 'Name of the collection';
COMMENT ON COLUMN failures.key IS 'Primary key of the row';
COMMENT ON COLUMN failures.attempts IS 'Attempts made';
COMMENT ON COLUMN failures.error IS 'Why the last one failed';
COMMENT ON COLUMN failures.failed_at IS 'When the row was given up';

CREATE FUNCTION retry_failures(collection text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'retry_failures_wrapper';
COMMENT ON FUNCTION retry_failures(text) IS
'Queues the rows of rag.failures again, of one collection or of all whose source the current role owns. Returns how many';
