-- The agent: questions, and the record of what was done to answer them.

CREATE TABLE runs (
    id             uuid PRIMARY KEY,
    role           name NOT NULL,
    role_oid       oid NOT NULL,
    cluster        bigint NOT NULL,
    scope          jsonb,
    record         text NOT NULL DEFAULT 'on',
    question       text,
    collection     text,
    model          text NOT NULL,
    status         text NOT NULL
        CHECK (status IN ('running', 'awaiting_approval', 'answered', 'unknown', 'ungrounded', 'failed', 'cancelled')),
    answer         text,
    citations      jsonb,
    decision       text CHECK (decision IN ('used_search', 'skipped_search')),
    outcome        text GENERATED ALWAYS AS (CASE WHEN status IN ('answered', 'unknown', 'ungrounded') THEN status END) STORED,
    stop_reason    text,
    searches       integer NOT NULL DEFAULT 0,
    rounds         integer NOT NULL DEFAULT 0,
    input_tokens   bigint NOT NULL DEFAULT 0,
    output_tokens  bigint NOT NULL DEFAULT 0,
    latency_ms     double precision,
    error          text,
    error_sqlstate text,
    error_hint     text,
    state          jsonb,
    state_version  integer,
    started_at     timestamptz NOT NULL,
    finished_at    timestamptz,
    CONSTRAINT finished CHECK ((status IN ('running', 'awaiting_approval')) = (finished_at IS NULL)),
    CONSTRAINT complete CHECK (status NOT IN ('answered', 'unknown', 'ungrounded')
        OR ((answer IS NOT NULL OR question IS NULL) AND citations IS NOT NULL AND decision IS NOT NULL AND stop_reason IS NOT NULL)),
    CONSTRAINT explained CHECK ((status = 'failed') <= (error IS NOT NULL)),
    CONSTRAINT texts CHECK (CASE WHEN record OPERATOR(pg_catalog.=) 'on'::pg_catalog.text THEN question IS NOT NULL
        ELSE record OPERATOR(pg_catalog.=) 'metadata'::pg_catalog.text AND question IS NULL AND answer IS NULL END),
    CONSTRAINT resumable CHECK ((state IS NULL) = (state_version IS NULL) AND (state IS NULL OR finished_at IS NULL))
);
-- Written at every step and gone at the end: compressing it would cost more than it saves.
ALTER TABLE runs ALTER COLUMN state SET STORAGE EXTERNAL;
CREATE INDEX ON runs (role_oid, started_at DESC);
COMMENT ON TABLE runs IS 'Questions asked with rag.ask and rag.answer; each role sees its own, in its scope; members of rag_run_reader see all';
COMMENT ON COLUMN runs.id IS 'Identifier, for rag.trace; ordered by time';
COMMENT ON COLUMN runs.role IS 'Name of the role that asked, as it was then';
COMMENT ON COLUMN runs.role_oid IS 'OID of the role that asked: whoever has it sees the run, under whatever name; 0 where nobody has it';
COMMENT ON COLUMN runs.cluster IS 'System identifier of the cluster in which role_oid was looked up';
COMMENT ON COLUMN runs.scope IS 'Values of the settings that rag.scope_settings named, when it was asked: the run is shown where they are the same. {}: one was unset, and it is shown to members of rag_run_reader only. NULL: none was named';
COMMENT ON COLUMN runs.record IS 'What was recorded: on (everything) or metadata (no texts), as rag.record was';
COMMENT ON COLUMN runs.question IS 'What was asked; NULL where no texts are recorded';
COMMENT ON COLUMN runs.collection IS 'The collection the question was limited to; NULL for all the role could read';
COMMENT ON COLUMN runs.model IS 'Chat model, as server/model';
COMMENT ON COLUMN runs.status IS 'running or awaiting_approval; then answered, unknown (the data does not tell), ungrounded (it cites nothing of the data), failed or cancelled';
COMMENT ON COLUMN runs.answer IS 'The answer, with its markers; NULL where no texts are recorded';
COMMENT ON COLUMN runs.citations IS 'Array of {marker, collection, key, chunk, title, link, quote}; the last three are empty where no texts are recorded';
COMMENT ON COLUMN runs.decision IS 'Whether the model searched: used_search or skipped_search';
COMMENT ON COLUMN runs.outcome IS 'The status of a run that has an answer: answered; unknown when the answer is that the data does not tell; ungrounded when it cites nothing, so that nothing of the data supports it';
COMMENT ON COLUMN runs.stop_reason IS 'Why it ended: answered, max_rounds, max_searches, no_new_evidence, empty_reply, truncated (the model''s limit of output), content_filter (the provider''s)';
COMMENT ON COLUMN runs.searches IS 'Searches run; 0 until it ends, as are rounds and tokens';
COMMENT ON COLUMN runs.rounds IS 'Rounds of tool calls';
COMMENT ON COLUMN runs.input_tokens IS 'Tokens read by the model; 0 where the provider does not say';
COMMENT ON COLUMN runs.output_tokens IS 'Tokens written by the model; 0 where the provider does not say';
COMMENT ON COLUMN runs.latency_ms IS 'Milliseconds from question to end';
COMMENT ON COLUMN runs.error IS 'Message of the error that ended a failed run';
COMMENT ON COLUMN runs.error_sqlstate IS 'Its SQLSTATE';
COMMENT ON COLUMN runs.error_hint IS 'What to do about it';
COMMENT ON COLUMN runs.state IS 'What an unfinished run needs to go on from its last step; NULL when it is over';
COMMENT ON COLUMN runs.state_version IS 'Version of the form of state; a run is resumed only by a version of pg_ragent that writes the same';
COMMENT ON COLUMN runs.started_at IS 'When it began';
COMMENT ON COLUMN runs.finished_at IS 'When it ended';

CREATE TABLE steps (
    run_id        uuid NOT NULL,
    number        integer NOT NULL,
    kind          text NOT NULL,
    round         integer NOT NULL,
    detail        jsonb NOT NULL,
    input_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    latency_ms    double precision,
    scope         jsonb,
    PRIMARY KEY (run_id, number)
);
COMMENT ON TABLE steps IS 'What each run did, step by step; shown to those who see the run';
COMMENT ON COLUMN steps.run_id IS 'rag.runs.id';
COMMENT ON COLUMN steps.number IS 'Place within the run, from 1';
COMMENT ON COLUMN steps.kind IS 'model_call, search or answer';
COMMENT ON COLUMN steps.round IS 'Round, from 1';
COMMENT ON COLUMN steps.detail IS 'What was said, called, searched and found';
COMMENT ON COLUMN steps.input_tokens IS 'Tokens read by the model';
COMMENT ON COLUMN steps.output_tokens IS 'Tokens written by the model';
COMMENT ON COLUMN steps.latency_ms IS 'Milliseconds the step took';
COMMENT ON COLUMN steps.scope IS 'As rag.runs.scope';

-- Whose a run is.
--
-- A role's OID outlives its name and is not given to the next role of that name, so policies go by the OID. A role that was
-- renamed sees its runs; one that was created anew under a name used before does not see those of its predecessor.
--
-- OIDs differ between clusters, and a dump carries both. What is restored into the cluster that it was dumped from keeps its OIDs.
-- Elsewhere the OID is looked up by the name, as a dump names owners and grantees too; where there is no such role, nobody but
-- superusers sees the run. The name is that of the day of the question. So a dump leaves out runs under a name that another
-- role bears by now: elsewhere they would become that role's. (pg_upgrade keeps OIDs, and inserts no rows.)
--
-- The trigger fires under session_replication_role = replica too: OIDs that logical replication brings are another cluster's.
CREATE FUNCTION rag_internal.own_run() RETURNS trigger
    LANGUAGE plpgsql AS $$
DECLARE
    here pg_catalog.int8 := (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c);
BEGIN
    IF TG_RELID OPERATOR(pg_catalog.<>) 'rag.runs'::pg_catalog.regclass THEN
        RAISE EXCEPTION 'rag_internal.own_run() is a trigger of rag.runs, not of %', TG_RELID::pg_catalog.regclass
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this trigger.';
    END IF;
    IF NEW.cluster OPERATOR(pg_catalog.<>) here THEN
        NEW.role_oid := coalesce(
            (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) NEW.role), 0::pg_catalog.oid);
    END IF;
    NEW.cluster := here;
    RETURN NEW;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.own_run() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.own_run() IS
'Trigger of rag.runs: settles whose a run is that was dumped in another cluster';
CREATE TRIGGER own_run BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION rag_internal.own_run();
ALTER TABLE runs ENABLE ALWAYS TRIGGER own_run;
COMMENT ON TRIGGER own_run ON runs IS 'Settles whose a run is that was dumped in another cluster';
SELECT pg_catalog.pg_extension_config_dump('runs', 'WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles r
    WHERE r.rolname OPERATOR(pg_catalog.=) role AND r.oid OPERATOR(pg_catalog.<>) role_oid)');
SELECT pg_catalog.pg_extension_config_dump('steps', 'WHERE NOT EXISTS (SELECT FROM rag.runs u JOIN pg_catalog.pg_roles r
    ON r.rolname OPERATOR(pg_catalog.=) u.role AND r.oid OPERATOR(pg_catalog.<>) u.role_oid
    WHERE u.id OPERATOR(pg_catalog.=) run_id)');

-- Steps go with their run. Not by a foreign key: a parallel restore would load steps before runs. Roles may delete their runs,
-- but write to steps in no other way, so the function has its owner's rights. Nobody else may make a trigger of it, and it works
-- on rag.runs only: on somebody's own table, OLD.id could be of a type whose cast to uuid is somebody's code.
CREATE FUNCTION rag_internal.forget_steps() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID OPERATOR(pg_catalog.<>) 'rag.runs'::pg_catalog.regclass THEN
        RAISE EXCEPTION 'rag_internal.forget_steps() is a trigger of rag.runs, not of %', TG_RELID::pg_catalog.regclass
            USING ERRCODE = 'insufficient_privilege', HINT = 'Drop this trigger.';
    END IF;
    DELETE FROM rag.steps WHERE run_id OPERATOR(pg_catalog.=) OLD.id;
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION rag_internal.forget_steps() FROM PUBLIC;
COMMENT ON FUNCTION rag_internal.forget_steps() IS 'Trigger of rag.runs: deletes the steps of a deleted run';
CREATE TRIGGER forget_steps AFTER DELETE ON runs FOR EACH ROW EXECUTE FUNCTION rag_internal.forget_steps();
COMMENT ON TRIGGER forget_steps ON runs IS 'Deletes the steps of a deleted run';

-- A role sees and deletes its own, in its scope. Members of rag_run_reader see all and delete no more than others. Each condition
-- on role_oid is one that the index can be used for.
GRANT SELECT, DELETE ON runs TO PUBLIC;
GRANT SELECT ON steps TO PUBLIC;
ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
CREATE POLICY visible ON runs FOR SELECT TO PUBLIC USING (
    role_oid OPERATOR(pg_catalog.>=) CASE WHEN rag_internal.reads_all_runs() THEN 0::pg_catalog.oid
        ELSE pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))::pg_catalog.oid END
    AND role_oid OPERATOR(pg_catalog.<=) CASE WHEN rag_internal.reads_all_runs() THEN 4294967295::pg_catalog.oid
        ELSE pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))::pg_catalog.oid END
    AND (rag_internal.in_scope(scope) OR rag_internal.reads_all_runs()));
COMMENT ON POLICY visible ON runs IS 'Each role sees the runs recorded under its OID in its scope, members of rag_run_reader all';
CREATE POLICY own ON runs FOR DELETE TO PUBLIC USING (
    role_oid OPERATOR(pg_catalog.=) pg_catalog.to_regrole(pg_catalog.quote_ident(current_user))::pg_catalog.oid
    AND rag_internal.in_scope(scope));
COMMENT ON POLICY own ON runs IS 'Each role deletes the runs recorded under its OID in its scope';
ALTER TABLE steps ENABLE ROW LEVEL SECURITY;
-- The policy of rag.runs holds in it, too.
CREATE POLICY visible ON steps FOR SELECT TO PUBLIC USING (
    EXISTS (SELECT FROM rag.runs r WHERE r.id OPERATOR(pg_catalog.=) run_id)
    AND (rag_internal.in_scope(scope) OR rag_internal.reads_all_runs()));
COMMENT ON POLICY visible ON steps IS 'Each role sees the steps of the runs that it sees';

CREATE FUNCTION answer(question text, collection text DEFAULT NULL, chat_model text DEFAULT NULL)
    RETURNS TABLE (answer text, citations jsonb, decision text, outcome text, stop_reason text,
                   searches integer, rounds integer, input_tokens bigint, output_tokens bigint,
                   latency_ms double precision, model text, run_id uuid, pending bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME', 'answer_wrapper';
COMMENT ON FUNCTION answer(text, text, text) IS
'Answers a question from the collections the current role may read: the model decides whether to search, and what it cites is verified. With everything known about the run; run_id is NULL where the run is not recorded, pending how many rows of the collections wait to be embedded (counted up to 1000 of each; NULL: everything of one is to be compared). A NULL question has no answer';

CREATE FUNCTION ask(question text, collection text DEFAULT NULL, chat_model text DEFAULT NULL) RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'ask_wrapper';
COMMENT ON FUNCTION ask(text, text, text) IS
'Answers a question as rag.answer does, as text: the answer and its sources; NULL for a NULL question';

CREATE FUNCTION trace(run_id uuid) RETURNS text
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'trace_wrapper';
COMMENT ON FUNCTION trace(uuid) IS 'What a run did, step by step, to read; of the runs that the current role sees in rag.runs';
