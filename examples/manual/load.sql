-- Loads the PostgreSQL manual into the table "manual", one row a page, from the HTML files in a directory that the server
-- can read (Debian's package postgresql-doc-NN has them). Run it as a superuser, who may read server files:
--
--   psql -v directory=/usr/share/doc/postgresql-doc-15/html -v version=15 -f examples/manual/load.sql
--
-- The cleaning is made of small functions that live for this session only.

\set ON_ERROR_STOP on
SET client_min_messages = warning;

-- White space means nothing in HTML except in <pre>, where programs and their output stand.
CREATE FUNCTION pg_temp.collapse_spaces(html text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(CASE WHEN part ~ '^<pre' THEN part ELSE regexp_replace(part, '\s+', ' ', 'g') END, '' ORDER BY n)
  FROM regexp_split_to_table(html, '(?=<pre[ >])|(?<=</pre>)') WITH ORDINALITY AS parts(part, n)
$$;

-- Blocks end in a blank line, cells in a bar, and everything else that is a tag goes.
CREATE FUNCTION pg_temp.strip_tags(html text) RETURNS text LANGUAGE sql AS $$
  SELECT regexp_replace(
    regexp_replace(
      regexp_replace(
        regexp_replace(html, '<br[^>]*>', E'\n', 'gi'),
        '</t[dh]>\s*<t[dh][^>]*>', ' | ', 'gi'),
      '</?(p|div|h[1-6]|ul|ol|li|dl|dt|dd|tr|table|thead|tbody|pre|blockquote|hr)([ /][^>]*)?>', E'\n\n', 'gi'),
    '<[^>]*>', '', 'g')
$$;

-- &#8212; and &#x2014; by their number, then the five names that XML knows and the hard space. &amp; comes last: what it
-- yields is text.
CREATE FUNCTION pg_temp.decode_entities(html text) RETURNS text LANGUAGE sql AS $$
  SELECT replace(replace(replace(replace(replace(replace(decoded,
           '&nbsp;', ' '), '&lt;', '<'), '&gt;', '>'), '&quot;', '"'), '&apos;', ''''), '&amp;', '&')
  FROM (
    SELECT CASE WHEN html !~ '&#' THEN html ELSE (
      SELECT string_agg(
        CASE WHEN part ~* '^&#x' THEN chr(('x' || lpad(trim(part, '&#xX;'), 8, '0'))::bit(32)::int)
             WHEN part ~ '^&#' THEN chr(trim(part, '&#;')::int)
             ELSE part END, '' ORDER BY n)
      FROM regexp_matches(html, '&#[0-9]+;|&#[xX][0-9a-fA-F]+;|[^&]+|&', 'g') WITH ORDINALITY AS found(parts, n),
           LATERAL (SELECT parts[1]) AS one(part)
    ) END
  ) AS numbers(decoded)
$$;

CREATE FUNCTION pg_temp.text_of(html text) RETURNS text LANGUAGE sql AS $$
  SELECT trim(E' \n' FROM regexp_replace(
           regexp_replace(
             translate(pg_temp.decode_entities(pg_temp.strip_tags(pg_temp.collapse_spaces(html))), U&'\00A0', ' '),
             '[ \t]+(?=\n)', '', 'g'),
           '\n\s*\n[ ]?(?=\S)|\n\s*\n', E'\n\n', 'g'))
$$;

-- The page's own text: without its head, the navigation at both ends and the table of contents. One step each, because
-- an expression with alternatives would match as much as it can.
CREATE FUNCTION pg_temp.content_of(page text) RETURNS text LANGUAGE sql AS $$
  SELECT regexp_replace(
    regexp_replace(
      regexp_replace(
        regexp_replace(page, '^.*<body[^>]*>', ''),
        '^<div class="navheader">.*?</div>', ''),
      '<div class="navfooter">.*$|</body>.*$', ''),
    '<div class="toc">.*?</div>', '', 'g')
$$;

CREATE FUNCTION pg_temp.title_of(page text) RETURNS text LANGUAGE sql AS $$
  SELECT pg_temp.text_of(substring(page FROM '<title>(.*?)</title>'))
$$;

BEGIN;

CREATE TABLE IF NOT EXISTS manual (
  url text PRIMARY KEY,
  title text NOT NULL,
  body text NOT NULL
);

-- The index of terms and the bare title page have no text to be searched.
INSERT INTO manual (url, title, body)
SELECT format('https://www.postgresql.org/docs/%s/%s', :'version', file),
       pg_temp.title_of(page),
       pg_temp.text_of(pg_temp.content_of(page))
FROM pg_ls_dir(:'directory') AS files(file),
     LATERAL (SELECT pg_read_file(:'directory' || '/' || file)) AS pages(page)
WHERE file LIKE '%.html' AND file NOT IN ('bookindex.html', 'index.html')
ON CONFLICT (url) DO UPDATE SET title = excluded.title, body = excluded.body
  WHERE (manual.title, manual.body) IS DISTINCT FROM (excluded.title, excluded.body);

COMMENT ON TABLE manual IS 'The PostgreSQL manual, one row a page';
COMMIT;
