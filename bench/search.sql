-- rag.search(vector) against the pgvector query one would write by hand
-- Variables: rows (one chunk each), rounds, queries of a round.
SET client_min_messages = warning;
SELECT setseed(0.5);

-- Documents around 100 topics, so that neighbours are near as they are in text.
CREATE TABLE doc (id int PRIMARY KEY, title text NOT NULL, body text NOT NULL);
CREATE TABLE topic AS
  SELECT t AS id, array_agg(random() - 0.5) AS place FROM generate_series(0, 99) AS t, generate_series(1, 384) GROUP BY t;
CREATE FUNCTION near(wanted int) RETURNS vector LANGUAGE sql VOLATILE AS $$
  SELECT array_agg(p + 0.4 * (random() - 0.5))::vector FROM topic, unnest(place) AS p WHERE id = wanted % 100
$$;

-- The chunks are written here rather than by the worker: what is measured is reading.
ALTER SYSTEM SET rag.worker = off;
SELECT pg_reload_conf() \g /dev/null
SELECT pg_sleep(1) \g /dev/null
SELECT rag.create_collection('doc', 'doc', ARRAY['body'], title => 'title') \g /dev/null
INSERT INTO doc SELECT i, 'Document ' || i, repeat('Words of document ' || i || '. ', 30) FROM generate_series(1, :rows) AS i;
INSERT INTO doc_chunks (id, chunk, chunk_id, content, content_hash, model, source_xmin, source_hash, embedding, is_copy)
  SELECT id, 1, id, body, sha256(body::bytea), 'local/all-MiniLM-L6-v2', xmin,
         hashtextextended(concat(title, E'\x1f', body) COLLATE "C", 0), near(id), false FROM doc;
ANALYZE doc, doc_chunks;

CREATE TABLE query AS SELECT i AS id, near(i) AS v FROM generate_series(1, :queries) AS i;
CREATE TABLE timing (round int, variant text, ms float8);

-- Each variant goes through all queries by itself: neither finds in the processor's caches what the other has just read.
CREATE PROCEDURE measure(rounds int) LANGUAGE plpgsql AS $$
DECLARE
  q vector;
  began timestamptz;
BEGIN
  FOR round IN 0..rounds LOOP
    FOR q IN SELECT v FROM query ORDER BY id LOOP
      began := clock_timestamp();
      PERFORM * FROM rag.search(q, 'doc', k => 10);
      INSERT INTO timing VALUES (round, 'rag.search', extract(epoch FROM clock_timestamp() - began) * 1000);
    END LOOP;
    FOR q IN SELECT v FROM query ORDER BY id LOOP
      began := clock_timestamp();
      PERFORM c.id, c.chunk, c.content, d.title, 1 - (c.embedding <=> q)
      FROM (SELECT * FROM doc_chunks WHERE NOT is_copy ORDER BY embedding <=> q LIMIT 10) AS c JOIN doc AS d USING (id);
      INSERT INTO timing VALUES (round, 'by hand', extract(epoch FROM clock_timestamp() - began) * 1000);
    END LOOP;
  END LOOP;
END $$;
CALL measure(:rounds);

-- Round 0 warms up. The ratio is taken within each round and its median is shown.
WITH medians AS (
  SELECT round, variant, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms FROM timing WHERE round > 0 GROUP BY 1, 2
)
SELECT round(percentile_cont(0.5) WITHIN GROUP (ORDER BY r.ms)::numeric, 3) AS "rag.search p50 ms",
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY h.ms)::numeric, 3) AS "by hand p50 ms",
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY r.ms / h.ms)::numeric, 2) AS ratio
FROM medians r JOIN medians h ON h.round = r.round AND h.variant = 'by hand' AND r.variant = 'rag.search';

ALTER SYSTEM RESET rag.worker;
SELECT pg_reload_conf() \g /dev/null
