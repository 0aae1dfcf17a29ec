-- Registers the help centre for retrieval, once.
SELECT rag.create_collection('support_desk', 'articles', ARRAY['body'],
  title => 'title', link => 'link', metadata => ARRAY['kind', 'product'],
  description => 'Help centre and solved support tickets of a service for time sheets and invoices')
WHERE NOT EXISTS (SELECT FROM rag.collections WHERE name = 'support_desk');
