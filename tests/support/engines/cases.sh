# shellcheck shell=bash
# Helps the cases of engines_test.cpp; sourced, never run. RUN is the folder of the run.

# wait_until SECONDS COMMAND...: until the command succeeds.
wait_until() {
  local last=$((SECONDS + $1))
  shift
  until "$@"; do
    if ((SECONDS >= last)); then
      echo "waited in vain: $*" >&2
      return 1
    fi
    sleep 0.05
  done
}

has_saved() { [ -e "$RUN/checkpoints/LATEST" ]; }
wait_saved() { wait_until 60 has_saved; }

# note_strike: writes beside the run the time, as events.jsonl does, and the newest checkpoint.
note_strike() {
  mkdir -p "${RUN%/*}"
  { date -u +%FT%T.%3NZ; cat "$RUN/checkpoints/LATEST" 2>/dev/null || true; } >"$RUN.struck"
}

# note_end: writes beside the run the time at which something ended.
note_end() { date -u +%FT%T.%3NZ >"$RUN.ended"; }

# rank_process RANK VARIABLE: the process of a rank, by the variable that has its number.
rank_process() {
  local process
  for process in $(pgrep -x shardlens-train); do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$process/environ" | grep -qx "$2=$1" || echo "$process"
  done
}

has_rank() { [ -n "$(rank_process "$@")" ]; }

# kill_rank RANK VARIABLE: waits until the rank has started, and until it is gone.
kill_rank() {
  local process
  wait_until 60 has_rank "$@"
  process=$(rank_process "$@")
  kill -9 "$process"
  wait_until 20 test ! -e "/proc/$process"
}

job_is() { scontrol show job "$1" --oneliner | grep -qE "JobState=($2)\b"; }
# wait_job JOB STATES SECONDS
wait_job() { wait_until "$3" job_is "$1" "$2"; }
# job_field JOB NAME
job_field() { scontrol show job "$1" --oneliner | grep -oP "\b$2=\K\S+"; }
