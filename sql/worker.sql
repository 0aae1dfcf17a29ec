-- The worker: seeing it, waiting for it, starting it.

CREATE FUNCTION rag_internal.worker_pid() RETURNS integer
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pid FROM pg_stat_activity
    WHERE backend_type = 'pg_ragent worker' AND datname = current_database()
    ORDER BY backend_start LIMIT 1
$$;
COMMENT ON FUNCTION rag_internal.worker_pid() IS 'Process number of this database''s worker, as in pg_stat_activity; NULL when none runs';

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

CREATE FUNCTION rag_internal.row_counts(collection integer) RETURNS TABLE (rows bigint, chunks bigint)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'row_counts_wrapper';
COMMENT ON FUNCTION rag_internal.row_counts(integer) IS
'Rows of a collection''s source and its chunks, as far as the current role may read them: counted when the table is small, estimated when it is large';

CREATE VIEW status WITH (security_barrier) AS
    SELECT c.name AS collection, c.source,
           n.rows, n.chunks, q.pending, f.failed, q.lag,
           -- Errors quote rows and providers: for the owner only.
           CASE WHEN o.owns THEN coalesce(c.last_error, q.last_error, f.last_error) END AS last_error,
           CASE WHEN o.owns THEN coalesce(c.last_error_at, f.last_error_at) END AS last_error_at,
           w.pid AS worker_pid,
           CASE WHEN w.pid IS NULL OR NOT w.enabled THEN 'not running' ELSE 'running' END AS worker,
           CASE
               WHEN NOT w.enabled
                   THEN 'Workers are off: set rag.worker = on in postgresql.conf and reload.'
               WHEN w.pid IS NULL AND pg_catalog.pg_is_in_recovery()
                   THEN 'This is a standby; the primary''s worker does the work.'
               WHEN w.pid IS NULL
                   THEN 'The next write to a source starts it, or a superuser''s SELECT rag.start_worker(). To have it start with the server, add pg_ragent to shared_preload_libraries; it needs a free slot of max_worker_processes.'
               WHEN f.failed > 0
                   THEN 'See rag.failures; SELECT rag.retry_failures() queues these rows again.'
           END AS hint
    FROM rag_internal.collection c
    JOIN pg_catalog.pg_class r ON r.oid = c.source
    CROSS JOIN (SELECT rag_internal.worker_pid(), coalesce(pg_catalog.current_setting('rag.worker', true)::pg_catalog.bool, true)) AS w (pid, enabled)
    CROSS JOIN LATERAL pg_catalog.pg_has_role(r.relowner, 'USAGE') AS o (owns)
    CROSS JOIN LATERAL rag_internal.row_counts(c.id) AS n
    CROSS JOIN LATERAL (
        SELECT pg_catalog.count(*), pg_catalog.clock_timestamp() - pg_catalog.min(q.queued_at),
               (pg_catalog.array_agg(q.error ORDER BY q.id DESC) FILTER (WHERE q.error IS NOT NULL))[1]
        FROM rag_internal.queue q WHERE q.collection = c.id) AS q (pending, lag, last_error)
    CROSS JOIN LATERAL (
        SELECT pg_catalog.count(*), (pg_catalog.array_agg(f.error ORDER BY f.failed_at DESC))[1],
               pg_catalog.max(f.failed_at)
        FROM rag_internal.failure f WHERE f.collection = c.id) AS f (failed, last_error, last_error_at)
    WHERE rag_internal.may_read(c.source, c.key_columns || c.content_columns || c.metadata_columns
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
COMMENT ON COLUMN status.last_error IS 'What last went wrong and is not resolved; for roles that own the source';
COMMENT ON COLUMN status.last_error_at IS 'When that was, where it is known';
COMMENT ON COLUMN status.worker_pid IS 'Process number of the worker';
COMMENT ON COLUMN status.worker IS 'running or not running';
COMMENT ON COLUMN status.hint IS 'What to do, if there is something to do';

-- DDL that concerns collections.

CREATE FUNCTION rag_internal.forget_dropped() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    gone record;
    leftover record;
BEGIN
    FOR gone IN
        SELECT DISTINCT c.id, c.source, c.chunk_table
        FROM pg_event_trigger_dropped_objects() d
        JOIN rag_internal.collection c ON d.objid IN (c.source, c.chunk_table)
        WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0
    LOOP
        DELETE FROM rag_internal.collection WHERE id = gone.id;
        DELETE FROM rag_internal.queue WHERE collection = gone.id;
        DELETE FROM rag_internal.failure WHERE collection = gone.id;
        IF EXISTS (SELECT FROM pg_class WHERE oid = gone.chunk_table) THEN
            EXECUTE format('DROP TABLE %s CASCADE', gone.chunk_table);
        END IF;
        FOR leftover IN
            SELECT tgname FROM pg_trigger
            WHERE tgrelid = gone.source AND tgname ~ format('^rag_capture_%s_', gone.id) AND tgparentid = 0
        LOOP
            EXECUTE format('DROP TRIGGER %I ON %s', leftover.tgname, gone.source);
        END LOOP;
    END LOOP;
    -- A partition that goes takes rows of its parent's collection along.
    IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() d
               WHERE d.object_type = 'table' AND NOT d.is_temporary) THEN
        INSERT INTO rag_internal.queue (collection, key)
        SELECT c.id, NULL FROM rag_internal.collection c
        JOIN pg_class r ON r.oid = c.source AND r.relkind = 'p';
    END IF;
END $$;
COMMENT ON FUNCTION rag_internal.forget_dropped() IS 'Event trigger: when a source or a chunk table is dropped, so is its collection';
CREATE EVENT TRIGGER rag_forget_dropped ON sql_drop EXECUTE FUNCTION rag_internal.forget_dropped();
COMMENT ON EVENT TRIGGER rag_forget_dropped IS 'pg_ragent: when a source or a chunk table is dropped, so is its collection';

CREATE FUNCTION rag_internal.follow_altered() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    altered record;
    renamed record;
BEGIN
    FOR altered IN
        SELECT DISTINCT c.id, c.source, c.chunk_table, r.relkind, r.relowner, k.relowner AS chunk_owner
        FROM pg_event_trigger_ddl_commands() d
        JOIN rag_internal.collection c
          ON c.source = d.objid
          OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.source AND i.inhparent = d.objid)
        JOIN pg_class r ON r.oid = c.source
        JOIN pg_class k ON k.oid = c.chunk_table
        WHERE d.classid = 'pg_class'::regclass
    LOOP
        FOR renamed IN
            SELECT old.name AS old_name, a.attname::text AS new_name
            FROM rag_internal.collection c
            CROSS JOIN LATERAL jsonb_each_text(c.column_numbers) AS old (name, number)
            JOIN pg_attribute a ON a.attrelid = c.source AND a.attnum = old.number::smallint AND NOT a.attisdropped
            WHERE c.id = altered.id AND a.attname <> old.name
        LOOP
            UPDATE rag_internal.queue SET key = key - renamed.old_name || jsonb_build_object(renamed.new_name, key -> renamed.old_name)
            WHERE collection = altered.id AND key ? renamed.old_name;
            UPDATE rag_internal.failure SET key = key - renamed.old_name || jsonb_build_object(renamed.new_name, key -> renamed.old_name)
            WHERE collection = altered.id AND key ? renamed.old_name;
            UPDATE rag_internal.collection SET
                key_columns = array_replace(key_columns, renamed.old_name, renamed.new_name),
                content_columns = array_replace(content_columns, renamed.old_name, renamed.new_name),
                metadata_columns = array_replace(metadata_columns, renamed.old_name, renamed.new_name),
                title_column = CASE title_column WHEN renamed.old_name THEN renamed.new_name ELSE title_column END,
                link_column = CASE link_column WHEN renamed.old_name THEN renamed.new_name ELSE link_column END,
                column_numbers = column_numbers - renamed.old_name
                    || jsonb_build_object(renamed.new_name, column_numbers -> renamed.old_name)
            WHERE id = altered.id;
        END LOOP;
        -- The chunk table belongs to the source's owner. One that carries code of its former owner is not handed on:
        -- the collection is then blocked, and rag.status says so.
        IF altered.relowner <> altered.chunk_owner AND rag_internal.is_plain(altered.chunk_table) THEN
            EXECUTE format('ALTER TABLE %s OWNER TO %I', altered.chunk_table, pg_get_userbyid(altered.relowner));
        END IF;
        -- Partitions may have been attached or detached, or the source itself have become a part of another table, which
        -- the worker then reports.
        IF altered.relkind = 'p' OR EXISTS (SELECT FROM pg_inherits i WHERE altered.source IN (i.inhrelid, i.inhparent)) THEN
            INSERT INTO rag_internal.queue (collection, key) VALUES (altered.id, NULL);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION rag_internal.follow_altered() IS 'Event trigger: when a source is altered (columns renamed, owner changed, partitions attached), its collection follows';
CREATE EVENT TRIGGER rag_follow_altered ON ddl_command_end
    WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION rag_internal.follow_altered();
COMMENT ON EVENT TRIGGER rag_follow_altered IS 'pg_ragent: when a source is altered, its collection follows';

CREATE FUNCTION rag_internal.follow_grants() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM rag_internal.sync_grants(c.id) FROM rag_internal.collection c;
END $$;
COMMENT ON FUNCTION rag_internal.follow_grants() IS 'Event trigger: after GRANT and REVOKE, chunk tables are readable by those who may read the source';
CREATE EVENT TRIGGER rag_follow_grants ON ddl_command_end
    WHEN TAG IN ('GRANT', 'REVOKE') EXECUTE FUNCTION rag_internal.follow_grants();
COMMENT ON EVENT TRIGGER rag_follow_grants IS 'pg_ragent: after GRANT and REVOKE, chunk tables are readable by those who may read the source';

CREATE FUNCTION rag_internal.wake_at_commit() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'wake_at_commit_wrapper';
COMMENT ON FUNCTION rag_internal.wake_at_commit() IS 'Wakes the worker of this database when the transaction commits';

CREATE FUNCTION rag_internal.wake_before_drop() RETURNS event_trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM rag_internal.wake_at_commit();
EXCEPTION WHEN OTHERS THEN
    -- Where the library is missing, dropping must work all the same.
    NULL;
END $$;
COMMENT ON FUNCTION rag_internal.wake_before_drop() IS 'Event trigger: lets the worker notice that the extension was dropped';
CREATE EVENT TRIGGER rag_wake_before_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION', 'DROP SCHEMA', 'DROP OWNED') EXECUTE FUNCTION rag_internal.wake_before_drop();
COMMENT ON EVENT TRIGGER rag_wake_before_drop IS 'pg_ragent: lets the worker notice that the extension was dropped';

-- The worker of this database starts when CREATE EXTENSION commits.
SELECT @extschema@.start_worker();
