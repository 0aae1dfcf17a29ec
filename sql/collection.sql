-- Collections: registering tables, and following what happens to them.

CREATE VIEW collections WITH (security_barrier) AS
    SELECT c.name, c.source, c.content_columns AS content, c.title_column AS title, c.link_column AS link,
           c.metadata_columns AS metadata, c.key_columns, g.chunk_table, g.model AS embedding_model, g.dimensions,
           g.chunk_tokens, g.chunk_overlap, c.description,
           pg_catalog.pg_get_userbyid(r.relowner) AS owner, c.created_at, c.serve_stale
    FROM rag_internal.collection c
    JOIN rag_internal.generation g
      ON g.collection OPERATOR(pg_catalog.=) c.id AND g.state OPERATOR(pg_catalog.=) 'serving'::pg_catalog.text
    JOIN pg_catalog.pg_class r ON r.oid OPERATOR(pg_catalog.=) c.source::pg_catalog.oid
    WHERE rag_internal.may_read(c.id);
GRANT SELECT ON collections TO PUBLIC;
COMMENT ON VIEW collections IS 'The collections whose source the current role may read';
COMMENT ON COLUMN collections.name IS 'Name, as rag.search and rag.ask take it';
COMMENT ON COLUMN collections.source IS 'The table whose rows are searched';
COMMENT ON COLUMN collections.content IS 'Columns whose text is chunked and embedded';
COMMENT ON COLUMN collections.title IS 'Column shown as title and embedded with each chunk';
COMMENT ON COLUMN collections.link IS 'Column shown as link';
COMMENT ON COLUMN collections.metadata IS 'Columns returned as metadata';
COMMENT ON COLUMN collections.key_columns IS 'Primary key columns of the source, the keys of rag.search''s key';
COMMENT ON COLUMN collections.chunk_table IS 'Table of the chunks and their embeddings; it can be queried directly with pgvector';
COMMENT ON COLUMN collections.embedding_model IS 'Model of the embeddings, as server/model';
COMMENT ON COLUMN collections.dimensions IS 'Length of the embeddings';
COMMENT ON COLUMN collections.chunk_tokens IS 'Longest chunk, in tokens';
COMMENT ON COLUMN collections.chunk_overlap IS 'Tokens a chunk repeats of the one before';
COMMENT ON COLUMN collections.description IS 'What the collection is about; the agent reads it to decide whether to search';
COMMENT ON COLUMN collections.owner IS 'Owner of the source';
COMMENT ON COLUMN collections.created_at IS 'When it was created';
COMMENT ON COLUMN collections.serve_stale IS 'Whether a row that changed is found by its old text until the new one is embedded';

CREATE FUNCTION create_collection(
    name text, source regclass, content text[],
    title text DEFAULT NULL, link text DEFAULT NULL, metadata text[] DEFAULT NULL,
    embedding_model text DEFAULT NULL, dimensions integer DEFAULT NULL,
    chunk_tokens integer DEFAULT NULL, chunk_overlap integer DEFAULT NULL,
    description text DEFAULT NULL, chunk_table text DEFAULT NULL, serve_stale boolean DEFAULT false) RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'create_collection_wrapper';
COMMENT ON FUNCTION create_collection(text, regclass, text[], text, text, text[], text, integer, integer, integer, text, text, boolean) IS
'Registers a table for retrieval: creates its chunk table, triggers that note changes, and queues its rows for embedding. With serve_stale a row that changed is found by its old text until the new one is embedded. Returns the name';

CREATE FUNCTION alter_collection(name text, description text DEFAULT NULL, serve_stale boolean DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'alter_collection_wrapper';
COMMENT ON FUNCTION alter_collection(text, text, boolean) IS
'Changes what a collection is said to be about, and whether a row that changed is found by its old text until the new one is embedded. NULL leaves as it is; an empty description takes it away';

CREATE FUNCTION drop_collection(name text, if_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'drop_collection_wrapper';
COMMENT ON FUNCTION drop_collection(text, boolean) IS
'Removes a collection: its chunk table, its triggers and what is queued. The source table stays as it is';

CREATE FUNCTION refresh(collection text) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'refresh_wrapper';
COMMENT ON FUNCTION refresh(text) IS
'Compares everything a collection has with its source, makes its capture triggers and the grants of its chunk table as they should be, and tries rows again that were given up. Where its chunk table is gone, has lost what it was made with, or was made for another owner than the source has now, makes it anew and queues every row; by that the owner agrees to what former owners attached to the source';

-- DDL of ours runs as the owner of the table it is about, and under the search_path of whoever caused it, as if they had
-- run it: event triggers of the database may rely on both. These functions say what is to be run; the library runs it.

CREATE FUNCTION rag_internal.grants_to_sync(only_collection integer DEFAULT NULL)
    RETURNS TABLE (collection integer, owner oid, statement text, tables oid[])
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- One query for all of them: it runs after GRANTs in the database, on whatever they were.
    RETURN QUERY
    -- Only tables that still belong to the owner they were made for: others wait for rag.refresh.
    WITH served AS MATERIALIZED (
        SELECT c.id, c.source, array_remove(c.key_columns || c.content_columns || c.title_column, NULL) AS columns, s.relowner AS source_owner, s.relacl AS source_acl,
               t.oid AS chunks, t.relowner AS chunks_owner, t.relacl AS chunks_acl
        FROM rag_internal.collection c
        JOIN pg_class s ON s.oid = c.source
        JOIN rag_internal.generation g ON g.collection = c.id AND NOT g.is_adopted
        JOIN pg_class t ON t.oid = g.chunk_table
        JOIN rag_internal.chunk_owner o ON o.chunk_table = g.chunk_table AND o.owner = t.relowner
        WHERE only_collection IS NULL OR c.id = only_collection),
    -- Who was granted SELECT on the source, or on each of its key, title and content columns; 0 is PUBLIC. Not the owner, and of
    -- those who hold SELECT only those who have it from the owner: what GRANT and REVOKE here leave as it is would be tried
    -- again and again, since they are noted as everybody's are.
    readers AS (
        SELECT v.chunks, a.grantee, true AS is_reader FROM served v CROSS JOIN LATERAL aclexplode(v.source_acl) a
        WHERE a.privilege_type = 'SELECT' AND a.grantee <> v.source_owner
        UNION
        SELECT v.chunks, a.grantee, true
        FROM served v
        JOIN pg_attribute col ON col.attrelid = v.source AND NOT col.attisdropped AND col.attname = ANY (v.columns)
        CROSS JOIN LATERAL aclexplode(col.attacl) a
        WHERE col.attacl IS NOT NULL AND a.privilege_type = 'SELECT' AND a.grantee <> v.source_owner
        GROUP BY v.chunks, v.columns, a.grantee
        HAVING count(DISTINCT col.attname) = (SELECT count(DISTINCT u) FROM unnest(v.columns) u)),
    holders AS (
        SELECT DISTINCT v.chunks, a.grantee, true AS is_holder FROM served v CROSS JOIN LATERAL aclexplode(v.chunks_acl) a
        WHERE a.privilege_type = 'SELECT' AND a.grantee <> v.chunks_owner AND a.grantor = v.chunks_owner),
    -- One statement for all grantees: each changes the table's row in the catalog.
    changes AS (
        SELECT chunks, h.is_holder IS NULL AS is_new,
               string_agg(CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END, ', '
                          ORDER BY grantee) AS grantees
        FROM readers r FULL JOIN holders h USING (chunks, grantee)
        WHERE (r.is_reader IS NULL OR h.is_holder IS NULL)
          AND NOT EXISTS (SELECT FROM pg_class t WHERE t.oid = chunks AND t.relowner = grantee)
        GROUP BY chunks, h.is_holder IS NULL)
    SELECT v.id, v.chunks_owner,
           format(CASE WHEN x.is_new THEN 'GRANT SELECT ON %s TO %s' ELSE 'REVOKE SELECT ON %s FROM %s CASCADE' END,
                  v.chunks::regclass, x.grantees),
           ARRAY[v.chunks]
    FROM served v JOIN changes x ON x.chunks = v.chunks
    ORDER BY v.id, v.chunks, x.is_new DESC;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.grants_to_sync(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.grants_to_sync(integer) IS
'What is to be granted and revoked so that those may SELECT from a chunk table who were granted it on the source, and nobody else; its policy then decides row by row';

-- Two who drop the two tables of a collection at once each hold what the other one waits for. So who forgets a collection does
-- not wait in line for its row, but asks for it now and then.
CREATE FUNCTION rag_internal.holds_collection(collection integer) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    begun timestamptz := clock_timestamp();
BEGIN
    LOOP
        PERFORM FROM rag_internal.collection c WHERE c.id = $1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM FROM rag_internal.collection c WHERE c.id = $1;
        IF NOT FOUND OR clock_timestamp() > begun + interval '1 second' THEN
            RETURN false;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.holds_collection(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.holds_collection(integer) IS
'Locks the row of a collection, if it is there and can be had within a second';

CREATE FUNCTION rag_internal.forget_dropped_tables() RETURNS TABLE (owner oid, statement text, tables oid[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    gone record;
BEGIN
    -- The tables of a collection: its source, and the chunk tables of its generations. Each is found by its index, however many
    -- collections there are.
    FOR gone IN
        WITH dropped AS MATERIALIZED (
            SELECT d.objid FROM pg_event_trigger_dropped_objects() d
            WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0)
        SELECT c.id, c.source FROM dropped d JOIN rag_internal.collection c ON c.source = d.objid
        UNION
        SELECT c.id, c.source
        FROM dropped d
        JOIN rag_internal.generation g ON g.chunk_table = d.objid
        JOIN rag_internal.collection c ON c.id = g.collection
    LOOP
        CONTINUE WHEN NOT rag_internal.holds_collection(gone.id);
        DELETE FROM rag_internal.collection WHERE id = gone.id;
        DELETE FROM rag_internal.queue WHERE collection = gone.id;
        DELETE FROM rag_internal.failure WHERE collection = gone.id;
        DELETE FROM rag_internal.pause WHERE collection = gone.id;
        DELETE FROM rag_internal.grant_failure WHERE collection = gone.id;
        RETURN QUERY
            WITH generations AS (DELETE FROM rag_internal.generation WHERE collection = gone.id RETURNING *),
                 owners AS (DELETE FROM rag_internal.chunk_owner o USING generations g WHERE o.chunk_table = g.chunk_table),
                 hands AS (DELETE FROM rag_internal.changed_hands h USING generations g WHERE h.chunk_table = g.chunk_table)
            SELECT r.relowner, format('DROP TABLE %s CASCADE', g.chunk_table), ARRAY[r.oid]
            FROM generations g JOIN pg_class r ON r.oid = g.chunk_table
            WHERE NOT g.is_adopted;
        DELETE FROM rag_internal.capture_gap WHERE collection = gone.id;
        -- The collection is gone by now, so all of its triggers are left over. Copies go with what they are copies of.
        RETURN QUERY
            SELECT r.relowner, format('DROP TRIGGER IF EXISTS %I ON %s', l.name, l.relation::regclass),
                   ARRAY(SELECT p.relid::oid FROM pg_partition_tree(r.oid) p UNION SELECT r.oid)
            FROM rag_internal.capture_leftovers(gone.id, gone.source) l JOIN pg_class r ON r.oid = l.relation;
    END LOOP;
    -- A trigger that goes while its table stays is missed.
    FOR gone IN
        SELECT DISTINCT c.id, c.source
        FROM pg_event_trigger_dropped_objects() d
        JOIN pg_class r ON r.oid = to_regclass(format('%I.%I', d.address_names[1], d.address_names[2]))
        CROSS JOIN LATERAL (SELECT r.oid UNION SELECT a.relid FROM pg_partition_ancestors(r.oid) a (relid)) AS whole (id)
        JOIN rag_internal.collection c ON c.source = whole.id
        WHERE d.object_type = 'trigger' AND d.address_names[3] LIKE format('rag\_capture\_%s\_%%', c.id)
    LOOP
        PERFORM rag_internal.follow_capture(gone.id, 'DROP TRIGGER');
    END LOOP;
    -- A partition that goes takes rows of its parent's collection along, and its copies of the parent's capture triggers.
    IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() d
               WHERE d.object_type = 'trigger' AND d.address_names[3] ~ '^rag_capture_[0-9]+_') THEN
        INSERT INTO rag_internal.queue (collection, key)
        SELECT c.id, NULL FROM rag_internal.collection c
        JOIN pg_class r ON r.oid = c.source AND r.relkind = 'p'
        WHERE c.id::text IN (SELECT substring(d.address_names[3] FROM '^rag_capture_([0-9]+)_')
                             FROM pg_event_trigger_dropped_objects() d WHERE d.object_type = 'trigger');
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.forget_dropped_tables() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.forget_dropped_tables() IS
'Forgets the collections whose source or chunk table was just dropped; what is left of them is to be dropped by these statements. For an event trigger on sql_drop';

CREATE FUNCTION rag_internal.capture_argument(collection integer) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT pg_catalog.convert_to(collection::pg_catalog.text, 'UTF8') OPERATOR(pg_catalog.||) '\x00'::pg_catalog.bytea
$$;
REVOKE EXECUTE ON FUNCTION rag_internal.capture_argument(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.capture_argument(integer) IS 'pg_trigger.tgargs of a collection''s capture triggers';

CREATE FUNCTION rag_internal.awaits_restore(collection integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM rag_internal.collection c
        JOIN pg_class s ON s.oid = c.source
        JOIN rag_internal.generation g ON g.collection = c.id AND g.state = 'serving'
        JOIN pg_class t ON t.oid = g.chunk_table
        WHERE c.id = $1
          AND (NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.source AND i.indisprimary)
               OR NOT g.is_adopted AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = g.chunk_table AND i.indisprimary)
               OR NOT EXISTS (SELECT FROM pg_trigger r
                              WHERE r.tgrelid = c.source AND r.tgfoid = 'rag_internal.capture()'::regprocedure
                                AND r.tgargs = rag_internal.capture_argument(c.id))));
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.awaits_restore(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.awaits_restore(integer) IS
'Whether a collection''s tables lack their keys or all of the capture triggers. A restore makes these once it has loaded what is in the tables; until then the worker leaves them alone';

CREATE FUNCTION rag_internal.leftover_triggers(source oid) RETURNS TABLE (owner oid, statement text, tables oid[])
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT r.relowner, format('DROP TRIGGER IF EXISTS %I ON %s', t.tgname, r.oid::regclass), ARRAY[r.oid]
    FROM (SELECT p.relid::oid FROM pg_partition_tree(source) p UNION SELECT source) AS part (id)
    JOIN pg_class r ON r.oid = part.id AND r.relowner = (SELECT s.relowner FROM pg_class s WHERE s.oid = source)
    JOIN pg_trigger t ON t.tgrelid = r.oid AND t.tgparentid = 0 AND t.tgfoid = 'rag_internal.capture()'::regprocedure
    WHERE NOT EXISTS (
        SELECT FROM rag_internal.collection c
        WHERE rag_internal.capture_argument(c.id) = t.tgargs
          AND (c.source = r.oid OR c.source IN (SELECT a.relid FROM pg_partition_ancestors(r.oid) a)));
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.leftover_triggers(oid) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.leftover_triggers(oid) IS
'What drops the capture triggers on a table and its partitions that are of no collection of it; those of partitions that are another''s stay';

CREATE FUNCTION rag_internal.why_no_former_chunks(relation oid, source_owner oid, key_columns text[], key_types oid[]) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found record;
    types oid[] := key_types;
BEGIN
    SELECT r.relkind, r.relpersistence, r.relowner,
           rag_internal.shares_rows(r.oid) AS shares_rows,
           (SELECT c.name FROM rag_internal.collection c
            WHERE c.source = r.oid OR c.id IN (SELECT g.collection FROM rag_internal.generation g WHERE g.chunk_table = r.oid)
            ORDER BY c.source = r.oid DESC LIMIT 1) AS collection,
           EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = r.oid
                     AND d.classid = 'pg_rewrite'::regclass AND d.deptype = 'n')
               OR EXISTS (SELECT FROM pg_constraint k WHERE k.confrelid = r.oid) AS is_used
    INTO found FROM pg_class r WHERE r.oid = relation;
    IF types IS NULL THEN
        SELECT array_agg(u.type ORDER BY u.place) INTO types
        FROM rag_internal.columns_by_name(relation, key_columns) u WHERE u.type < 16384::oid;
    -- Only with the types of a key is it asked whether a table is a collection's: without, it is that collection which asks.
    ELSIF found.collection IS NOT NULL THEN
        RETURN format('collection "%s" uses it', found.collection);
    END IF;
    RETURN CASE
        WHEN found.relkind IS DISTINCT FROM 'r' OR found.relpersistence <> 'p' OR found.shares_rows
            THEN 'it is not an ordinary table'
        WHEN found.relowner <> source_owner THEN format('it belongs to %s', pg_get_userbyid(found.relowner))
        WHEN types IS NULL OR NOT rag_internal.has_own_columns(relation, key_columns, types, 'embedding')
            THEN 'it does not have the columns that the chunk table would have'
        WHEN NOT rag_internal.reading_runs_no_code(relation) THEN 'code is attached to it'
        WHEN found.is_used THEN 'views or foreign keys depend on it'
    END;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.why_no_former_chunks(oid, oid, text[], oid[]) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.why_no_former_chunks(oid, oid, text[], oid[]) IS
'Why a table cannot be the chunk table that a former collection left to this owner, with such a key; NULL where it can. Without key_types, the key''s types may be any of PostgreSQL''s own';

-- Event triggers run as whoever runs the command, under that role's search_path; so everybody may call these, which do
-- what is due and nothing else. Where the library is missing, commands must work all the same.

CREATE FUNCTION rag_internal.drop_leftovers() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'drop_leftovers_wrapper';
-- Also where functions are not for everybody by default: any role's DROP would fail.
GRANT EXECUTE ON FUNCTION rag_internal.drop_leftovers() TO PUBLIC;
COMMENT ON FUNCTION rag_internal.drop_leftovers() IS 'In an event trigger on sql_drop: forgets the collections of dropped tables and drops what is left of them';

CREATE FUNCTION rag_internal.forget_dropped() RETURNS event_trigger
    LANGUAGE plpgsql AS $$
BEGIN
    IF TG_EVENT OPERATOR(pg_catalog.<>) 'sql_drop'::pg_catalog.text THEN
        RAISE EXCEPTION 'rag_internal.forget_dropped() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    PERFORM rag_internal.drop_leftovers();
EXCEPTION WHEN undefined_file THEN
    NULL;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.forget_dropped() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.forget_dropped() IS 'Event trigger: when a source or a chunk table is dropped, so is its collection';
CREATE EVENT TRIGGER rag_forget_dropped ON sql_drop EXECUTE FUNCTION rag_internal.forget_dropped();
ALTER EVENT TRIGGER rag_forget_dropped ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_forget_dropped IS 'pg_ragent: when a source or a chunk table is dropped, so is its collection';

CREATE FUNCTION rag_internal.follow_columns(of_collection integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renamed record;
BEGIN
    FOR renamed IN
        SELECT old.name AS old_name, a.attname::text AS new_name
        FROM rag_internal.collection c
        CROSS JOIN LATERAL jsonb_each_text(c.column_numbers) AS old (name, number)
        JOIN pg_attribute a ON a.attrelid = c.source AND a.attnum = old.number::smallint AND NOT a.attisdropped
        WHERE c.id = of_collection AND a.attname <> old.name
    LOOP
        UPDATE rag_internal.queue SET key = key - renamed.old_name || jsonb_build_object(renamed.new_name, key -> renamed.old_name)
        WHERE collection = of_collection AND key ? renamed.old_name;
        UPDATE rag_internal.queue SET keys = keys - renamed.old_name || jsonb_build_object(renamed.new_name, keys -> renamed.old_name)
        WHERE collection = of_collection AND keys ? renamed.old_name;
        UPDATE rag_internal.failure SET key = key - renamed.old_name || jsonb_build_object(renamed.new_name, key -> renamed.old_name)
        WHERE collection = of_collection AND key ? renamed.old_name;
        UPDATE rag_internal.collection SET
            key_columns = array_replace(key_columns, renamed.old_name, renamed.new_name),
            content_columns = array_replace(content_columns, renamed.old_name, renamed.new_name),
            metadata_columns = array_replace(metadata_columns, renamed.old_name, renamed.new_name),
            title_column = CASE title_column WHEN renamed.old_name THEN renamed.new_name ELSE title_column END,
            link_column = CASE link_column WHEN renamed.old_name THEN renamed.new_name ELSE link_column END,
            column_numbers = column_numbers - renamed.old_name
                || jsonb_build_object(renamed.new_name, column_numbers -> renamed.old_name),
            column_types = column_types - renamed.old_name
                || jsonb_build_object(renamed.new_name, column_types -> renamed.old_name)
        WHERE id = of_collection;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_columns(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_columns(integer) IS 'Where columns of a collection''s source have other names now, names them so in what is registered, queued and given up';

CREATE FUNCTION rag_internal.altered_tables() RETURNS TABLE (relation oid, partitions boolean, triggers boolean, columns text[])
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME', 'altered_tables_wrapper';
REVOKE EXECUTE ON FUNCTION rag_internal.altered_tables() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.altered_tables() IS
'In an event trigger on ddl_command_end: the tables that were created, altered or got a trigger, whether partitions were attached or detached, whether triggers were enabled, disabled, made or renamed, and the columns whose values may be others';

CREATE FUNCTION rag_internal.follow_altered() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    altered record;
    given_away record;
BEGIN
    IF TG_EVENT <> 'ddl_command_end' THEN
        RAISE EXCEPTION 'rag_internal.follow_altered() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    -- New tables are of interest only as parts of others.
    IF TG_TAG IN ('CREATE TABLE', 'CREATE FOREIGN TABLE', 'CREATE SCHEMA')
       AND NOT EXISTS (SELECT FROM pg_event_trigger_ddl_commands() d JOIN pg_inherits i ON i.inhrelid = d.objid
                       WHERE d.classid = 'pg_class'::regclass) THEN
        RETURN;
    END IF;
    -- A table that has another owner now may get that owner's code, and keeps it when the first one gets the table back. What
    -- attaches code is among the tags below. REASSIGN OWNED fires no event trigger; this looks at all collections.
    FOR given_away IN
        SELECT o.chunk_table
        FROM rag_internal.chunk_owner o
        JOIN rag_internal.generation g ON g.chunk_table = o.chunk_table
        JOIN rag_internal.collection c ON c.id = g.collection
        LEFT JOIN pg_class s ON s.oid = c.source
        LEFT JOIN pg_class t ON t.oid = g.chunk_table
        WHERE (s.relowner <> o.owner OR t.relowner <> o.owner)
          AND NOT EXISTS (SELECT FROM rag_internal.changed_hands h WHERE h.chunk_table = o.chunk_table)
    LOOP
        -- Not an UPDATE: several sessions may find the same ones, and none waits for another's transaction.
        INSERT INTO rag_internal.changed_hands (chunk_table) VALUES (given_away.chunk_table);
    END LOOP;
    -- Every backend is to notice when a partition is another's than the whole, whatever of it was altered or is attached to it.
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() d
               CROSS JOIN LATERAL (
                   SELECT d.objid WHERE d.classid = 'pg_class'::regclass
                   UNION ALL
                   SELECT i.indrelid FROM pg_index i WHERE d.classid = 'pg_class'::regclass AND i.indexrelid = d.objid
                   UNION ALL
                   SELECT t.tgrelid FROM pg_trigger t WHERE d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
                   UNION ALL
                   SELECT s.stxrelid FROM pg_statistic_ext s
                   WHERE d.classid = 'pg_statistic_ext'::regclass AND s.oid = d.objid) AS touched (id)
               JOIN pg_class p ON p.oid = touched.id AND p.relispartition
               CROSS JOIN LATERAL pg_partition_ancestors(p.oid) AS a (id)
               JOIN pg_class w ON w.oid = a.id AND w.relowner <> p.relowner
               JOIN rag_internal.collection c ON c.source = a.id) THEN
        UPDATE rag_internal.collection SET id = id WHERE false;
    END IF;
    BEGIN
        FOR altered IN
            SELECT c.id, c.name, c.source, bool_or(t.partitions) AS partitions, bool_or(t.triggers) AS triggers
            FROM rag_internal.altered_tables() t
            CROSS JOIN LATERAL (
                SELECT t.relation UNION SELECT a.relid FROM pg_partition_ancestors(t.relation) a (relid)
                UNION SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = t.relation
                UNION SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = t.relation) AS affected (id)
            JOIN rag_internal.collection c ON c.source = affected.id
            GROUP BY c.id
        LOOP
            -- Whatever goes wrong here, the command of somebody who alters a table is carried out.
            BEGIN
                PERFORM rag_internal.follow_columns(altered.id);
                IF altered.partitions THEN
                    PERFORM rag_internal.restore_capture(altered.id, 'partitions');
                END IF;
                IF altered.triggers THEN
                    PERFORM rag_internal.follow_capture(altered.id, TG_TAG);
                END IF;
                -- Rows came or went with a partition, or the source itself has become a part of another table, which the worker reports.
                IF altered.partitions OR EXISTS (
                       SELECT FROM pg_class r JOIN pg_inherits i ON r.oid IN (i.inhrelid, i.inhparent)
                       WHERE r.oid = altered.source AND r.relkind <> 'p') THEN
                    INSERT INTO rag_internal.queue (collection, key) VALUES (altered.id, NULL);
                END IF;
            EXCEPTION WHEN OTHERS THEN
                RAISE WARNING 'collection "%" does not follow what was done to its source: %', altered.name, SQLERRM
                    USING HINT = format('SELECT rag.refresh(%L) does it later.', altered.name);
            END;
        END LOOP;
    EXCEPTION WHEN undefined_file THEN
        -- Where the library is missing, commands must work all the same.
        NULL;
    END;
    -- What the worker waits for may be there now: a restore makes keys and triggers last.
    IF TG_TAG IN ('ALTER TABLE', 'CREATE TRIGGER')
       AND EXISTS (SELECT FROM pg_event_trigger_ddl_commands() d
                   LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
                   CROSS JOIN LATERAL (VALUES (coalesce(t.tgrelid, d.objid))) AS touched (id)
                   WHERE EXISTS (SELECT FROM rag_internal.collection c WHERE c.source = touched.id)
                      OR EXISTS (SELECT FROM rag_internal.generation g WHERE g.chunk_table = touched.id)) THEN
        BEGIN
            PERFORM rag_internal.wake_at_commit();
        EXCEPTION WHEN undefined_file THEN
            -- Where the library is missing, commands must work all the same.
            NULL;
        END;
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_altered() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_altered() IS 'Event trigger: when a source is altered (columns renamed, partitions attached, triggers switched off and on), its collection follows; when it or a chunk table gets another owner, the collection waits for rag.refresh';
CREATE EVENT TRIGGER rag_follow_altered ON ddl_command_end
    WHEN TAG IN ('ALTER TABLE', 'CREATE TRIGGER', 'ALTER TRIGGER', 'CREATE RULE', 'CREATE POLICY', 'ALTER POLICY', 'CREATE INDEX', 'CREATE STATISTICS',
                 'CREATE TABLE', 'CREATE FOREIGN TABLE', 'CREATE SCHEMA')
    EXECUTE FUNCTION rag_internal.follow_altered();
-- What is done under session_replication_role = replica is done to the table, too.
ALTER EVENT TRIGGER rag_follow_altered ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_follow_altered IS 'pg_ragent: when a source is altered, its collection follows';

-- Grants are noted here and made to follow by the worker, a second or so later: whoever grants in the statement of somebody else
-- changes rows of the catalog that others change at the same time (a parallel restore does), and one of them fails.
CREATE TABLE rag_internal.grants_due (
    id       bigint GENERATED ALWAYS AS IDENTITY,
    noted_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE rag_internal.grants_due IS 'Signs that somebody granted or revoked something on a table; the worker lets the grants of chunk tables follow and removes them';
COMMENT ON COLUMN rag_internal.grants_due.id IS 'Number of the sign';
COMMENT ON COLUMN rag_internal.grants_due.noted_at IS 'When it was set';
COMMENT ON SEQUENCE rag_internal.grants_due_id_seq IS 'Numbers of signs';
CREATE TRIGGER wake_worker AFTER INSERT ON rag_internal.grants_due FOR EACH STATEMENT EXECUTE FUNCTION rag_internal.wake_worker();
ALTER TABLE rag_internal.grants_due ENABLE ALWAYS TRIGGER wake_worker;
COMMENT ON TRIGGER wake_worker ON rag_internal.grants_due IS 'Wakes the worker at commit';

CREATE TABLE rag_internal.grant_failure (
    collection     integer PRIMARY KEY,
    attempts       integer NOT NULL,
    retry_at       timestamptz NOT NULL,
    error          text NOT NULL,
    error_hint     text,
    error_sqlstate text NOT NULL,
    failed_at      timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
COMMENT ON TABLE rag_internal.grant_failure IS 'Collections whose chunk table does not have the grants of the source, since making them failed; tried again at retry_at';
COMMENT ON COLUMN rag_internal.grant_failure.collection IS 'rag_internal.collection.id';
COMMENT ON COLUMN rag_internal.grant_failure.attempts IS 'Attempts that failed, one after the other';
COMMENT ON COLUMN rag_internal.grant_failure.retry_at IS 'Not to be tried before';
COMMENT ON COLUMN rag_internal.grant_failure.error IS 'Why the last one failed';
COMMENT ON COLUMN rag_internal.grant_failure.error_hint IS 'What to do about it';
COMMENT ON COLUMN rag_internal.grant_failure.error_sqlstate IS 'Its SQLSTATE';
COMMENT ON COLUMN rag_internal.grant_failure.failed_at IS 'When that was';

-- It only adds a row, which needs nobody's leave and waits for nobody.
CREATE FUNCTION rag_internal.follow_grants() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_EVENT <> 'ddl_command_end' THEN
        RAISE EXCEPTION 'rag_internal.follow_grants() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() d WHERE d.object_type = 'TABLE') THEN
        INSERT INTO rag_internal.grants_due DEFAULT VALUES;
    END IF;
EXCEPTION WHEN undefined_file THEN
    -- Where the library is missing, commands must work all the same.
    NULL;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_grants() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_grants() IS 'Event trigger: after GRANT and REVOKE on tables, has the worker make chunk tables readable by those who may read the source';
CREATE EVENT TRIGGER rag_follow_grants ON ddl_command_end
    WHEN TAG IN ('GRANT', 'REVOKE') EXECUTE FUNCTION rag_internal.follow_grants();
ALTER EVENT TRIGGER rag_follow_grants ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_follow_grants IS 'pg_ragent: after GRANT and REVOKE, has the worker make chunk tables readable by those who may read the source';

-- Types of columns. What a changed type makes of a row's content, title or key is found by a comparison; the key of the chunk
-- table is given the source's new type before that.

CREATE FUNCTION rag_internal.key_to_sync(wanted integer)
    RETURNS TABLE (name text, type text, value text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT k.name, format_type(s.atttypid, s.atttypmod) ||
               CASE WHEN s.attcollation = st.typcollation THEN '' ELSE ' COLLATE ' || s.attcollation::regcollation END,
           -- Where PostgreSQL has no cast that it would use unasked, the new value is what the old one's text says.
           CASE WHEN s.atttypid = t.atttypid
                  OR EXISTS (SELECT FROM pg_cast x WHERE x.castsource = t.atttypid AND x.casttarget = s.atttypid AND x.castcontext <> 'e')
                THEN NULL
                ELSE format('rag_internal.plain_text(%I)::%s', k.name, format_type(s.atttypid, s.atttypmod)) END
    FROM rag_internal.collection c
    JOIN rag_internal.generation g ON g.collection = c.id AND g.state = 'serving' AND NOT g.is_adopted
    CROSS JOIN LATERAL ROWS FROM (unnest(c.key_columns), unnest(g.chunk_key_columns)) WITH ORDINALITY AS k (source_name, name, place)
    JOIN pg_attribute s ON s.attrelid = c.source AND s.attname = k.source_name AND NOT s.attisdropped
    JOIN pg_type st ON st.oid = s.atttypid
    JOIN pg_attribute t ON t.attrelid = g.chunk_table AND t.attname = k.name AND NOT t.attisdropped
    WHERE c.id = wanted
      AND (s.atttypid <> t.atttypid OR s.atttypmod <> t.atttypmod OR s.attcollation <> t.attcollation)
    ORDER BY k.place;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.key_to_sync(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.key_to_sync(integer) IS
'Key columns of a collection''s chunk table that are of another type or collation than the source''s: which type they are to have, and the new value where a cast does not say it';

CREATE FUNCTION rag_internal.altered_collections() RETURNS TABLE (id integer)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM rag_internal.collection) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE command AS MATERIALIZED (
        SELECT d.classid, d.objid FROM pg_event_trigger_ddl_commands() d),
    -- Types that were altered, and those made of them: domains, arrays, rows, ranges.
    altered (type) AS (
        SELECT t.oid FROM command d
        JOIN pg_type t ON (d.classid = 'pg_type'::regclass AND t.oid = d.objid) OR (d.classid = 'pg_class'::regclass AND t.typrelid = d.objid)
        UNION
        SELECT m.id FROM altered a CROSS JOIN LATERAL (
            SELECT t.oid FROM pg_type t WHERE t.typbasetype = a.type OR t.typelem = a.type
            UNION ALL
            SELECT r.reltype FROM pg_attribute f JOIN pg_class r ON r.oid = f.attrelid
            WHERE f.atttypid = a.type AND NOT f.attisdropped AND r.reltype <> 0
            UNION ALL
            SELECT g.rngtypid FROM pg_range g WHERE g.rngsubtype = a.type
            UNION ALL
            SELECT g.rngmultitypid FROM pg_range g WHERE g.rngsubtype = a.type) AS m (id)),
    changed AS (
        -- Renamed columns have been followed by now: one with another number was dropped and added again. What is not there keeps
        -- its number, by which rag.refresh finds it under another name.
        UPDATE rag_internal.collection c SET column_types = rag_internal.used_types(c),
               column_numbers = c.column_numbers || rag_internal.used_numbers(c)
        WHERE c.source IN (SELECT d.objid FROM command d WHERE d.classid = 'pg_class'::regclass)
          AND (c.column_types <> rag_internal.used_types(c) OR NOT c.column_numbers @> rag_internal.used_numbers(c))
        RETURNING c.id)
    SELECT n.id FROM changed n
    UNION
    SELECT c.id FROM rag_internal.collection c
    CROSS JOIN LATERAL unnest(c.key_columns || c.content_columns || c.title_column) AS u (name)
    JOIN pg_attribute a ON a.attrelid = c.source AND a.attname = u.name AND NOT a.attisdropped
    WHERE a.atttypid IN (SELECT w.type FROM altered w)
       -- ALTER COLUMN ... TYPE ... USING makes other values also where the type stays.
       OR EXISTS (SELECT FROM rag_internal.altered_tables() t WHERE t.relation = c.source AND u.name = ANY (t.columns));
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.altered_collections() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.altered_collections() IS
'In an event trigger on ddl_command_end: the collections whose columns have other types or values now, were added again, or are of a type that was altered; notes the new types and numbers';

CREATE FUNCTION rag_internal.sync_types() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'sync_types_wrapper';
GRANT EXECUTE ON FUNCTION rag_internal.sync_types() TO PUBLIC;
COMMENT ON FUNCTION rag_internal.sync_types() IS
'In an event trigger on ddl_command_end: gives the keys of chunk tables the types that their sources'' have now, and queues comparisons of the collections';

CREATE FUNCTION rag_internal.follow_types() RETURNS event_trigger
    LANGUAGE plpgsql AS $$
BEGIN
    IF TG_EVENT OPERATOR(pg_catalog.<>) 'ddl_command_end'::pg_catalog.text THEN
        RAISE EXCEPTION 'rag_internal.follow_types() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    PERFORM rag_internal.sync_types();
EXCEPTION WHEN undefined_file THEN
    NULL;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_types() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_types() IS 'Event trigger: when a column that a collection uses, or its type, is altered, the chunk table follows and what changed is embedded again';
CREATE EVENT TRIGGER rag_follow_types ON ddl_command_end
    WHEN TAG IN ('ALTER TABLE', 'ALTER TYPE', 'ALTER DOMAIN') EXECUTE FUNCTION rag_internal.follow_types();
-- As above: what is done under session_replication_role = replica is done to the table, too.
ALTER EVENT TRIGGER rag_follow_types ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_follow_types IS 'pg_ragent: when a column that a collection uses, or its type, is altered, the chunk table follows';
