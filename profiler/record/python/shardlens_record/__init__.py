"""Records the unmodified PyTorch program of this process for `shardlens record`.

SHARDLENS_RECORD is the JSON that the command wrote (profiler/record/recorded_run.cpp):
  library     libshardlens_python.so; null: PyTorch's own history is recorded (history.py)
  torch       the version of PyTorch that the library was built from
  python      the interpreter that was asked which PyTorch it has
  folder      where to put rankR.slp, rankR.json beside it once it is closed, and rankR.CLAIM
  messages    where ranks leave the objects that they send each other (absent.py)
  accounts    where each process writes down how far it got (account.py)
  claim       CLAIM, unique to one `shardlens record`: those of other machines may share the folder
  device      "null:h100", or "cuda": the program runs on its GPUs, and nothing is replaced
  rank, world, gpus_per_node   null if the program or torchrun sets them
  steps       the optimizer step to end after, or null: none
  routing     how tokens choose experts, and routing_factor, as shardlens_set_routing takes them
  true_at     where unknown tensors that the program decides by are True, as "train.py:30"
  init        "keep": random values of weights on the host are all drawn (fills.py)
  levers      what --with changes (levers/), as {"recompute": "full"}
  look        True: find out which levers apply, and change nothing
  holders     True: find the variables that hold what grows (holders.py)
  command     the user's command
  flags       those of `shardlens record` that make the recording again, kept in it with the command
  directory   in which the command was given, also kept
  event_times     libshardlens_event_times.so, and calibration, a file or "" (timing.py)
  tells_imports   True: tell which modules the program imports, for variants to come (warm.py)
  asked_for   for a process that is not recorded but run for its messages: the file that says which
              message is wanted, and the process that wants it (absent.py)

Modules are changed right after they have been executed (imports.py): no module is imported that the
program does not import itself. No hook raises into the program (guards.py).
"""

import json
import os

OPTIONS = json.loads(os.environ["SHARDLENS_RECORD"])
IS_ATTACHED = OPTIONS["device"] == "cuda"
ASKED_FOR = OPTIONS.get("asked_for")
PULLED = OPTIONS.get("levers") or {}
LOOKS = bool(OPTIONS.get("look"))
IS_SERVER = "SHARDLENS_WARM" in os.environ  # forks for variants (warm.py), or was forked from one


def _changes():
    """Returns, by a module's name, the functions that change it once it has been executed."""
    from . import (collectives, cudnn, experts, fills, missing_calls, parts, ranks, recording, timing,
                   uses, values)

    always = {
        "torch": [recording.follow_values if ASKED_FOR else recording.prepare, uses.prepare,
                  parts.watch_saves],
        "torch.cuda.graphs": [uses.watch_graphs],
        "torch.utils.checkpoint": [uses.watch_checkpoint],
        "torch._higher_order_ops.wrap": [uses.watch_compiled_checkpoint],
        "torch.autograd.graph": [recording.watch_backward, uses.watch_saved_tensors],
        "torch._inductor.utils": [recording.watch_compiled],
        "torch.distributed.fsdp._fully_shard._fully_shard": [uses.watch_fsdp2],
        "torch.distributed.fsdp.fully_sharded_data_parallel": [uses.watch_fsdp1],
        "torch.distributed.optim.zero_redundancy_optimizer": [uses.watch_zero],
        "torch.distributed.tensor.parallel.api": [uses.watch_tensor_parallel],
        "deepspeed": [uses.watch_deepspeed],
        "torch.distributed.fsdp._fully_shard._fsdp_param_group": [recording.watch_fsdp2],
        "torch.utils.data.dataloader": [parts.watch_input],
        "torch.distributed.checkpoint.state_dict_saver": [parts.watch_distributed_saves],
        "safetensors.torch": [parts.watch_safetensors],
        "torch.distributed.checkpoint.state_dict": [recording.watch_checkpoints],
        "ray.train.v2._internal.execution.worker_group.worker": [recording.end_with_ray_worker],
    }
    if IS_ATTACHED:
        return always | {"torch.multiprocessing.spawn": [ranks.tell_spawned],
                         "torch.nn.parallel.distributed": [uses.watch_ddp]}
    return always | {
        "torch": [*always["torch"], cudnn.prepare, values.watch, fills.watch,
                  ranks.count_null_devices],
        "ctypes": [missing_calls.watch_ctypes],
        "torch.distributions.distribution": [values.check_no_arguments],
        "torch.testing._comparison": [values.pass_comparisons],
        "torch.distributed.device_mesh": [experts.watch_meshes],
        "torch.distributed.distributed_c10d": [collectives.replace_absent, recording.watch_waits],
        "torch.distributed.pipelining.stage": [collectives.derive_gradients],
        "torch._inductor.fx_passes.node_runtime_estimation": [collectives.measure_no_collectives],
        "torch.distributed.utils": [ranks.ignore_others_shapes],
        "torch.distributed.checkpoint.utils": [ranks.plan_checkpoints_alone],
        "torch.distributed.checkpoint.default_planner": [ranks.accept_parts_of_checkpoints],
        "torch.distributed.fsdp._optim_utils": [ranks.complete_optimizer_states],
        "torch.distributed.launcher.api": [ranks.replace_torchrun],
        "torch.multiprocessing.spawn": [ranks.replace_spawn],
        "torch.nn.attention": [cudnn.allow_other_attention],
        "torch.nn.parallel.distributed": [ranks.reduce_alone, uses.watch_ddp],
        "triton.runtime.autotuner": [timing.take_first],
    }


def wait_for_pytorch():
    from . import absent, account, imports, missing_calls, ranks

    if not IS_SERVER:
        account.begin()
    if ASKED_FOR:
        absent.end_with_asker()
    if not IS_ATTACHED:
        ranks.give_gpus_to_launcher()
        ranks.settle_under_deepspeed()
        missing_calls.watch_extensions()
    imports.change_when_executed(_joined(_changes(), _changes_of_levers()), _note_of_imports())


def _note_of_imports():
    """Returns what is to be told of each import; None: nothing, in most programs."""
    if not IS_SERVER and not OPTIONS.get("tells_imports"):
        return None
    from . import warm

    return warm.note_import


def _changes_of_levers():
    if not (PULLED or LOOKS or IS_SERVER):
        return {}  # most programs: importing the levers takes 10 ms
    from . import levers

    return levers.changes()


def serve():
    """Forks for variants of the program, if this is the process for that (warm.py). Returns in each
    child, which goes on as if it had just been started."""
    if not IS_SERVER:
        return
    from . import absent, account, levers, warm

    warm.serve()
    absent.begin()
    account.begin()
    account.tell_once("torch")
    levers.begin()


def _joined(changes, more):
    return {name: [*changes.get(name, []), *more.get(name, [])] for name in changes | more}
