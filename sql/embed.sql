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
