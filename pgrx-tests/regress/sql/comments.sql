-- Every object that a person meets has a comment.
-- Functions
SELECT p.oid::regprocedure AS function FROM pg_proc p
 WHERE p.pronamespace = 'rag'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL ORDER BY 1;
-- Tables and views
SELECT c.oid::regclass AS relation FROM pg_class c
 WHERE c.relnamespace = 'rag'::regnamespace AND c.relkind IN ('r', 'v', 'p', 'm')
   AND obj_description(c.oid, 'pg_class') IS NULL ORDER BY 1;
-- Their columns
SELECT a.attrelid::regclass AS relation, a.attname AS "column" FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE c.relnamespace = 'rag'::regnamespace AND c.relkind IN ('r', 'v', 'p', 'm') AND a.attnum > 0 AND NOT a.attisdropped
   AND col_description(a.attrelid, a.attnum) IS NULL ORDER BY 1, 2;
-- Types of the schema itself
SELECT t.typname AS type FROM pg_type t
 WHERE t.typnamespace = 'rag'::regnamespace AND t.typtype IN ('e', 'd') AND obj_description(t.oid, 'pg_type') IS NULL;
-- The schema, the extension, the wrapper, the server
SELECT obj_description('rag'::regnamespace, 'pg_namespace') IS NOT NULL AS schema,
       (SELECT obj_description(oid, 'pg_extension') IS NOT NULL FROM pg_extension WHERE extname = 'pg_ragent') AS extension,
       (SELECT obj_description(oid, 'pg_foreign_data_wrapper') IS NOT NULL FROM pg_foreign_data_wrapper
         WHERE fdwname = 'rag_provider') AS wrapper,
       (SELECT obj_description(oid, 'pg_foreign_server') IS NOT NULL FROM pg_foreign_server WHERE srvname = 'local') AS server;
-- Settings: a description that is a sentence's worth
SELECT name FROM pg_settings WHERE name LIKE 'rag.%' AND (short_desc IS NULL OR length(short_desc) < 20) ORDER BY 1;
SELECT count(*) >= 4 AS settings FROM pg_settings WHERE name LIKE 'rag.%';
