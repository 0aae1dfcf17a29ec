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
-- Embeddings.

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
