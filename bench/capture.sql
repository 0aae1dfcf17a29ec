-- writing to a captured table against the same table uncaptured, the worker off
-- Variables: rows of a bulk statement, rounds of those, single rows.
SET client_min_messages = warning;
ALTER SYSTEM SET rag.worker = off;
SELECT pg_reload_conf() \g /dev/null
SELECT pg_sleep(1) \g /dev/null
CREATE TABLE captured (id int PRIMARY KEY, body text NOT NULL);
CREATE TABLE plain (id int PRIMARY KEY, body text NOT NULL);
SELECT rag.create_collection('captured', 'captured', ARRAY['body']) \g /dev/null
CREATE TABLE timing (kind text, variant text, ms float8);

CREATE PROCEDURE write_bulk(variant text, rows int) LANGUAGE plpgsql AS $$
DECLARE
  began timestamptz;
BEGIN
  -- After TRUNCATE a session reads anew what it knows of the table: that is not what is measured.
  EXECUTE format('INSERT INTO %I VALUES (0, ''first'')', variant);
  COMMIT;
  began := clock_timestamp();
  EXECUTE format('INSERT INTO %I SELECT i, repeat(''some words '', 40) FROM generate_series(1, %s) AS i', variant, rows);
  COMMIT;
  INSERT INTO timing VALUES (format('bulk, %s rows', rows), variant, extract(epoch FROM clock_timestamp() - began) * 1000);
  EXECUTE format('TRUNCATE %I', variant);
  DELETE FROM rag_internal.queue;
  COMMIT;
END $$;

-- One after the other, so that both meet the same disk.
CREATE PROCEDURE write_singly(n int) LANGUAGE plpgsql AS $$
DECLARE
  began timestamptz;
BEGIN
  FOR i IN 1..n LOOP
    began := clock_timestamp();
    INSERT INTO plain VALUES (i, 'some words');
    COMMIT;
    INSERT INTO timing VALUES ('one row and commit', 'plain', extract(epoch FROM clock_timestamp() - began) * 1000);
    COMMIT;
    began := clock_timestamp();
    INSERT INTO captured VALUES (i, 'some words');
    COMMIT;
    INSERT INTO timing VALUES ('one row and commit', 'captured', extract(epoch FROM clock_timestamp() - began) * 1000);
    COMMIT;
  END LOOP;
END $$;

-- Once without counting: what a session reads first is read then.
CALL write_bulk('plain', :rows);
CALL write_bulk('captured', :rows);
TRUNCATE timing;
SELECT format('CALL write_bulk(%L, %s)', variant, :rows)
FROM generate_series(1, :rounds) AS round, unnest(ARRAY['plain', 'captured']) AS variant ORDER BY round \gexec
CALL write_singly(:single);

SELECT c.kind, round(c.ms::numeric, 2) AS "captured p50 ms", round(p.ms::numeric, 2) AS "plain p50 ms", round((c.ms / p.ms)::numeric, 2) AS ratio
FROM (SELECT kind, variant, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms FROM timing GROUP BY 1, 2) AS c
JOIN (SELECT kind, variant, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS ms FROM timing GROUP BY 1, 2) AS p USING (kind)
WHERE c.variant = 'captured' AND p.variant = 'plain';

ALTER SYSTEM RESET rag.worker;
SELECT pg_reload_conf() \g /dev/null
