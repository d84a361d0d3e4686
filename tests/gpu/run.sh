#!/usr/bin/env bash
# Checks what only a GPU can show, in nine phases: facts, sequences, programs, prediction, numerics,
# time, survival, histories, peaks. It runs in a folder that tests/gpu/pack has made, or in which
# Shardlens was built, on a machine whose python3 has PyTorch.
#
#     tests/gpu/run.sh [--out DIR] [--copy DIR] [--few] [--limit S] [PHASE...]     see --help
#
# With SHARDLENS_GPU=null:h200 a null device stands for the machine's GPU: a rehearsal.
set -euo pipefail
command -v python3 >/dev/null || {
  echo "run.sh: python3 with PyTorch is missing; put its folder into PATH" >&2
  exit 2
}
exec python3 "$(dirname "$0")/driver.py" "$@"
