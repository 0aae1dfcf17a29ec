-- Collections: registering tables, and following what happens to them.

CREATE VIEW collections WITH (security_barrier) AS
    SELECT c.name, c.source, c.content_columns AS content, c.title_column AS title, c.link_column AS link,
           c.metadata_columns AS metadata, c.key_columns, g.chunk_table, g.model AS embedding_model, g.dimensions,
           g.chunk_tokens, g.chunk_overlap, c.description,
           pg_catalog.pg_get_userbyid(r.relowner) AS owner, c.created_at
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

CREATE FUNCTION create_collection(
    name text, source regclass, content text[],
    title text DEFAULT NULL, link text DEFAULT NULL, metadata text[] DEFAULT NULL,
    embedding_model text DEFAULT NULL, dimensions integer DEFAULT NULL,
    chunk_tokens integer DEFAULT NULL, chunk_overlap integer DEFAULT NULL,
    description text DEFAULT NULL, chunk_table text DEFAULT NULL) RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'create_collection_wrapper';
COMMENT ON FUNCTION create_collection(text, regclass, text[], text, text, text[], text, integer, integer, integer, text, text) IS
'Registers a table for retrieval: creates its chunk table, triggers that note changes, and queues its rows for embedding. Returns the name';

CREATE FUNCTION drop_collection(name text, if_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'drop_collection_wrapper';
COMMENT ON FUNCTION drop_collection(text, boolean) IS
'Removes a collection: its chunk table, its triggers and what is queued. The source table stays as it is';

CREATE FUNCTION rag_internal.sync_grants(collection_id integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    c rag_internal.collection;
    grantee oid;
    readers oid[];
    chunks record;
BEGIN
    SELECT * INTO c FROM rag_internal.collection WHERE id = collection_id;
    IF NOT EXISTS (SELECT FROM pg_class WHERE oid = c.source) THEN
        RETURN;
    END IF;
    -- Who was granted SELECT on the source, or on each of its key and content columns; 0 is PUBLIC.
    readers := ARRAY(
        SELECT a.grantee FROM pg_class r, aclexplode(r.relacl) a
        WHERE r.oid = c.source AND a.privilege_type = 'SELECT' AND a.grantee <> r.relowner
        UNION
        SELECT a.grantee FROM pg_attribute col, aclexplode(col.attacl) a
        WHERE col.attrelid = c.source AND NOT col.attisdropped AND a.privilege_type = 'SELECT'
          AND col.attname = ANY (c.key_columns || c.content_columns)
        GROUP BY a.grantee
        HAVING count(DISTINCT col.attname) = (SELECT count(DISTINCT u) FROM unnest(c.key_columns || c.content_columns) u));
    FOR chunks IN
        SELECT r.oid::regclass AS name, ARRAY(
            SELECT DISTINCT a.grantee FROM aclexplode(r.relacl) a
            WHERE a.privilege_type = 'SELECT' AND a.grantee <> r.relowner) AS holders
        FROM rag_internal.generation g JOIN pg_class r ON r.oid = g.chunk_table
        WHERE g.collection = c.id AND NOT g.is_adopted
    LOOP
        FOREACH grantee IN ARRAY readers LOOP
            IF grantee <> ALL (chunks.holders) THEN
                EXECUTE format('GRANT SELECT ON %s TO %s', chunks.name,
                               CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END);
            END IF;
        END LOOP;
        FOREACH grantee IN ARRAY chunks.holders LOOP
            IF grantee <> ALL (readers) THEN
                EXECUTE format('REVOKE SELECT ON %s FROM %s CASCADE', chunks.name,
                               CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END);
            END IF;
        END LOOP;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.sync_grants(integer) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.sync_grants(integer) IS
'Grants SELECT on a chunk table to those who were granted it on the source, and to nobody else; its policy then decides row by row';

CREATE FUNCTION rag_internal.forget_dropped() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    gone record;
    leftover record;
BEGIN
    -- The tables of a collection: its source, and the chunk tables of its generations.
    FOR gone IN
        SELECT DISTINCT c.id, c.source
        FROM pg_event_trigger_dropped_objects() d
        JOIN rag_internal.collection c
          ON d.objid = c.source
          OR EXISTS (SELECT FROM rag_internal.generation g WHERE g.collection = c.id AND g.chunk_table = d.objid)
        WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0
    LOOP
        DELETE FROM rag_internal.collection WHERE id = gone.id;
        DELETE FROM rag_internal.queue WHERE collection = gone.id;
        DELETE FROM rag_internal.failure WHERE collection = gone.id;
        DELETE FROM rag_internal.pause WHERE collection = gone.id;
        FOR leftover IN
            WITH generations AS (DELETE FROM rag_internal.generation WHERE collection = gone.id RETURNING *)
            SELECT g.chunk_table FROM generations g
            WHERE NOT g.is_adopted AND EXISTS (SELECT FROM pg_class WHERE oid = g.chunk_table)
        LOOP
            EXECUTE format('DROP TABLE %s CASCADE', leftover.chunk_table);
        END LOOP;
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
REVOKE EXECUTE ON FUNCTION rag_internal.forget_dropped() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.forget_dropped() IS 'Event trigger: when a source or a chunk table is dropped, so is its collection';
CREATE EVENT TRIGGER rag_forget_dropped ON sql_drop EXECUTE FUNCTION rag_internal.forget_dropped();
COMMENT ON EVENT TRIGGER rag_forget_dropped IS 'pg_ragent: when a source or a chunk table is dropped, so is its collection';

CREATE FUNCTION rag_internal.follow_altered() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    altered record;
    renamed record;
    chunks record;
BEGIN
    FOR altered IN
        SELECT DISTINCT c.id, c.source, r.relkind, r.relowner
        FROM pg_event_trigger_ddl_commands() d
        JOIN rag_internal.collection c
          ON c.source = d.objid
          OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.source AND i.inhparent = d.objid)
        JOIN pg_class r ON r.oid = c.source
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
            UPDATE rag_internal.queue SET keys = keys - renamed.old_name || jsonb_build_object(renamed.new_name, keys -> renamed.old_name)
            WHERE collection = altered.id AND keys ? renamed.old_name;
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
        -- Chunk tables belong to the source's owner. One that carries code of its former owner is not handed on: the
        -- collection is then blocked, and rag.status says so.
        FOR chunks IN
            SELECT g.chunk_table AS name
            FROM rag_internal.generation g JOIN pg_class r ON r.oid = g.chunk_table
            WHERE g.collection = altered.id AND r.relowner <> altered.relowner AND rag_internal.writing_runs_no_code(g.chunk_table)
        LOOP
            EXECUTE format('ALTER TABLE %s OWNER TO %I', chunks.name, pg_get_userbyid(altered.relowner));
        END LOOP;
        -- Partitions may have been attached or detached, or the source itself have become a part of another table, which
        -- the worker then reports.
        IF altered.relkind = 'p' OR EXISTS (SELECT FROM pg_inherits i WHERE altered.source IN (i.inhrelid, i.inhparent)) THEN
            INSERT INTO rag_internal.queue (collection, key) VALUES (altered.id, NULL);
        END IF;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_altered() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_altered() IS 'Event trigger: when a source is altered (columns renamed, owner changed, partitions attached), its collection follows';
CREATE EVENT TRIGGER rag_follow_altered ON ddl_command_end
    WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION rag_internal.follow_altered();
COMMENT ON EVENT TRIGGER rag_follow_altered IS 'pg_ragent: when a source is altered, its collection follows';

CREATE FUNCTION rag_internal.follow_grants() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM rag_internal.sync_grants(c.id) FROM rag_internal.collection c;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_grants() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_grants() IS 'Event trigger: after GRANT and REVOKE, chunk tables are readable by those who may read the source';
CREATE EVENT TRIGGER rag_follow_grants ON ddl_command_end
    WHEN TAG IN ('GRANT', 'REVOKE') EXECUTE FUNCTION rag_internal.follow_grants();
COMMENT ON EVENT TRIGGER rag_follow_grants IS 'pg_ragent: after GRANT and REVOKE, chunk tables are readable by those who may read the source';
