# Finding the PostgreSQL to build for. Source it after lib.sh.
# shellcheck shell=bash

PG_OLDEST=15
PG_NEWEST=18

# major_of PG_CONFIG: 15, 16, ...
major_of() { "$1" --version 2>/dev/null | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'; }

major_is_supported() { [ -n "$1" ] && [ "$1" -ge $PG_OLDEST ] && [ "$1" -le $PG_NEWEST ]; }

has_headers() { [ -e "$("$1" --includedir-server)/postgres.h" ]; }
has_server() { [ -x "$("$1" --bindir)/postgres" ] && [ -x "$("$1" --bindir)/initdb" ]; }

# A pg_config of every PostgreSQL in the usual places, one a line.
installed_pg_configs() {
  local path
  for path in /usr/lib/postgresql/*/bin/pg_config /usr/pgsql-*/bin/pg_config /usr/local/pgsql/bin/pg_config; do
    [ -x "$path" ] && echo "$path"
  done
  command -v pg_config || true
}

# find_pg_config: prints the pg_config to use, or nothing. PG_CONFIG= and PG= choose; else the newest that is complete.
find_pg_config() {
  local path major
  if [ -n "${PG_CONFIG:-}" ]; then echo "$PG_CONFIG"; return; fi
  installed_pg_configs | while read -r path; do
    major=$(major_of "$path")
    major_is_supported "$major" && [ "${PG:-$major}" = "$major" ] && has_headers "$path" && has_server "$path" || continue
    echo "$major $path"
  done | sort -s -n -r -k1,1 | head -n1 | cut -d' ' -f2-
}

# use_postgres: sets and exports PG_CONFIG, PG_MAJOR and PG_BIN, and puts the project's cargo-pgrx in PATH.
use_postgres() {
  PG_CONFIG=$(find_pg_config)
  [ -n "$PG_CONFIG" ] || die "no PostgreSQL ${PG:-$PG_OLDEST or newer} with server headers was found: run 'make setup' first"
  [ -x "$PG_CONFIG" ] || PG_CONFIG=$(command -v "$PG_CONFIG") || die "PG_CONFIG=$PG_CONFIG is not a program: name the pg_config of the PostgreSQL to build for"
  PG_MAJOR=$(major_of "$PG_CONFIG")
  PG_BIN=$("$PG_CONFIG" --bindir)
  PGRX_HOME=$TARGET/pgrx/pg$PG_MAJOR
  PATH=$TARGET/tools/bin:$PATH
  export PG_CONFIG PG_MAJOR PG_BIN PGRX_HOME PATH
  # cargo-pgrx adds a linker flag to its own builds, for linkers that lose its schema section; cargo then builds every
  # dependency twice, with the flag and without. On x86-64 the section stays without it.
  [ "$(uname -m)" != x86_64 ] || export CARGO_PGRX_DISABLE_GC_SECTIONS_WORKAROUND=1
}

# Where extensions' files go for this PostgreSQL.
extension_dir() { echo "$("$PG_CONFIG" --sharedir)/extension"; }
installed_model_dir() { echo "$("$PG_CONFIG" --sharedir)/pg_ragent/models"; }
