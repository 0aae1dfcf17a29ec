# Helpers every script shares. Source it: . "$(dirname "$0")/lib.sh"
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
case $TARGET in /*) ;; *) TARGET=$ROOT/$TARGET ;; esac
# shellcheck disable=SC2034  # for those who source this
MODEL=all-MiniLM-L6-v2
export CARGO_TARGET_DIR=$TARGET

# say WORDS...: what is being done, for the person who watches.
say() { printf '\033[1m==>\033[0m %s\n' "$*" | plain; }

# die WORDS...: what went wrong and what to do about it.
die() { printf 'pg_ragent: %s\n' "$*" >&2; exit 1; }

# Takes colour codes out when nobody looks at a terminal.
plain() { if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }

have() { command -v "$1" >/dev/null 2>&1; }

# as_root COMMAND...: runs it as root, through sudo where we are not root.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif have sudo; then sudo "$@"
  else die "this step needs root: run it as root, or install sudo. The step was: $*"
  fi
}

# version_at_least HAVE WANT: compares dotted numbers.
version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

package_is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

# Version of the package that apt would install now; empty if it knows none.
package_candidate() {
  apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p' | grep -v '^(none)$' || true
}

apt_update() {
  say "updating apt's package lists"
  as_root apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null ||
    die "apt-get update failed: look at its messages above, mend the machine's apt sources or network, and run this again"
}

# Makes sure that apt's lists know the package; false if no list does.
apt_knows() {
  [ -n "$(package_candidate "$1")" ] && return
  if [ -z "${apt_updated:-}" ]; then apt_update; apt_updated=1; fi
  [ -n "$(package_candidate "$1")" ]
}

# apt_install PACKAGE...: installs those that are missing.
apt_install() {
  local package missing=()
  have apt-get || die "these are missing and there is no apt-get to install them with: $*. Install what they provide and run this again"
  for package in "$@"; do
    package_is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  for package in "${missing[@]}"; do
    apt_knows "$package" || die "apt knows no package $package here: add the source that has it, or install what it provides by hand"
  done
  say "installing ${missing[*]}"
  apt_get_install "${missing[@]}" && return
  # Lists that are older than the archive name files that are gone.
  apt_update
  apt_get_install "${missing[@]}" ||
    die "apt-get could not install ${missing[*]}: its messages are above. Mend them and run this again"
}

apt_get_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    install --no-install-recommends "$@" >"$(log_file apt)" 2>&1 || { tail -n 15 "$TARGET/log/apt.log" >&2; return 1; }
}

# The Python package installer, whatever it is called here.
pip() {
  local program
  program=$(type -P pip3 || type -P pip) || program=
  if [ -n "$program" ]; then "$program" "$@"; else python3 -m pip "$@"; fi
}

need_pip() { pip --version >/dev/null 2>&1 || apt_install python3-pip; }

# log_file NAME: a file for the output of a step that is only of interest when it fails.
log_file() { mkdir -p "$TARGET/log"; echo "$TARGET/log/$1.log"; }

# base URL of the Debian archive that this machine's own apt uses
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 2>/dev/null |
    sort -u | head -n1
}

# The user that a PostgreSQL server runs as: PostgreSQL refuses to run as root.
server_user() { if [ "$(id -u)" = 0 ]; then echo postgres; else id -un; fi; }

# as_server COMMAND...: runs it as that user, in a directory that user can enter.
as_server() {
  if [ "$(id -u)" = 0 ]; then (cd / && setpriv --reuid postgres --regid postgres --init-groups --reset-env "$@")
  else "$@"
  fi
}

# server_dir NAME: a directory for the server's own files, below target/ if the server's user can enter it. A checkout in
# a home directory such as /root is closed to user postgres; /var/tmp is open to everybody and survives a restart.
server_dir() {
  local dir=$TARGET/$1
  mkdir -p "$dir"
  if [ "$(id -u)" = 0 ]; then
    if ! as_server test -x "$dir"; then
      dir=/var/tmp/pg_ragent-$(printf %s "$ROOT" | cksum | cut -d' ' -f1)/$1
      mkdir -p "$dir"
    fi
    chown postgres: "$dir"
  fi
  echo "$dir"
}

# The directory that server_dir uses when target/ is closed to user postgres.
server_dir_outside() { echo "/var/tmp/pg_ragent-$(printf %s "$ROOT" | cksum | cut -d' ' -f1)"; }
