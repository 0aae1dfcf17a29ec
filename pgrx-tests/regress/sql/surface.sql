-- What the extension offers: a change of this file is a change of the interface.
\pset format unaligned
SELECT p.proname AS function, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
       p.provolatile AS volatile, p.proparallel AS parallel, p.proisstrict AS strict, p.prosecdef AS definer
  FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
 WHERE p.pronamespace = 'rag'::regnamespace AND has_function_privilege('pg_monitor', p.oid, 'EXECUTE')
   AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
 ORDER BY 1, 2;
SELECT c.relname AS relation, c.relkind AS kind, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY attnum) AS columns
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'rag'::regnamespace AND c.relkind IN ('r', 'v') AND attnum > 0
   AND has_table_privilege('pg_monitor', c.oid, 'SELECT')
 GROUP BY 1, 2 ORDER BY 1;
SELECT name, setting, unit, context, vartype FROM pg_settings WHERE name LIKE 'rag.%' AND name <> 'rag.model_dir' ORDER BY 1;
SELECT srvname, srvtype, fdwname, srvoptions FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
 WHERE srvname = 'local';
