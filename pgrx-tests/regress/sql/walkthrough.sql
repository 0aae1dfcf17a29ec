-- The main job in one page, with output that never changes.
CREATE TABLE handbook (id int PRIMARY KEY, title text, body text);
INSERT INTO handbook VALUES
    (1, 'Office', 'The office closes at six in the evening.'),
    (2, 'Vacation', 'Employees receive thirty vacation days a year.');
SELECT rag.create_collection('handbook', 'handbook', content => '{body}', title => 'title', embedding_model => 'fake/embed-384');
SELECT rag.wait_until_current('handbook', '1 minute');
SELECT collection, source, rows, chunks, pending, failed, last_error, worker, hint FROM rag.status;
SELECT id, chunk, content, model, vector_dims(embedding) FROM handbook_chunks ORDER BY id;
SELECT collection, key, chunk, content, title, round(score::numeric, 3) AS score FROM rag.search('vacation days', 'handbook', 1);
SELECT rag.ask('How many vacation days do employees receive?', chat_model => 'fake/chat');
SELECT answer, jsonb_pretty(citations) AS citations, decision, outcome, stop_reason, searches, rounds, model
  FROM rag.answer('How many vacation days do employees receive?', chat_model => 'fake/chat');
SELECT kind, count(*) FROM rag.steps GROUP BY 1 ORDER BY 1;
SELECT rag.drop_collection('handbook');
SELECT to_regclass('handbook_chunks'), (SELECT count(*) FROM rag.collections) AS collections;
