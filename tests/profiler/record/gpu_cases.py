"""The programs that are recorded on a GPU and on the null device of its kind: phase 3 of
tests/gpu/run.sh runs them, and attached_cases.py, where a null device stands for the GPU.

recorded.py says which Python runs them.
"""

from recorded import PYTHON  # noqa: F401

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
