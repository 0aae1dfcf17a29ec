-- Retrieval.

CREATE FUNCTION search(query text, collection text DEFAULT NULL, k integer DEFAULT 10, min_score double precision DEFAULT NULL)
    RETURNS TABLE (collection text, key jsonb, chunk integer, content text, title text, link text,
                   metadata jsonb, score double precision)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10
    AS 'MODULE_PATHNAME', 'search_text_wrapper';
COMMENT ON FUNCTION search(text, text, integer, double precision) IS
'The k chunks nearest in meaning to a text, of one collection or of all the current role may read whose owners it trusts; only of rows it may SELECT now';

-- The policy of each chunk table, which is asked as whoever reads it; so everybody may call it. It says no more than that role
-- could SELECT. Not in parallel: policies of the source may do what workers cannot.
CREATE FUNCTION rag_internal.shows_row(chunk_table oid, source_hash bigint, VARIADIC key "any") RETURNS boolean
    LANGUAGE c STABLE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'shows_row_wrapper';
GRANT EXECUTE ON FUNCTION rag_internal.shows_row(oid, bigint, "any") TO PUBLIC;
COMMENT ON FUNCTION rag_internal.shows_row(oid, bigint, "any") IS
'Whether the current role may SELECT the source row that a chunk was made of, now, and its title and content are still those of this hash';

-- For the type vector.
SELECT pg_catalog.set_config('search_path', pg_catalog.format('@extschema@, %I, pg_temp', n.nspname), true)
FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'vector'::pg_catalog.name;

CREATE FUNCTION search(query vector, collection text DEFAULT NULL, k integer DEFAULT 10, min_score double precision DEFAULT NULL)
    RETURNS TABLE (collection text, key jsonb, chunk integer, content text, title text, link text,
                   metadata jsonb, score double precision)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10
    AS 'MODULE_PATHNAME', 'search_vector_wrapper';
COMMENT ON FUNCTION search(vector, text, integer, double precision) IS
'As rag.search with a text, for a vector that exists already; of all collections, those of its length are searched';

SET LOCAL search_path = @extschema@, pg_temp;
