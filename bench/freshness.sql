-- from commit to searchable, with the local model, one row at a time
-- Variables: rows.
SET client_min_messages = warning;
CREATE TABLE note (id int PRIMARY KEY, body text NOT NULL);
SELECT rag.create_collection('note', 'note', ARRAY['body']) \g /dev/null
CREATE TABLE timing (ms float8, embedding_ms float8);

-- Runs outside a transaction block, so it commits as a client would.
CREATE PROCEDURE write_and_wait(n int) LANGUAGE plpgsql AS $$
DECLARE
  committed timestamptz;
  began timestamptz;
  embedding float8;
  sentence text;
BEGIN
  FOR i IN 1..n LOOP
    sentence := format('Note %s: the meeting about the harbour was moved to %s o''clock.', i, i % 24);
    began := clock_timestamp();
    PERFORM rag.embed(sentence);
    embedding := extract(epoch FROM clock_timestamp() - began) * 1000;
    INSERT INTO note VALUES (i, sentence);
    COMMIT;
    committed := clock_timestamp();
    WHILE NOT EXISTS (SELECT FROM note_chunks WHERE id = i) LOOP
      PERFORM pg_sleep(0.0002);
      IF clock_timestamp() > committed + interval '30 seconds' THEN
        RAISE EXCEPTION 'row % was not embedded within 30 seconds', i;
      END IF;
    END LOOP;
    INSERT INTO timing VALUES (extract(epoch FROM clock_timestamp() - committed) * 1000, embedding);
    COMMIT;
  END LOOP;
END $$;

CALL write_and_wait(20);
TRUNCATE timing;
TRUNCATE note;
SELECT rag.wait_until_current('note') \g /dev/null
CALL write_and_wait(:rows);

SELECT round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 2) AS "p50 ms",
       round(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)::numeric, 2) AS "p99 ms",
       round(percentile_cont(0.5) WITHIN GROUP (ORDER BY embedding_ms)::numeric, 2) AS "of it embedding, p50 ms"
FROM timing;
