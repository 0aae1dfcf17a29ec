-- The agent: questions, and the record of what was done to answer them.

CREATE TABLE runs (
    id            uuid PRIMARY KEY,
    role          name NOT NULL,
    question      text NOT NULL,
    collection    text,
    model         text NOT NULL,
    answer        text NOT NULL,
    citations     jsonb NOT NULL,
    decision      text NOT NULL CHECK (decision IN ('used_search', 'skipped_search')),
    outcome       text NOT NULL CHECK (outcome IN ('answered', 'unknown')),
    stop_reason   text NOT NULL,
    searches      integer NOT NULL,
    rounds        integer NOT NULL,
    input_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    latency_ms    double precision NOT NULL,
    started_at    timestamptz NOT NULL
);
CREATE INDEX ON runs (role, started_at DESC);
SELECT pg_catalog.pg_extension_config_dump('runs', '');
COMMENT ON TABLE runs IS 'Questions answered by rag.ask and rag.answer; each role sees its own';
COMMENT ON COLUMN runs.id IS 'Identifier, for rag.trace; ordered by time';
COMMENT ON COLUMN runs.role IS 'The role that asked';
COMMENT ON COLUMN runs.question IS 'What was asked';
COMMENT ON COLUMN runs.collection IS 'The collection the question was limited to; NULL for all the role could read';
COMMENT ON COLUMN runs.model IS 'Chat model, as server/model';
COMMENT ON COLUMN runs.answer IS 'The answer, with its markers';
COMMENT ON COLUMN runs.citations IS 'Array of {marker, collection, key, chunk, title, link, quote}';
COMMENT ON COLUMN runs.decision IS 'Whether the model searched: used_search or skipped_search';
COMMENT ON COLUMN runs.outcome IS 'answered, or unknown when the answer is that the data does not tell';
COMMENT ON COLUMN runs.stop_reason IS 'Why it ended: answered, max_rounds, max_searches, no_new_evidence, empty_reply';
COMMENT ON COLUMN runs.searches IS 'Searches run';
COMMENT ON COLUMN runs.rounds IS 'Rounds of tool calls';
COMMENT ON COLUMN runs.input_tokens IS 'Tokens read by the model; 0 where the provider does not say';
COMMENT ON COLUMN runs.output_tokens IS 'Tokens written by the model; 0 where the provider does not say';
COMMENT ON COLUMN runs.latency_ms IS 'Milliseconds from question to answer';
COMMENT ON COLUMN runs.started_at IS 'When it began';

CREATE TABLE steps (
    run_id        uuid NOT NULL,
    number        integer NOT NULL,
    kind          text NOT NULL,
    round         integer NOT NULL,
    detail        jsonb NOT NULL,
    input_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    latency_ms    double precision,
    PRIMARY KEY (run_id, number)
);
SELECT pg_catalog.pg_extension_config_dump('steps', '');
COMMENT ON TABLE steps IS 'What each run did, step by step; each role sees its own';
COMMENT ON COLUMN steps.run_id IS 'rag.runs.id';
COMMENT ON COLUMN steps.number IS 'Place within the run, from 1';
COMMENT ON COLUMN steps.kind IS 'model_call, search or answer';
COMMENT ON COLUMN steps.round IS 'Round, from 1';
COMMENT ON COLUMN steps.detail IS 'What was said, called, searched and found';
COMMENT ON COLUMN steps.input_tokens IS 'Tokens read by the model';
COMMENT ON COLUMN steps.output_tokens IS 'Tokens written by the model';
COMMENT ON COLUMN steps.latency_ms IS 'Milliseconds the step took';

-- Not a foreign key: a parallel restore would load steps before runs.
CREATE FUNCTION rag_internal.forget_steps() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM @extschema@.steps WHERE run_id = OLD.id;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION rag_internal.forget_steps() IS 'Trigger of rag.runs: deletes the steps of a deleted run';
CREATE TRIGGER forget_steps AFTER DELETE ON runs FOR EACH ROW EXECUTE FUNCTION rag_internal.forget_steps();
COMMENT ON TRIGGER forget_steps ON runs IS 'Deletes the steps of a deleted run';

GRANT SELECT, DELETE ON runs TO PUBLIC;
GRANT SELECT ON steps TO PUBLIC;
ALTER TABLE runs ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON runs TO PUBLIC USING (role = current_user);
COMMENT ON POLICY own ON runs IS 'Each role sees the runs recorded under its name';
ALTER TABLE steps ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON steps FOR SELECT TO PUBLIC
    USING (EXISTS (SELECT FROM @extschema@.runs r WHERE r.id = run_id AND r.role = current_user));
COMMENT ON POLICY own ON steps IS 'Each role sees the steps of its own runs';

CREATE FUNCTION answer(question text, collection text DEFAULT NULL, chat_model text DEFAULT NULL)
    RETURNS TABLE (answer text, citations jsonb, decision text, outcome text, stop_reason text,
                   searches integer, rounds integer, input_tokens bigint, output_tokens bigint,
                   latency_ms double precision, model text, run_id uuid)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1
    AS 'MODULE_PATHNAME', 'answer_wrapper';
COMMENT ON FUNCTION answer(text, text, text) IS
'Answers a question from the collections the current role may read: the model decides whether to search, and what it cites is verified. With everything known about the run';

CREATE FUNCTION ask(question text, collection text DEFAULT NULL, chat_model text DEFAULT NULL) RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'ask_wrapper';
COMMENT ON FUNCTION ask(text, text, text) IS
'Answers a question as rag.answer does, as text: the answer and its sources';

CREATE FUNCTION trace(run_id uuid) RETURNS text
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'trace_wrapper';
COMMENT ON FUNCTION trace(uuid) IS 'What a run did, step by step, to read; of the current role''s own runs';
