# What the engine scripts share; they source it. Bash, Linux and curl.
#
#   lab/ENGINE setup [--dir DIR]                         install once; the second time returns at once
#   lab/ENGINE start [--dir DIR] [--port PORT] [FLAGS]   start, wait until it is ready, print its base URL
#   lab/ENGINE stop  [--dir DIR] [--port PORT]           stop what was started, by process id
#
# FLAGS go to the server. DIR is .lab/ENGINE unless --dir, or LAB_DIR (its parent), says otherwise. Without --port,
# start takes a free one and stop takes the only one there is. A server's log is DIR/server-PORT.log.
# shellcheck shell=bash
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
script=$(basename "$0")
engine=${script%-*}
project_python=${SERVECHECK_PYTHON:-$root/.venv/bin/python}

fail() { echo "lab/$script: $*" >&2; exit 1; }
usage() { sed -n "s|lab/ENGINE|lab/$script|; s|ENGINE|$engine|; 3,8s/^# \?//p" "$here/common.bash" >&2; exit 2; }

# parse "$@": sets verb, dir, port and flags, what is left for the server.
parse() {
  [ $# -gt 0 ] || usage
  verb=$1 dir=${LAB_DIR:-$root/.lab}/$engine port='' flags=()
  shift
  while [ $# -gt 0 ]; do
    case $1 in
    --dir) dir=${2:?--dir takes a directory}; shift 2 ;;
    --port) port=${2:?--port takes a number}; shift 2 ;;
    *) flags+=("$1"); shift ;;
    esac
  done
  case $verb in setup | start | stop) ;; *) usage ;; esac
  [[ $port =~ ^[0-9]*$ ]] || fail "--port takes a number, not '$port'"
  dir=$(realpath -m "$dir")
  venv=$dir/venv
}

# ---------------------------------------------------------------------------- setup

# is_current WORDS: whether the last setup that came to its end was told the same words (requirements and versions).
is_current() { [ "$(cat "$dir/installed" 2>/dev/null)" = "$*" ]; }
now_current() { echo "$*" >"$dir/installed"; }

# make_venv: DIR/venv with the newest Python that the engines are known to take.
make_venv() {
  local python
  mkdir -p "$dir"
  python=${LAB_PYTHON:-$(command -v python3.11 || command -v python3.12 || command -v python3)}
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
}

install() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check install "$@"; }

# fetch_gguf: sets gguf, the path of SmolLM2-135M-Instruct (Q4_1), fetched and verified as for `servecheck demo`.
fetch_gguf() {
  need_project
  gguf=$(cd "$root" && "$project_python" -c 'from servecheck.embedded.weights import fetch; print(fetch())')
}

need_project() {
  [ -x "$project_python" ] || fail "no $project_python; run 'make .venv/.installed' or set SERVECHECK_PYTHON"
}

# hf_model: the same weights in DIR/model, as the folder that PyTorch engines read. After fetch_gguf.
hf_model() {
  [ -e "$dir/model/config.json" ] || TQDM_DISABLE=1 "$venv/bin/python" "$here/unpack_model.py" "$gguf" "$dir/model"
}

# ---------------------------------------------------------------------------- start and stop

# answers PORT: whether anything listens on that port of this machine.
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port: a port that nobody has now.
free_port() {
  local candidate
  for _ in $(seq 100); do
    candidate=$((20000 + RANDOM % 20000))
    answers "$candidate" || { echo "$candidate"; return; }
  done
  fail "no free port"
}

choose_port() {
  port=${port:-$(free_port)}
  ! answers "$port" || fail "port $port is taken"
}

# A process id may be given to another program when its first owner is gone; its start time is not. Nothing for a
# process that is gone, or that only waits for its parent to notice.
started_at() { sed -n 's/.*) //; /^Z/!p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { [ -n "$(started_at "$1")" ]; }

# launch NAME COMMAND…: run a server in a session of its own, and note its process id in DIR/pid-PORT[-NAME].
launch() {
  local name=$1 note
  shift
  note=$dir/pid-$port${name:+-$name}
  setsid "$@" >"$dir/server-$port${name:+-$name}.log" 2>&1 </dev/null &
  echo "$! $(started_at $!)" >"$note"
}

# await SECONDS NAME CONDITION…: until the condition, a command, holds. A server that is not ready in time, or ends, is
# stopped, with its last words.
await() {
  local seconds=$1 name=$2 pid log
  shift 2
  read -r pid _ <"$dir/pid-$port${name:+-$name}"
  log=$dir/server-$port${name:+-$name}.log
  for _ in $(seq $((seconds * 4))); do
    alive "$pid" || give_up "it ended by itself" "$log"
    ! "$@" || return 0
    sleep 0.25
  done
  give_up "not ready after $seconds s" "$log"
}

give_up() {
  tail -n 20 "$2" >&2
  stop_all
  fail "$1; the log is $2"
}

# responds URL: whether it answers with 2xx. The loopback is not for proxies.
responds() { curl --noproxy '*' -sf -m 10 -o /dev/null "$1"; }

# stop_all: stop every process that was launched for this port, and what they started.
stop_all() {
  local note pid born
  if [ -z "$port" ]; then
    local ports
    ports=$(for note in "$dir"/pid-*; do [ -e "$note" ] && basename "$note" | cut -d- -f2; done | sort -u)
    [ "$(wc -w <<<"$ports")" -le 1 ] || fail "servers are running on several ports ($(xargs <<<"$ports")); name one with --port"
    port=$ports
  fi
  for note in "$dir/pid-${port:-none}" "$dir/pid-${port:-none}"-*; do
    [ -e "$note" ] || continue
    read -r pid born <"$note"
    if [ -z "$born" ] || [ "$born" = "$(started_at "$pid")" ]; then
      kill -TERM -- "-$pid" 2>/dev/null || kill -TERM "$pid" 2>/dev/null || true
      for _ in $(seq 300); do alive "$pid" || break; sleep 0.1; done
      # Workers share the session of the server; some outlive it.
      kill -KILL -- "-$pid" 2>/dev/null || true
    fi
    rm -f "$note"
  done
}

# ready: what every start ends with.
ready() { echo "http://127.0.0.1:$port/v1"; }
