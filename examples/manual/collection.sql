-- Registers the manual for retrieval, once.
SELECT rag.create_collection('manual', 'manual', ARRAY['body'],
  title => 'title', link => 'url', description => 'The PostgreSQL manual')
WHERE NOT EXISTS (SELECT FROM rag.collections WHERE name = 'manual');
