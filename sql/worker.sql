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
'Starts the workers of this database that are missing. False: they run already, none may run here (standby, rag.worker off), or max_worker_processes has no free slot, of which a warning tells';

CREATE FUNCTION rag_internal.row_counts(collection integer) RETURNS TABLE (rows bigint, chunks bigint, is_emptied boolean)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'row_counts_wrapper';
COMMENT ON FUNCTION rag_internal.row_counts(integer) IS
'Rows of a collection''s source and its chunks, as far as the current role may read them: counted when the table is small, estimated when it is large; NULL when it is large and policies decide which rows the role sees, and where counting would run code of an owner whom the role does not trust. There members of pg_monitor get estimates. is_emptied: rows with text have no chunks, as far as the first rows tell';

CREATE VIEW status WITH (security_barrier) AS
    SELECT c.name AS collection, c.source, s.state,
           n.rows, n.chunks,
           -- What is queued and given up is counted for the whole source, rows that a policy hides included.
           CASE WHEN o.sees_all THEN q.pending END AS pending, CASE WHEN o.sees_all THEN f.failed END AS failed,
           CASE WHEN o.sees_all THEN q.lag END AS lag,
           -- Errors quote rows and providers: for the owner only.
           CASE WHEN o.owns THEN e.error END AS last_error,
           CASE WHEN o.owns THEN e.hint END AS last_error_hint,
           CASE WHEN o.owns OR o.watches THEN e.sqlstate END AS last_error_sqlstate,
           CASE WHEN o.owns OR o.watches THEN e.at END AS last_error_at,
           CASE WHEN o.sees_all AND q.pending > 0 THEN s.next_attempt END AS next_attempt,
           w.pid AS worker_pid,
           CASE WHEN w.is_running THEN 'running' ELSE 'not running' END AS worker,
           k.capture,
           CASE
               WHEN s.state = 'unusable' AND p.hint IS NOT NULL
                   THEN p.hint
               WHEN NOT w.enabled
                   THEN 'Workers are off: set rag.worker = on in postgresql.conf and reload.'
               WHEN NOT w.is_running AND pg_catalog.pg_is_in_recovery()
                   THEN 'This is a standby; the primary''s worker does the work.'
               WHEN NOT w.is_running
                   THEN 'The next write to a source starts it, or a superuser''s SELECT rag.start_worker(). To have it start by itself, add pg_ragent to shared_preload_libraries. It needs a free slot of max_worker_processes.'
               WHEN s.state = 'capture off'
                   THEN pg_catalog.format('Changes of the source are not noted, see capture. SELECT rag.refresh(%L) makes its triggers as they should be and compares everything.', c.name)
               WHEN NOT (o.owns OR o.watches)
                   THEN NULL
               WHEN s.state = 'provider'
                   THEN pg_catalog.format('Server %I fails since %s and is asked again at next_attempt. Once it is mended, SELECT rag.retry_failures() ends the pause; so do ALTER SERVER and ALTER USER MAPPING.',
                                          ws.server, pg_catalog.to_char(ws.since, 'YYYY-MM-DD HH24:MI:SS TZ'))
               WHEN s.state = 'paused'
                   THEN 'Its tables held the worker for too long. Its owner sees the reason in last_error; SELECT rag.retry_failures() ends the pause.'
               WHEN s.state = 'blocked'
                   THEN 'The worker cannot go on with it and tries again at next_attempt. Its owner sees the reason in last_error; SELECT rag.retry_failures() has it tried at once.'
               WHEN s.state = 'empty'
                   THEN pg_catalog.format('Its chunk table has lost rows: SELECT rag.refresh(%L) has them embedded again.', c.name)
               WHEN s.state = 'failures'
                   THEN 'See rag.failures; SELECT rag.retry_failures() queues these rows again.'
               WHEN s.state = 'grants'
                   THEN pg_catalog.format('Who may read the source may not read its chunk table directly. Its owner sees the reason in last_error; SELECT rag.refresh(%L) tries again at once.', c.name)
           END AS hint
    FROM rag_internal.collection c
    JOIN rag_internal.generation g ON g.collection = c.id AND g.state = 'serving'
    LEFT JOIN pg_catalog.pg_class r ON r.oid = c.source
    LEFT JOIN rag_internal.grant_failure a ON a.collection = c.id
    CROSS JOIN (
        SELECT a.pid, a.enabled, a.pid IS NOT NULL AND a.enabled
        FROM (SELECT (rag_internal.worker_pids())[1], coalesce(pg_catalog.current_setting('rag.worker', true)::pg_catalog.bool, true)) AS a (pid, enabled))
        AS w (pid, enabled, is_running)
    CROSS JOIN LATERAL (
        SELECT coalesce(pg_catalog.pg_has_role(r.relowner, 'USAGE'), false), pg_catalog.pg_has_role('pg_monitor', 'USAGE')) AS u (owns, watches)
    CROSS JOIN LATERAL (
        SELECT u.owns, u.watches, u.owns OR u.watches OR NOT pg_catalog.row_security_active(r.oid)) AS o (owns, watches, sees_all)
    CROSS JOIN LATERAL rag_internal.row_counts(c.id) AS n
    CROSS JOIN LATERAL rag_internal.problem(c.id) AS p
    CROSS JOIN LATERAL (SELECT rag_internal.capture_state(c.id)) AS k (capture)
    CROSS JOIN LATERAL (
        SELECT coalesce(pg_catalog.sum(q.rows), 0)::pg_catalog.int8,
               pg_catalog.clock_timestamp() - pg_catalog.min(q.queued_at), pg_catalog.min(q.retry_at),
               (pg_catalog.array_agg(q.error ORDER BY q.id DESC) FILTER (WHERE q.error IS NOT NULL))[1],
               (pg_catalog.array_agg(q.error_hint ORDER BY q.id DESC) FILTER (WHERE q.error IS NOT NULL))[1],
               (pg_catalog.array_agg(q.error_sqlstate ORDER BY q.id DESC) FILTER (WHERE q.error IS NOT NULL))[1]
        FROM rag_internal.queue q WHERE q.collection = c.id) AS q (pending, lag, retry_at, last_error, last_error_hint, last_error_sqlstate)
    CROSS JOIN LATERAL (
        SELECT pg_catalog.count(*), (pg_catalog.array_agg(f.error ORDER BY f.failed_at DESC))[1],
               (pg_catalog.array_agg(f.error_hint ORDER BY f.failed_at DESC))[1],
               (pg_catalog.array_agg(f.error_sqlstate ORDER BY f.failed_at DESC))[1], pg_catalog.max(f.failed_at)
        FROM rag_internal.failure f WHERE f.collection = c.id) AS f (failed, last_error, last_error_hint, last_error_sqlstate, last_error_at)
    LEFT JOIN rag_internal.pause b ON b.collection = c.id AND b.until > pg_catalog.clock_timestamp()
    LEFT JOIN rag_internal.waiting wc ON wc.collection = c.id AND wc.server = '' AND wc.role = 0
    LEFT JOIN rag_internal.waiting wo ON wo.collection = 0 AND wo.server = '' AND wo.role = r.relowner
    -- A server that nobody waits for is no matter, although it failed.
    LEFT JOIN LATERAL (
        SELECT x.* FROM rag_internal.waiting x
        WHERE x.collection = 0 AND x.server <> '' AND x.role = r.relowner AND q.pending > 0
          AND pg_catalog.starts_with(g.model, x.server || '/')) AS ws ON true
    CROSS JOIN LATERAL (
        SELECT CASE
               WHEN p.is_unusable THEN 'unusable'
               WHEN k.capture <> 'on' THEN 'capture off'
               WHEN b.collection IS NOT NULL THEN 'paused'
               WHEN ws.server IS NOT NULL THEN 'provider'
               WHEN c.last_error IS NOT NULL THEN 'blocked'
               WHEN o.sees_all AND q.pending > 0 AND NOT w.is_running AND NOT pg_catalog.pg_is_in_recovery() THEN 'no worker'
               WHEN n.is_emptied AND q.pending = 0 AND (n.chunks = 0 OR f.failed = 0) THEN 'empty'
               WHEN o.sees_all AND f.failed > 0 THEN 'failures'
               WHEN a.collection IS NOT NULL THEN 'grants'
               ELSE 'ok' END,
               coalesce(b.until, greatest(ws.until, wc.until, wo.until), q.retry_at)) AS s (state, next_attempt)
    CROSS JOIN LATERAL (
        SELECT x.error, x.hint, x.sqlstate, x.at
        FROM (VALUES (1, p.error, p.hint, CASE WHEN p.is_unusable THEN '55000' END, c.last_error_at),
                     (2, ws.error, ws.error_hint, ws.error_sqlstate, ws.noted_at),
                     (3, c.last_error, c.last_error_hint, c.last_error_sqlstate, c.last_error_at),
                     (4, q.last_error, q.last_error_hint, q.last_error_sqlstate, NULL),
                     (5, f.last_error, f.last_error_hint, f.last_error_sqlstate, f.last_error_at),
                     (6, a.error, a.error_hint, a.error_sqlstate, a.failed_at),
                     (7, NULL, NULL, NULL, NULL)) AS x (place, error, hint, sqlstate, at)
        WHERE x.error IS NOT NULL OR x.sqlstate IS NOT NULL OR x.place = 7
        ORDER BY x.place LIMIT 1) AS e (error, hint, sqlstate, at)
    WHERE rag_internal.may_read(c.id) OR o.watches;
GRANT SELECT ON status TO PUBLIC;
COMMENT ON VIEW status IS 'How current each collection is, and whether the worker runs; of collections whose source the current role may read, and for members of pg_monitor of all, without texts';
COMMENT ON COLUMN status.collection IS 'Name of the collection';
COMMENT ON COLUMN status.source IS 'Its source table';
COMMENT ON COLUMN status.state IS 'ok, or what is wrong: unusable (its tables are not as it needs them), capture off (changes are not noted), paused (code of its owner held the worker), provider (its model''s server fails), blocked (the worker cannot go on with it), no worker (rows wait and none runs), empty (the chunk table has lost rows), failures (rows were given up), grants (the chunk table does not have those of the source). Everything but ok is worth an alert';
COMMENT ON COLUMN status.rows IS 'Rows of the source that the role sees: counted, or estimated where the table is large; NULL where it is large and policies decide which rows the role sees, and where counting would run code of an owner whom the role does not trust. There members of pg_monitor get estimates';
COMMENT ON COLUMN status.chunks IS 'Chunks of these rows that are embedded; counted, estimated or NULL as rows are';
COMMENT ON COLUMN status.pending IS 'Changed rows that are queued and not processed yet; a comparison of everything counts as one. For roles that see all rows of the source and for members of pg_monitor, as are failed and lag; NULL where policies decide which rows the role sees';
COMMENT ON COLUMN status.failed IS 'Rows given up, see rag.failures; NULL where policies decide which rows the role sees';
COMMENT ON COLUMN status.lag IS 'Age of the oldest queue entry; NULL when nothing is pending, or where policies decide which rows the role sees';
COMMENT ON COLUMN status.last_error IS 'What last went wrong and is not resolved; for roles that own the source';
COMMENT ON COLUMN status.last_error_hint IS 'What to do about it, where the error says so';
COMMENT ON COLUMN status.last_error_sqlstate IS 'Its SQLSTATE; also for members of pg_monitor';
COMMENT ON COLUMN status.last_error_at IS 'When that was, where it is known';
COMMENT ON COLUMN status.next_attempt IS 'When something that is pending and had to wait is tried again; NULL where nothing waits';
COMMENT ON COLUMN status.worker_pid IS 'Process number of the worker, of several that of the first place';
COMMENT ON COLUMN status.worker IS 'running or not running';
COMMENT ON COLUMN status.capture IS 'on, or what is wrong with the triggers that note changes, and since when, where that is known';
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
