# Where the demo lives and how to reach it. Source it after lib.sh and postgres.sh.
# shellcheck shell=bash

DEMO=$(server_dir demo)
DEMO_DATA=$DEMO/data
# shellcheck disable=SC2034  # for those who source this
DEMO_LOG=$DEMO/server.log
DEMO_PSQL=$TARGET/demo/psql

demo_port() { cat "$DEMO/port" 2>/dev/null || true; }

# A Unix socket's path holds 107 bytes.
demo_socket_dir() {
  local dir=$DEMO
  if [ ${#dir} -gt 85 ]; then dir=$(server_dir_outside); mkdir -p "$dir"; chown "$(server_user)" "$dir"; fi
  echo "$dir"
}

demo_is_running() { [ -d "$DEMO_DATA" ] && as_server "$PG_BIN/pg_ctl" -D "$DEMO_DATA" status >/dev/null 2>&1; }

stop_demo() { as_server "$PG_BIN/pg_ctl" -D "$DEMO_DATA" -m fast -w stop >/dev/null; }

# psql in the demo's database, quiet, bare values.
demo_sql() { "$DEMO_PSQL" -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
