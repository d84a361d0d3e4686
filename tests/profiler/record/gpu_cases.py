"""Records programs on this machine's GPU and on the null device of that GPU: every allocation, free
and segment has to be the same, in the same order. Phase 3 of tests/gpu/run.sh runs these programs,
and attached_cases.py compares a null device with itself.

recorded.py says which Python runs them.
"""

import json
import pathlib
import tempfile

from record_cases import check_events, events_in
from recorded import HERE, PYTHON, Recorded

# The Python of a null device may have no cuDNN, which attention prefers on newer GPUs.
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
    """Raises AssertionError if they differ. `out` gets what was recorded on the GPU, whose name in
    Shardlens is `gpu`."""
    on_gpu = events_of(PROGRAMS[name], [])
    pathlib.Path(out, f"record_{name}.json").write_text(json.dumps({"gpu": gpu, "events": on_gpu}))
    check_events(events_of(PROGRAMS[name], ["--device", f"null:{gpu}", "--world", "1"]), on_gpu)
