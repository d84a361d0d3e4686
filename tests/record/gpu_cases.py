"""Records programs on this machine's GPU, and on the null device of that GPU: every allocation, free
and segment has to be the same, in the same order.

    gpu_cases.py GPU OUT

GPU is its name to Shardlens, such as h200. OUT gets what was recorded on it, a file a program.
recorded.py says which Python runs them. Is run by tests/gpu/run.sh.
"""

import json
import pathlib
import sys
import tempfile

from record_cases import check_events, events_in
from recorded import HERE, PYTHON, Recorded

# The null device has no cuDNN, which attention prefers on newer GPUs, and convolutions on all.
ALONE = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
         "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
PROGRAMS = {
    "plain": ["transformer.py", "--strategy", "plain"],
    "plain_single": ["transformer.py", "--strategy", "plain", "--optimizer", "single"],
    "ddp": ["transformer.py", "--strategy", "ddp", "--accumulate", "3", "--clip", "1"],
    "fsdp1": ["transformer.py", "--strategy", "fsdp1"],
    "fsdp2_bf16_fused": ["transformer.py", "--optimizer", "fused", "--bf16"],
    "fsdp2_offloaded": ["transformer.py", "--offload", "--clip", "1"],
    "fsdp2_recomputed": ["transformer.py", "--checkpoint-activations"],
    "guide": ["guide.py", "--clip", "--mixed-precision"],
    "llama": ["llama.py"],
}


def events_of(program, place):
    script, *flags = program
    with tempfile.TemporaryDirectory() as folder:
        run = Recorded(folder, PYTHON, HERE / "scripts" / script, *flags, flags=place, more=ALONE)
        return events_in(run.expect(0).out, folder)


def compare(name, gpu, out):
    """Raises AssertionError where they differ."""
    on_gpu = events_of(PROGRAMS[name], [])
    pathlib.Path(out, f"record_{name}.json").write_text(json.dumps({"gpu": gpu, "events": on_gpu}))
    check_events(events_of(PROGRAMS[name], ["--device", f"null:{gpu}", "--world", "1"]), on_gpu)


def main():
    failed = 0
    for name in PROGRAMS:
        try:
            compare(name, *sys.argv[1:])
            print(f"ok      {name}: recorded on the null {sys.argv[1]} as on the GPU", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"FAILED  {name}: {error}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
