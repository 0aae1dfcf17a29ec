-- Which names this script means.
--
-- PostgreSQL runs it under a search_path that also holds the schema of pgvector, where others may be allowed to create. An
-- operator or function of theirs whose argument types fit better than those of PostgreSQL's own would be taken for it, and stay
-- in our views, checks and policies. So only schema rag is left in the path, after a look that nobody else can have put
-- anything there. What is created without a schema goes there, and operators and functions are PostgreSQL's own. The type
-- vector alone is named by pgvector's schema, in the signatures of few functions, and nothing else while that is in the path.
--
-- Bodies of functions have no such path when they run: each has a SET search_path, or names everything with its schema.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace n
               JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
               WHERE n.nspname OPERATOR(pg_catalog.=) 'rag'::pg_catalog.name
                 AND (NOT r.rolsuper
                      OR EXISTS (SELECT FROM pg_catalog.aclexplode(n.nspacl) a
                                 WHERE a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'::pg_catalog.text
                                   AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner)
                      OR EXISTS (SELECT FROM pg_catalog.pg_operator o WHERE o.oprnamespace OPERATOR(pg_catalog.=) n.oid)
                      OR EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.pronamespace OPERATOR(pg_catalog.=) n.oid)
                      OR EXISTS (SELECT FROM pg_catalog.pg_type t WHERE t.typnamespace OPERATOR(pg_catalog.=) n.oid))) THEN
        RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
            MESSAGE = 'schema "rag" exists and is not empty, or others than superusers may create in it',
            HINT = 'pg_ragent makes it. See what is in it, then DROP SCHEMA rag.';
    END IF;
END $$;
SET LOCAL search_path = @extschema@, pg_temp;

-- Text goes to models as UTF-8, and what they answer can hold any character.
DO $$
BEGIN
    IF pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.<>) 'UTF8'::pg_catalog.name THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = pg_catalog.format('database encoding %s is not supported by pg_ragent', pg_catalog.getdatabaseencoding()),
            HINT = 'Create the extension in a database with ENCODING ''UTF8''.';
    END IF;
END $$;

-- Providers: places that run models, as foreign servers.

COMMENT ON SCHEMA @extschema@ IS
'pg_ragent: agentic retrieval-augmented generation over your tables. Start with rag.create_collection and rag.ask.';
GRANT USAGE ON SCHEMA @extschema@ TO PUBLIC;

-- What nobody calls by name: tables, triggers and helpers of the extension itself.
CREATE SCHEMA rag_internal;
COMMENT ON SCHEMA rag_internal IS 'Tables, triggers and functions that pg_ragent itself uses; what people call is in schema rag';
-- Capture writes to the queue as the role that writes the row, and views and policies call functions as their reader.
GRANT USAGE ON SCHEMA rag_internal TO PUBLIC;

CREATE FUNCTION rag_internal.provider_validator(options text[], catalog oid) RETURNS void
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'provider_validator_wrapper';
-- PostgreSQL calls it for whoever sets options, and asks nobody for EXECUTE.
REVOKE EXECUTE ON FUNCTION rag_internal.provider_validator(text[], oid) FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.provider_validator(text[], oid) IS
'Checks the options of servers and user mappings of the wrapper rag_provider; called by PostgreSQL at CREATE and ALTER';

CREATE FOREIGN DATA WRAPPER rag_provider VALIDATOR rag_internal.provider_validator;
COMMENT ON FOREIGN DATA WRAPPER rag_provider IS
'Model providers of pg_ragent. CREATE SERVER ... FOREIGN DATA WRAPPER rag_provider OPTIONS (api ''openai'', base_url ''https://.../v1'')';

CREATE SERVER local FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'local');
COMMENT ON SERVER local IS
'Models that run in the database server itself: sentence encoders from rag.model_dir, and the extractive answerer';
GRANT USAGE ON FOREIGN SERVER local TO PUBLIC;

-- Where requests go and which files and variables keys are read from, only superusers say (base_url, api_key_file, api_key_env).
-- The validator sees the options of one object, and neither which one it is nor who set them. So what a superuser set is noted
-- here, object by object, when the statement that set it is done; such an option counts only as it stands here: a statement of
-- anybody else that leaves another one behind is refused, and so is each use of one that came in by another way (event triggers
-- were off, say). It is not dumped: a superuser's restore sets the options anew.
CREATE TABLE rag_internal.vouched (
    cluster    bigint NOT NULL,
    is_mapping boolean NOT NULL,
    object     oid NOT NULL,
    server     name NOT NULL,
    mapped     oid,
    options    text[] NOT NULL,
    PRIMARY KEY (cluster, is_mapping, object),
    CONSTRAINT mapped CHECK (is_mapping OPERATOR(pg_catalog.=) (mapped IS NOT NULL))
);
COMMENT ON TABLE rag_internal.vouched IS 'Options of model providers that only superusers may set, as superusers set them';
COMMENT ON COLUMN rag_internal.vouched.cluster IS 'System identifier of the cluster that object is an OID of; pg_upgrade gives another, and then server and mapped say what is meant';
COMMENT ON COLUMN rag_internal.vouched.is_mapping IS 'Whether object is a user mapping or a server';
COMMENT ON COLUMN rag_internal.vouched.object IS 'OID of the foreign server or the user mapping';
COMMENT ON COLUMN rag_internal.vouched.server IS 'Name of the server, or of the mapping''s server';
COMMENT ON COLUMN rag_internal.vouched.mapped IS 'OID of the mapped role, 0 for PUBLIC; NULL for a server';
COMMENT ON COLUMN rag_internal.vouched.options IS 'The options, as name=value';

CREATE FUNCTION rag_internal.check_options(is_mapping boolean, object oid) RETURNS void
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'check_options_wrapper';
COMMENT ON FUNCTION rag_internal.check_options(boolean, oid) IS
'Vouches for the present options of a model provider or of a user mapping of one, if the current role is a superuser; else refuses those that nobody vouched for';

-- As whoever runs the statement, since it depends on who that is.
CREATE FUNCTION rag_internal.check_changed_options() RETURNS event_trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_EVENT <> 'ddl_command_end' THEN
        RAISE EXCEPTION 'rag_internal.check_changed_options() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    PERFORM rag_internal.check_options(m.umid IS NOT NULL, d.objid)
    FROM pg_event_trigger_ddl_commands() d
    LEFT JOIN pg_user_mappings m ON d.classid = 'pg_user_mapping'::regclass AND m.umid = d.objid
    JOIN pg_foreign_server s
      ON s.oid = CASE WHEN d.classid = 'pg_foreign_server'::regclass THEN d.objid ELSE m.srvid END
    JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
    WHERE w.fdwname = 'rag_provider';
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.check_changed_options() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.check_changed_options() IS
'Event trigger: notes options of model providers that a superuser set, and refuses those that nobody else may set';
CREATE EVENT TRIGGER rag_check_options ON ddl_command_end
    WHEN TAG IN ('CREATE SERVER', 'ALTER SERVER', 'CREATE USER MAPPING', 'ALTER USER MAPPING')
    EXECUTE FUNCTION rag_internal.check_changed_options();
ALTER EVENT TRIGGER rag_check_options ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_check_options IS 'pg_ragent: options of model providers that only superusers may set';

CREATE FUNCTION rag_internal.follow_providers() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here bigint := (SELECT system_identifier FROM pg_control_system());
BEGIN
    IF TG_EVENT = 'ddl_command_start' THEN
        -- What pg_upgrade brought goes by names until something is about to change them.
        UPDATE rag_internal.vouched v SET cluster = here, object = now.object
        FROM (SELECT s.srvname, NULL::oid AS mapped, s.oid AS object FROM pg_foreign_server s
              UNION ALL
              SELECT s.srvname, m.umuser, m.oid FROM pg_user_mapping m JOIN pg_foreign_server s ON s.oid = m.umserver) AS now
        WHERE v.cluster <> here AND v.server = now.srvname AND v.mapped IS NOT DISTINCT FROM now.mapped
          AND NOT EXISTS (SELECT FROM rag_internal.vouched o
                          WHERE o.cluster = here AND o.is_mapping = v.is_mapping AND o.object = now.object);
        RETURN;
    ELSIF TG_EVENT <> 'ddl_command_end' THEN
        RAISE EXCEPTION 'rag_internal.follow_providers() is not for the event %', TG_EVENT
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this event trigger.';
    END IF;
    DELETE FROM rag_internal.vouched v
    WHERE v.cluster <> here
       OR NOT v.is_mapping AND NOT EXISTS (SELECT FROM pg_foreign_server s WHERE s.oid = v.object)
       OR v.is_mapping AND NOT EXISTS (SELECT FROM pg_user_mapping m WHERE m.oid = v.object);
    UPDATE rag_internal.vouched v SET server = s.srvname
    FROM pg_foreign_server s LEFT JOIN pg_user_mapping m ON m.umserver = s.oid
    WHERE v.object = CASE WHEN v.is_mapping THEN m.oid ELSE s.oid END AND v.server <> s.srvname;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.follow_providers() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.follow_providers() IS
'Event trigger: what superusers vouched for follows its server''s name and goes with its server or mapping';
CREATE EVENT TRIGGER rag_before_providers ON ddl_command_start
    WHEN TAG IN ('CREATE SERVER', 'ALTER SERVER', 'DROP SERVER', 'CREATE USER MAPPING', 'ALTER USER MAPPING', 'DROP USER MAPPING')
    EXECUTE FUNCTION rag_internal.follow_providers();
ALTER EVENT TRIGGER rag_before_providers ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_before_providers IS 'pg_ragent: what superusers vouched for is found again after pg_upgrade';
CREATE EVENT TRIGGER rag_follow_providers ON ddl_command_end
    WHEN TAG IN ('ALTER SERVER', 'DROP SERVER', 'DROP USER MAPPING', 'DROP OWNED')
    EXECUTE FUNCTION rag_internal.follow_providers();
ALTER EVENT TRIGGER rag_follow_providers ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER rag_follow_providers IS 'pg_ragent: what superusers vouched for follows its server''s name and goes with it';
-- Embeddings.

-- For the type vector.
SELECT pg_catalog.set_config('search_path', pg_catalog.format('@extschema@, %I, pg_temp', n.nspname), true)
FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'vector'::pg_catalog.name;

CREATE FUNCTION embed(input text, model text DEFAULT NULL, input_type text DEFAULT 'query') RETURNS vector
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'embed_wrapper';
COMMENT ON FUNCTION embed(text, text, text) IS
'The vector of a text. model: ''server/model'', default rag.embedding_model. input_type: ''query'' for what is looked for, ''document'' for what is to be found; some models of server local tell them apart. NULL gives NULL; blank text is an error';

CREATE FUNCTION embed(inputs text[], model text DEFAULT NULL, input_type text DEFAULT 'query') RETURNS vector[]
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'embed_array_wrapper';
COMMENT ON FUNCTION embed(text[], text, text) IS
'The vectors of several texts, in their order, asked for in as few requests as the provider allows. A NULL element gives a NULL element';

SET LOCAL search_path = @extschema@, pg_temp;
