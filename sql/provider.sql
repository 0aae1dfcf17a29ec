-- Text goes to models as UTF-8, and what they answer can hold any character.
DO $$
BEGIN
    IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = pg_catalog.format('database encoding %s is not supported by pg_ragent', pg_catalog.getdatabaseencoding()),
            HINT = 'Create the extension in a database with ENCODING ''UTF8''.';
    END IF;
END $$;

-- Providers: places that run models, as foreign servers.

COMMENT ON SCHEMA @extschema@ IS
'pg_ragent: agentic retrieval-augmented generation over your tables. Start with rag.create_collection and rag.ask.';
GRANT USAGE ON SCHEMA @extschema@ TO PUBLIC;

CREATE FUNCTION provider_validator(options text[], catalog oid) RETURNS void
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'provider_validator_wrapper';
COMMENT ON FUNCTION provider_validator(text[], oid) IS
'Checks the options of servers and user mappings of the wrapper rag_provider; called by PostgreSQL at CREATE and ALTER';

CREATE FOREIGN DATA WRAPPER rag_provider VALIDATOR provider_validator;
COMMENT ON FOREIGN DATA WRAPPER rag_provider IS
'Model providers of pg_ragent. CREATE SERVER ... FOREIGN DATA WRAPPER rag_provider OPTIONS (api ''openai'', base_url ''https://.../v1'')';

CREATE SERVER local FOREIGN DATA WRAPPER rag_provider OPTIONS (api 'local');
COMMENT ON SERVER local IS
'Models that run in the database server itself: sentence encoders from rag.model_dir, and the extractive answerer';
GRANT USAGE ON FOREIGN SERVER local TO PUBLIC;
