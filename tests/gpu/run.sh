#!/usr/bin/env bash
# What only a GPU can check: numerics against the CPU, NCCL's calls, and that the null device
# allocates exactly what the GPU does, for us and for PyTorch's programs. Build first (make build),
# here or on a machine of the same system; then
#
#     tests/gpu/run.sh [OUT]     OUT: a folder for the recordings, kept as tests/fixtures/gpu
#
# Without a GPU it says what was not checked, and fails nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=build/bin
out=${1:-build/gpu}

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "no GPU here. Not checked: numerics on CUDA against the CPU; NCCL's init, gather, reduce and"
  echo "abort; that the null device's allocation sequence is a GPU's."
  exit 0
fi

mkdir -p "$out"
failed=0
passed=0
verdict() { # STATUS WHAT
  if [ "$1" = 0 ]; then
    passed=$((passed + 1))
    echo "ok      $2"
  else
    failed=$((failed + 1))
    echo "FAILED  $2"
  fi
}

status=0
timeout 300 "$bin/gpu_tests" "[gpu]" || status=$?
verdict "$status" "numerics and NCCL on the GPU"

# Two ranks on one GPU, through host memory, against two on the CPU.
losses() { # DEVICE COMMUNICATOR
  timeout 300 "$bin/shardlens" train --device "$1" --communicator "$2" --workers 2 --steps 20 \
    --data synthetic --storage "$out/runs" --name "$1" --fresh --log-every 1 >/dev/null &&
    sed 's/.*"loss":\([^,]*\),.*/\1/' "$out/runs/$1/metrics.jsonl"
}
status=0
paste <(losses cuda gloo) <(losses cpu local) |
  awk '{ d = $1 / $2 - 1; if (d < 0) d = -d; if (d > 1e-4) bad = 1; n++ } END { exit bad || n != 20 }' ||
  status=$?
verdict "$status" "two ranks on one GPU give the losses of two on the CPU"

for case in "vit-tutorial fsdp fp32 2 64" "vit-tutorial fsdp bf16 8 64" "vit-tutorial ddp fp32 2 64" \
  "vit-l16 fsdp fp32 8 8" "vit-l16 fsdp bf16 8 8" "vit-l16 ddp bf16 2 8"; do
  name=${case// /_}
  status=0
  # shellcheck disable=SC2086  # the words of a case are arguments
  timeout 300 "$bin/print_allocations" cuda $case 3 >"$out/$name.txt" || status=$?
  gpu=$(sed -n '1s/gpu //p' "$out/$name.txt")
  # shellcheck disable=SC2086
  timeout 300 "$bin/print_allocations" "null:$gpu" $case 3 >"$out/null.txt" || status=$?
  cmp "$out/$name.txt" "$out/null.txt" || status=$?
  verdict "$status" "$case: the null $gpu allocates what the GPU does, event by event"
done

status=0
SHARDLENS_PYTHONS=${SHARDLENS_DEPS:-.deps}/python/bin/python \
  timeout 1800 python3 tests/record/gpu_cases.py "$gpu" "$out" || status=$?
verdict "$status" "PyTorch's programs are recorded on the null $gpu as on the GPU"
rm -rf "$out/null.txt" "$out/runs"
echo "$passed passed, $failed failed; recordings are in $out"
[ "$failed" = 0 ]
