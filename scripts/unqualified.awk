# Prints every place where SQL names an operator, function or type without its schema, so that whoever may create in a schema of
# the search_path decides what it means.
#
# Of a Rust file: the SQL in its string literals. Of an SQL file: the bodies of functions that have no SET search_path of their
# own; what stands outside of bodies is run under the path that the file sets. What has no schema by the grammar (IN, LIKE,
# BETWEEN, NULLIF, IS DISTINCT FROM, JOIN ... USING, CASE x WHEN) looks up an operator all the same, and is a place, too.

FNR == 1 { finish(); file = FILENAME; text = "" }
{ text = text $0 "\n" }
END { finish() }

function finish() {
  if (file == "") return
  if (file ~ /\.rs$/) rust(); else bodies()
}

# String literals, one after the other. A backslash at the end of a line and the blanks after it are left as they are.
function rust(    i, n, c, start, line, literal, hashes, end) {
  n = length(text); line = 1
  for (i = 1; i <= n; i++) {
    c = substr(text, i, 1)
    if (c == "\n") { line++; continue }
    if (c == "/" && substr(text, i, 2) == "//") {
      while (i < n && substr(text, i + 1, 1) != "\n") i++
      continue
    }
    # A character, not a lifetime.
    if (c == "'") {
      if (substr(text, i, 2) == "'\\") { i += 3; continue }
      if (substr(text, i + 2, 1) == "'") { i += 2; continue }
      continue
    }
    if (c == "r" && match(substr(text, i, 8), /^r#*"/) && substr(text, i - 1, 1) !~ /[A-Za-z0-9_]/) {
      hashes = substr(text, i + 1, RLENGTH - 2)
      start = i + RLENGTH
      end = index(substr(text, start), "\"" hashes)
      if (end == 0) return
      literal = substr(text, start, end - 1)
      look(literal, line)
      line += gsub(/\n/, "\n", literal)
      i = start + end - 1 + length(hashes)
      continue
    }
    if (c != "\"") continue
    start = i + 1
    for (i++; i <= n && substr(text, i, 1) != "\""; i++) if (substr(text, i, 1) == "\\") i++
    literal = substr(text, start, i - start)
    if (literal ~ /pg_catalog\.|OPERATOR\(|::|SELECT |FROM \{|WHERE |JOIN |INSERT INTO |DELETE FROM |UPDATE \{|CREATE |GRANT /) look(literal, line)
    line += gsub(/\n/, "\n", literal)
  }
}

# Bodies between $$ and $$, with what stands before them since the last CREATE.
function bodies(    rest, before, head, body, line, length_of) {
  rest = text; line = 1
  while (match(rest, /\$\$/)) {
    before = substr(rest, 1, RSTART - 1)
    rest = substr(rest, RSTART + 2)
    head = before
    while (match(head, /CREATE /)) head = substr(head, RSTART + 7)
    line += gsub(/\n/, "\n", before)
    if (!match(rest, /\$\$/)) return
    body = substr(rest, 1, RSTART - 1)
    rest = substr(rest, RSTART + 2)
    if (head !~ /SET search_path = pg_catalog, pg_temp/) look(body, line)
    line += gsub(/\n/, "\n", body)
  }
}

function look(text_of, line,    at_name, parts, n, i, s, at) {
  # Values and quoted names hold no names of ours to look up, and may hold anything.
  gsub(/\\"/, "\"", text_of)
  gsub(/--[^\n]*/, "", text_of)
  text_of = without(text_of, "'")
  text_of = without(text_of, "\"")
  while (match(text_of, /\{[^{}]*\}/)) text_of = substr(text_of, 1, RSTART - 1) "_" substr(text_of, RSTART + RLENGTH)
  gsub(/OPERATOR\([^)]*\)/, " ", text_of)
  n = split(text_of, parts, "\n")
  for (i = 1; i <= n; i++) {
    s = parts[i]
    at = file ":" (line + i - 1) ": "
    gsub(/=>|:=|\(\*\)|\.\*|SELECT \*|\$[0-9]+/, " ", s)
    # Options of RAISE, assignments of UPDATE.
    gsub(/(ERRCODE|MESSAGE|HINT|DETAIL) = /, " ", s)
    while (match(s, /(SET|,|^) *[a-z_.]+ = /)) s = substr(s, 1, RSTART - 1) " " substr(s, RSTART + RLENGTH)
    if (match(s, /::[a-z"][a-z0-9_]*[^a-z0-9_.]|::[a-z][a-z0-9_]*$/)) print at "type " substr(s, RSTART, RLENGTH)
    gsub(/::[A-Za-z_."]+/, " ", s)
    if (match(s, /[-=<>+*\/~|@#%^&!?]+/)) print at "operator " substr(s, RSTART, RLENGTH)
    if (match(s, /(^|[^A-Za-z0-9_.])(NOT )?(IN \(|LIKE |ILIKE |SIMILAR TO |BETWEEN |NULLIF|nullif|NATURAL JOIN )/)) print at "operator of " substr(s, RSTART, RLENGTH)
    if (s ~ /JOIN .* USING \(/) print at "operator of JOIN ... USING"
    if (s ~ /IS (NOT )?DISTINCT FROM/) print at "operator of IS DISTINCT FROM"
    if (match(s, /CASE +[^W ]/)) print at "operator of a CASE with a value"
    while (match(s, /(^|[^A-Za-z0-9_.])[a-z_][a-z0-9_]*\(/)) {
      at_name = substr(s, RSTART, RLENGTH)
      gsub(/^[^a-z_]|\($/, "", at_name)
      if (at_name !~ /^(coalesce|greatest|least|_)$/) print at "function " at_name
      s = substr(s, RSTART + RLENGTH)
    }
  }
}

# The text without what stands between two of these marks; marks stay, lines stay.
function without(whole, mark,    out, in_it, i, c) {
  out = ""; in_it = 0
  for (i = 1; i <= length(whole); i++) {
    c = substr(whole, i, 1)
    if (c == mark) { in_it = !in_it; out = out "_"; continue }
    if (!in_it || c == "\n") out = out c
  }
  return out
}
