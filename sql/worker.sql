-- The workers: seeing them, starting them.

-- A worker holds the lock of its place for its life (src/pg/lock.rs says what these numbers are), and everybody may read pg_locks.
CREATE FUNCTION rag_internal.worker_pids() RETURNS integer[]
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(l.pid ORDER BY l.objid), '{}') FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.classid = 1918985984 AND l.objsubid = 29281 AND l.objid >= 2003987314::oid
$$;
COMMENT ON FUNCTION rag_internal.worker_pids() IS 'Process numbers of this database''s workers, in the order of their places';

CREATE FUNCTION start_worker() RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'start_worker_wrapper';
REVOKE EXECUTE ON FUNCTION start_worker() FROM PUBLIC;
COMMENT ON FUNCTION start_worker() IS
'Starts the workers of this database when the transaction commits. False: they run already, or none may run here (standby, rag.worker off)';

CREATE FUNCTION rag_internal.row_counts(collection integer) RETURNS TABLE (rows bigint, chunks bigint)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'row_counts_wrapper';
COMMENT ON FUNCTION rag_internal.row_counts(integer) IS
'Rows of a collection''s source and its chunks, as far as the current role may read them: counted when the table is small, estimated when it is large; NULL when it is large and policies decide which rows the role sees, and where counting would run code of an owner whom the role does not trust';

CREATE VIEW status WITH (security_barrier) AS
    SELECT c.name AS collection, c.source,
           n.rows, n.chunks,
           -- What is queued and given up is counted for the whole source, rows that a policy hides included.
           CASE WHEN o.sees_all THEN q.pending END AS pending, CASE WHEN o.sees_all THEN f.failed END AS failed,
           CASE WHEN o.sees_all THEN q.lag END AS lag,
           -- Errors quote rows and providers: for the owner only.
           CASE WHEN o.owns THEN coalesce(p.error, c.last_error, q.last_error, f.last_error, a.error) END AS last_error,
           CASE WHEN o.owns THEN CASE
               WHEN p.error IS NOT NULL THEN p.hint
               WHEN c.last_error IS NOT NULL THEN c.last_error_hint
               WHEN q.last_error IS NOT NULL THEN q.last_error_hint
               WHEN f.last_error IS NOT NULL THEN f.last_error_hint
               ELSE a.error_hint
           END END AS last_error_hint,
           CASE WHEN o.owns THEN coalesce(c.last_error_at, f.last_error_at, a.failed_at) END AS last_error_at,
           w.pid AS worker_pid,
           CASE WHEN w.pid IS NULL OR NOT w.enabled THEN 'not running' ELSE 'running' END AS worker,
           CASE
               WHEN NOT w.enabled
                   THEN 'Workers are off: set rag.worker = on in postgresql.conf and reload.'
               WHEN w.pid IS NULL AND pg_catalog.pg_is_in_recovery()
                   THEN 'This is a standby; the primary''s worker does the work.'
               WHEN w.pid IS NULL
                   THEN 'The next write to a source starts it, or a superuser''s SELECT rag.start_worker(). To have it start with the server, add pg_ragent to shared_preload_libraries; it needs a free slot of max_worker_processes.'
               WHEN o.sees_all AND f.failed > 0
                   THEN 'See rag.failures; SELECT rag.retry_failures() queues these rows again.'
           END AS hint
    FROM rag_internal.collection c
    JOIN pg_catalog.pg_class r ON r.oid = c.source
    LEFT JOIN rag_internal.grant_failure a ON a.collection = c.id
    CROSS JOIN (SELECT (rag_internal.worker_pids())[1], coalesce(pg_catalog.current_setting('rag.worker', true)::pg_catalog.bool, true)) AS w (pid, enabled)
    CROSS JOIN LATERAL (
        SELECT pg_catalog.pg_has_role(r.relowner, 'USAGE'),
               pg_catalog.pg_has_role(r.relowner, 'USAGE') OR NOT pg_catalog.row_security_active(r.oid)) AS o (owns, sees_all)
    CROSS JOIN LATERAL rag_internal.row_counts(c.id) AS n
    CROSS JOIN LATERAL rag_internal.problem(c.id) AS p
    CROSS JOIN LATERAL (
        SELECT coalesce(pg_catalog.sum(q.rows), 0)::pg_catalog.int8,
               pg_catalog.clock_timestamp() - pg_catalog.min(q.queued_at),
               (pg_catalog.array_agg(q.error ORDER BY q.id DESC) FILTER (WHERE q.error IS NOT NULL))[1],
               (pg_catalog.array_agg(q.error_hint ORDER BY q.id DESC) FILTER (WHERE q.error IS NOT NULL))[1]
        FROM rag_internal.queue q WHERE q.collection = c.id) AS q (pending, lag, last_error, last_error_hint)
    CROSS JOIN LATERAL (
        SELECT pg_catalog.count(*), (pg_catalog.array_agg(f.error ORDER BY f.failed_at DESC))[1],
               (pg_catalog.array_agg(f.error_hint ORDER BY f.failed_at DESC))[1], pg_catalog.max(f.failed_at)
        FROM rag_internal.failure f WHERE f.collection = c.id) AS f (failed, last_error, last_error_hint, last_error_at)
    WHERE rag_internal.may_read(c.id);
GRANT SELECT ON status TO PUBLIC;
COMMENT ON VIEW status IS 'How current each collection is, and whether the worker runs; of collections whose source the current role may read';
COMMENT ON COLUMN status.collection IS 'Name of the collection';
COMMENT ON COLUMN status.source IS 'Its source table';
COMMENT ON COLUMN status.rows IS 'Rows of the source that the role sees: counted, or estimated where the table is large; NULL where it is large and policies decide which rows the role sees, and where counting would run code of an owner whom the role does not trust';
COMMENT ON COLUMN status.chunks IS 'Chunks of these rows that are embedded; counted, estimated or NULL as rows are';
COMMENT ON COLUMN status.pending IS 'Changed rows that are queued and not processed yet; a comparison of everything counts as one. For roles that see all rows of the source, as are failed and lag; NULL where policies decide which rows the role sees';
COMMENT ON COLUMN status.failed IS 'Rows given up, see rag.failures; NULL where policies decide which rows the role sees';
COMMENT ON COLUMN status.lag IS 'Age of the oldest queue entry; NULL when nothing is pending, or where policies decide which rows the role sees';
COMMENT ON COLUMN status.last_error IS 'What last went wrong and is not resolved; for roles that own the source';
COMMENT ON COLUMN status.last_error_hint IS 'What to do about it, where the error says so';
COMMENT ON COLUMN status.last_error_at IS 'When that was, where it is known';
COMMENT ON COLUMN status.worker_pid IS 'Process number of the worker, of several that of the first place';
COMMENT ON COLUMN status.worker IS 'running or not running';
COMMENT ON COLUMN status.hint IS 'What to do, if there is something to do';

CREATE FUNCTION rag_internal.wake_before_drop() RETURNS event_trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_EVENT <> 'ddl_command_start' THEN
        RAISE EXCEPTION 'rag_internal.wake_before_drop() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    PERFORM rag_internal.wake_at_commit();
EXCEPTION WHEN OTHERS THEN
    -- Where the library is missing, dropping must work all the same.
    NULL;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.wake_before_drop() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.wake_before_drop() IS 'Event trigger: lets the worker notice that the extension was dropped';
CREATE EVENT TRIGGER rag_wake_before_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION', 'DROP SCHEMA', 'DROP OWNED') EXECUTE FUNCTION rag_internal.wake_before_drop();
COMMENT ON EVENT TRIGGER rag_wake_before_drop IS 'pg_ragent: lets the worker notice that the extension was dropped';

-- The worker of this database starts when CREATE EXTENSION commits.
SELECT @extschema@.start_worker();
