-- Asks one collection one question and prints the answer, its sources and what it took:
-- psql -v collection=manual -v question='...' -f examples/ask.sql
\set ON_ERROR_STOP on
\pset tuples_only on
\pset format unaligned
WITH answered AS MATERIALIZED (
  SELECT * FROM rag.answer(:'question', :'collection')
)
SELECT concat_ws(E'\n\n',
  answer,
  (SELECT string_agg(format('[%s] %s  %s', citation->>'marker', citation->>'title', citation->>'link'), E'\n'
                     ORDER BY (citation->>'marker')::int)
   FROM jsonb_array_elements(citations) AS citation),
  format('%s by %s: %s, %s search(es) in %s round(s), %s ms',
         outcome, model, replace(decision, '_', ' '), searches, rounds, round(latency_ms::numeric)))
FROM answered;
