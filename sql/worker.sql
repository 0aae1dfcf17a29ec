-- The worker: seeing it, waiting for it, starting it.

CREATE FUNCTION worker_pid() RETURNS integer
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pid FROM pg_stat_activity
    WHERE backend_type = 'pg_ragent worker' AND datname = current_database()
    ORDER BY backend_start LIMIT 1
$$;
COMMENT ON FUNCTION worker_pid() IS 'Process number of this database''s worker, as in pg_stat_activity; NULL when none runs';

CREATE FUNCTION start_worker() RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'start_worker_wrapper';
REVOKE EXECUTE ON FUNCTION start_worker() FROM PUBLIC;
COMMENT ON FUNCTION start_worker() IS
'Starts the worker of this database when the transaction commits. False: one runs already, or none may run here (standby, rag.worker off)';

CREATE FUNCTION wait_until_current(collection text DEFAULT NULL, timeout interval DEFAULT '1 hour') RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wait_until_current_wrapper';
COMMENT ON FUNCTION wait_until_current(text, interval) IS
'Waits until what was queued when it was called is embedded, of one collection or of all the role may read. False: the time was over before';

CREATE FUNCTION source_rows(source regclass) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'source_rows_wrapper';
COMMENT ON FUNCTION source_rows(regclass) IS
'Rows of a collection''s source: counted when it is small, the planner''s estimate when it is large. NULL without the right to read it';

CREATE VIEW status AS
    SELECT c.name AS collection, c.source,
           @extschema@.source_rows(c.source) AS rows,
           @extschema@.source_rows(c.chunk_table) AS chunks,
           q.pending, f.failed, q.lag,
           coalesce(c.last_error, q.last_error, f.last_error) AS last_error,
           coalesce(c.last_error_at, f.last_error_at) AS last_error_at,
           w.pid AS worker_pid,
           CASE WHEN w.pid IS NULL THEN 'not running' ELSE 'running' END AS worker,
           CASE
               WHEN w.pid IS NULL AND pg_catalog.current_setting('rag.worker') = 'off'
                   THEN 'Workers are off: set rag.worker = on in postgresql.conf and reload.'
               WHEN w.pid IS NULL AND pg_catalog.pg_is_in_recovery()
                   THEN 'This is a standby; the primary''s worker does the work.'
               WHEN w.pid IS NULL
                   THEN 'The next write to a source starts it, or a superuser''s SELECT rag.start_worker(). To have it start with the server, add pg_ragent to shared_preload_libraries; it needs a free slot of max_worker_processes.'
               WHEN f.failed > 0
                   THEN 'See rag.failures; SELECT rag.retry_failures() queues these rows again.'
           END AS hint
    FROM @extschema@.collection c
    JOIN pg_catalog.pg_class r ON r.oid = c.source
    CROSS JOIN (SELECT @extschema@.worker_pid()) AS w (pid)
    CROSS JOIN LATERAL (
        SELECT pg_catalog.count(*), pg_catalog.clock_timestamp() - pg_catalog.min(q.queued_at),
               (pg_catalog.array_agg(q.error ORDER BY q.id DESC) FILTER (WHERE q.error IS NOT NULL))[1]
        FROM @extschema@.queue q WHERE q.collection = c.id) AS q (pending, lag, last_error)
    CROSS JOIN LATERAL (
        SELECT pg_catalog.count(*), (pg_catalog.array_agg(f.error ORDER BY f.failed_at DESC))[1],
               pg_catalog.max(f.failed_at)
        FROM @extschema@.failure f WHERE f.collection = c.id) AS f (failed, last_error, last_error_at)
    WHERE @extschema@.may_read(c.source, c.key_columns || c.content_columns || c.metadata_columns
                                         || c.title_column || c.link_column);
GRANT SELECT ON status TO PUBLIC;
COMMENT ON VIEW status IS 'How current each collection is, and whether the worker runs; of collections whose source the current role may read';
COMMENT ON COLUMN status.collection IS 'Name of the collection';
COMMENT ON COLUMN status.source IS 'Its source table';
COMMENT ON COLUMN status.rows IS 'Rows of the source that the role sees: counted, or estimated where the table is large';
COMMENT ON COLUMN status.chunks IS 'Chunks that are embedded: counted, or estimated where the table is large';
COMMENT ON COLUMN status.pending IS 'Queue entries not processed yet';
COMMENT ON COLUMN status.failed IS 'Rows given up, see rag.failures';
COMMENT ON COLUMN status.lag IS 'Age of the oldest queue entry; NULL when nothing is pending';
COMMENT ON COLUMN status.last_error IS 'What last went wrong and is not resolved';
COMMENT ON COLUMN status.last_error_at IS 'When that was, where it is known';
COMMENT ON COLUMN status.worker_pid IS 'Process number of the worker';
COMMENT ON COLUMN status.worker IS 'running or not running';
COMMENT ON COLUMN status.hint IS 'What to do, if there is something to do';

-- DDL that concerns collections.

CREATE FUNCTION forget_dropped() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone record;
BEGIN
    FOR gone IN
        SELECT c.id, c.chunk_table
        FROM pg_event_trigger_dropped_objects() d
        JOIN @extschema@.collection c ON d.objid IN (c.source, c.chunk_table)
        WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0
    LOOP
        DELETE FROM @extschema@.collection WHERE id = gone.id;
        DELETE FROM @extschema@.queue WHERE collection = gone.id;
        DELETE FROM @extschema@.failure WHERE collection = gone.id;
        IF EXISTS (SELECT FROM pg_class WHERE oid = gone.chunk_table) THEN
            EXECUTE format('DROP TABLE %s', gone.chunk_table);
        END IF;
    END LOOP;
EXCEPTION WHEN undefined_table OR undefined_function THEN
    -- The extension itself is going.
    NULL;
END $$;
COMMENT ON FUNCTION forget_dropped() IS 'Event trigger: when a source table is dropped, so is its collection';
CREATE EVENT TRIGGER rag_forget_dropped ON sql_drop
    WHEN TAG IN ('DROP TABLE', 'DROP SCHEMA', 'DROP OWNED') EXECUTE FUNCTION forget_dropped();
COMMENT ON EVENT TRIGGER rag_forget_dropped IS 'pg_ragent: when a source table is dropped, so is its collection';

CREATE FUNCTION follow_renamed() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renamed record;
BEGIN
    FOR renamed IN
        SELECT c.id, old.name AS old_name, a.attname::text AS new_name
        FROM pg_event_trigger_ddl_commands() d
        JOIN @extschema@.collection c ON c.source = d.objid
        CROSS JOIN LATERAL jsonb_each_text(c.column_numbers) AS old (name, number)
        JOIN pg_attribute a ON a.attrelid = c.source AND a.attnum = old.number::smallint AND NOT a.attisdropped
        WHERE d.classid = 'pg_class'::regclass AND a.attname <> old.name
    LOOP
        UPDATE @extschema@.collection SET
            key_columns = array_replace(key_columns, renamed.old_name, renamed.new_name),
            content_columns = array_replace(content_columns, renamed.old_name, renamed.new_name),
            metadata_columns = array_replace(metadata_columns, renamed.old_name, renamed.new_name),
            title_column = CASE title_column WHEN renamed.old_name THEN renamed.new_name ELSE title_column END,
            link_column = CASE link_column WHEN renamed.old_name THEN renamed.new_name ELSE link_column END,
            column_numbers = column_numbers - renamed.old_name
                || jsonb_build_object(renamed.new_name, column_numbers -> renamed.old_name)
        WHERE id = renamed.id;
    END LOOP;
END $$;
COMMENT ON FUNCTION follow_renamed() IS 'Event trigger: when a column of a source is renamed, its collection follows';
CREATE EVENT TRIGGER rag_follow_renamed ON ddl_command_end
    WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION follow_renamed();
COMMENT ON EVENT TRIGGER rag_follow_renamed IS 'pg_ragent: when a column of a source is renamed, its collection follows';

CREATE FUNCTION wake_before_drop() RETURNS event_trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wake_before_drop_wrapper';
COMMENT ON FUNCTION wake_before_drop() IS 'Event trigger: lets the worker notice that the extension was dropped';
CREATE EVENT TRIGGER rag_wake_before_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION', 'DROP SCHEMA', 'DROP OWNED') EXECUTE FUNCTION wake_before_drop();
COMMENT ON EVENT TRIGGER rag_wake_before_drop IS 'pg_ragent: lets the worker notice that the extension was dropped';

-- The worker of this database starts when CREATE EXTENSION commits.
SELECT @extschema@.start_worker();
