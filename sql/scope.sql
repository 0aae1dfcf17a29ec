-- The scope of what is recorded: which of the people who share one role see it, and who sees all of it.
--
-- A table of records has a column `scope jsonb`, which takes rag_internal.current_scope(), and a policy that asks
-- rag_internal.in_scope(scope). Policies ask as whoever reads, so everybody may call these. They are no part of a query's
-- conditions but of policies, which are asked first, and so need not be LEAKPROOF.

CREATE FUNCTION rag_internal.current_scope() RETURNS jsonb
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'current_scope_wrapper';
COMMENT ON FUNCTION rag_internal.current_scope() IS
'The settings that rag.scope_settings names, with their values in this session: an empty object where one is unset or empty, NULL where none is named';

CREATE FUNCTION rag_internal.in_scope(scope jsonb) RETURNS boolean
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'in_scope_wrapper';
COMMENT ON FUNCTION rag_internal.in_scope(jsonb) IS
'Whether what was recorded with this scope is shown now: every setting that rag.scope_settings names has the value it had then. Where none is named, only what has no scope is shown';

-- By name, at each reading: a policy TO that role would keep it from being dropped, in every database.
CREATE FUNCTION rag_internal.reads_all_runs() RETURNS boolean
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'reads_all_runs_wrapper';
COMMENT ON FUNCTION rag_internal.reads_all_runs() IS 'Whether the current role is a member of rag_run_reader, and so sees the runs of everybody';

-- Roles belong to the whole cluster: DROP EXTENSION leaves this one, since other databases may use it.
DO $$
DECLARE
    reader pg_catalog.oid := pg_catalog.to_regrole('rag_run_reader');
    members pg_catalog.text;
BEGIN
    IF reader IS NULL THEN
        CREATE ROLE rag_run_reader NOLOGIN;
        COMMENT ON ROLE rag_run_reader IS 'pg_ragent: members see the runs and steps of everybody (rag.runs, rag.steps, rag.trace)';
        RETURN;
    END IF;
    members := (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(r.rolname), ', ' ORDER BY r.rolname)
                FROM pg_catalog.pg_roles r
                WHERE r.oid OPERATOR(pg_catalog.=) reader AND r.rolcanlogin
                   OR EXISTS (SELECT FROM pg_catalog.pg_auth_members m
                              WHERE m.roleid OPERATOR(pg_catalog.=) reader AND m.member OPERATOR(pg_catalog.=) r.oid));
    IF members IS NOT NULL THEN
        RAISE WARNING 'the role rag_run_reader exists already, and these will see everybody''s runs in this database: %', members
            USING HINT = 'If that is not meant: REVOKE rag_run_reader FROM ..., and ALTER ROLE rag_run_reader NOLOGIN.';
    END IF;
EXCEPTION
    -- At the same time in another database.
    WHEN duplicate_object OR unique_violation THEN
        NULL;
    WHEN insufficient_privilege THEN
        RAISE WARNING 'cannot create the role rag_run_reader: %', SQLERRM
            USING HINT = 'Let somebody who may create roles do it: CREATE ROLE rag_run_reader NOLOGIN. Until then only superusers see the runs of others.';
END $$;
