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
COMMENT ON FUNCTION rag_internal.provider_validator(text[], oid) IS
'Checks the options of servers and user mappings of the wrapper rag_provider; called by PostgreSQL at CREATE and ALTER';

CREATE FOREIGN DATA WRAPPER rag_provider VALIDATOR rag_internal.provider_validator;
COMMENT ON FOREIGN DATA WRAPPER rag_provider IS
'Model providers of pg_ragent. CREATE SERVER ... FOREIGN DATA WRAPPER rag_provider OPTIONS (api ''openai'', base_url ''https://.../v1'')';

CREATE SERVER local FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'local');
COMMENT ON SERVER local IS
'Models that run in the database server itself: sentence encoders from rag.model_dir, and the extractive answerer';
GRANT USAGE ON FOREIGN SERVER local TO PUBLIC;
-- Embeddings.

-- For the type vector.
SELECT pg_catalog.set_config('search_path', pg_catalog.format('@extschema@, %I, pg_temp', n.nspname), true)
FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'vector'::pg_catalog.name;

CREATE FUNCTION embed(input text, model text DEFAULT NULL) RETURNS vector
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'embed_wrapper';
COMMENT ON FUNCTION embed(text, text) IS
'The vector of a text. model: ''server/model'', default rag.embedding_model. NULL gives NULL; blank text is an error';

CREATE FUNCTION embed(inputs text[], model text DEFAULT NULL) RETURNS vector[]
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'embed_array_wrapper';
COMMENT ON FUNCTION embed(text[], text) IS
'The vectors of several texts, in their order, asked for in as few requests as the provider allows. A NULL element gives a NULL element';

SET LOCAL search_path = @extschema@, pg_temp;
