"""Notes which ways of saving memory the program uses, and at which of its lines: advice must not name
what is in use already, nor what would not help (profiler/record/advice/advice.h). Each is noted when it is
called, which costs about a microsecond; what is asked often is noted once for each line."""

import functools
import os
import sys
import weakref

from . import models, program_code
from .guards import guarded, replace

_UNKNOWN = "advice may name what the program does already"

_lines = {}  # by what is used: the program's lines, in order
_facts = {}  # by name: a number, a text or a bool
_optimizers = {}  # by name and line
_seen = set()  # code and instruction of callers that have been noted
_pools = {"cuda_graph": set(), "graphed_callable": set()}  # ids of the pools of captured graphs
_vocabularies = set()

_LEAST_VOCABULARY = 1000
_MOST_LINES = 8  # of one use
_BACKWARDS = "backward_calls"


def _caller():
    """Returns the frame of the program that calls, else that of a library that it uses."""
    frame = sys._getframe(1)
    return program_code.own_frame(frame) or program_code.frame_outside_pytorch(frame)


def has_trained():
    """True from the first backward on."""
    return _BACKWARDS in _facts


def _note(what):
    """Notes the program's line that uses this; cheap if the same call was noted before."""
    outer = sys._getframe(1)
    while outer.f_code.co_filename == __file__:
        outer = outer.f_back
    key = (what, outer.f_code, outer.f_lasti)
    if key in _seen:
        return
    _seen.add(key)
    lines, line = _lines.setdefault(what, []), _line_of(_caller())
    if line and line not in lines and len(lines) < _MOST_LINES:
        lines.append(line)


def _line_of(frame):
    """Returns the place of a frame as reports write it, without the function: "train.py:30"."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _add(name, number=1):
    _facts[name] = _facts.get(name, 0) + number


def _noting(note):
    """Returns a wrapper that calls `note` with a call's arguments before the call."""
    safe = guarded(_UNKNOWN)(note)

    def wrap(inner):
        @functools.wraps(inner)
        def call(*args, **kwargs):
            safe(*args, **kwargs)
            return inner(*args, **kwargs)

        return call

    return wrap


# --- sharding ----------------------------------------------------------------------------------------


def _note_fully_shard(module, *_, reshard_after_forward=None, mp_policy=None, offload_policy=None, **__):
    _note("fsdp2")
    _add("fsdp2_units")
    if reshard_after_forward is False:
        _note("fsdp2_no_reshard")
    if getattr(mp_policy, "param_dtype", None) is not None:
        _note("fsdp2_param_dtype")
    if type(offload_policy).__name__ == "CPUOffloadPolicy":
        _note("fsdp2_offload")


def _note_gradient_sync(_, requires_gradient_sync, **__):
    if not requires_gradient_sync:
        _note("fsdp2_deferred_sync")


def watch_fsdp2(module):
    replace(module, "fully_shard", _noting(_note_fully_shard))
    replace(module.FSDPModule, "set_requires_gradient_sync", _noting(_note_gradient_sync))


def _note_fsdp1(self, module, *_, cpu_offload=None, mixed_precision=None, sharding_strategy=None, **__):
    _note("fsdp1")
    _add("fsdp1_units")
    if getattr(mixed_precision, "param_dtype", None) is not None:
        _note("fsdp1_param_dtype")
    if getattr(cpu_offload, "offload_params", False):
        _note("fsdp1_offload")
    if getattr(sharding_strategy, "name", "") in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
        _note("fsdp1_no_reshard")
    if getattr(sharding_strategy, "name", "") == "NO_SHARD":
        _note("fsdp1_no_shard")


def watch_fsdp1(module):
    wrapper = module.FullyShardedDataParallel
    replace(wrapper, "__init__", _noting(_note_fsdp1))
    replace(wrapper, "no_sync", _noting(lambda *_: _note("fsdp1_deferred_sync")))


def _note_ddp(self, module, *_, gradient_as_bucket_view=False, **__):
    _note("ddp")
    if gradient_as_bucket_view:
        _note("ddp_bucket_view")


def watch_ddp(module):
    replace(module.DistributedDataParallel, "__init__", _noting(_note_ddp))


def watch_zero(module):
    replace(module.ZeroRedundancyOptimizer, "__init__", _noting(lambda *_, **__: _note("zero")))


def watch_deepspeed(module):
    replace(module, "initialize", _noting(lambda *_, **__: _note("zero")))


def watch_tensor_parallel(module):
    replace(module, "parallelize_module", _noting(lambda *_, **__: _note("tensor_parallel")))


# --- activations -------------------------------------------------------------------------------------


def _note_recompute(*_, **__):
    _note("recompute")


def watch_checkpoint(module):
    """Watches below torch.utils.checkpoint.checkpoint, which torch.compile knows by identity."""
    replace(module, "_checkpoint_without_reentrant_generator", _noting(_note_recompute))
    replace(module.CheckpointFunction, "apply", _noting(_note_recompute))


def watch_compiled_checkpoint(module):
    replace(module.TagActivationCheckpoint, "divide_kwargs", _noting(_note_recompute))


def watch_saved_tensors(module):
    replace(module.save_on_cpu, "__init__", _noting(lambda *_, **__: _note("save_on_cpu")))


def _note_autocast(self, device_type=None, *_, enabled=True, **__):
    if enabled and device_type in (None, "cuda"):
        _note("autocast")


# --- evaluation ----------------------------------------------------------------------------------------

_WITH_GRAD = "evaluation_with_grad"
_evaluation = {}  # of the model that was put into eval mode with gradients enabled, while it lasts


def _allocated_peak(torch):
    if not torch.cuda.is_initialized():
        return 0
    return torch.cuda.memory_stats().get("allocated_bytes.all.peak", 0)


def _end_evaluation(torch, is_at_end=False):
    """Notes an evaluation that kept what backward needs, though none came, if memory peaked in it."""
    one = dict(_evaluation)
    _evaluation.clear()
    if not one or one["is_without_grad"] or _facts.get(_BACKWARDS, 0) != one["backwards"]:
        return
    peak = _allocated_peak(torch)
    if peak <= one["peak"]:
        return
    _lines.setdefault(_WITH_GRAD, [])[:] = [one["line"]]
    _facts["evaluation_peak_bytes"] = peak
    _facts["evaluates_at_end"] = is_at_end


def _watch_evaluation(torch):
    def note_mode(model, mode=True):
        if _evaluation:
            if mode and model is _evaluation["model"]():
                _end_evaluation(torch)
            return
        if mode or not torch.is_grad_enabled() or not any(p.requires_grad for p in model.parameters()):
            return
        _evaluation.update(
            model=weakref.ref(model), line=_line_of(_caller()), backwards=_facts.get(_BACKWARDS, 0),
            peak=_allocated_peak(torch), is_without_grad=False)

    def note_no_grad(*_, **__):
        if _evaluation and not _evaluation["is_without_grad"]:
            _evaluation["is_without_grad"] = not _is_in_module()

    replace(torch.nn.Module, "train", _noting(note_mode))
    for context in (torch.no_grad, torch.inference_mode):
        replace(context, "__enter__", _noting(note_no_grad))
    replace(torch.set_grad_enabled, "__init__", _noting(note_no_grad))


def _is_in_module():
    """Returns True in the forward of a module, where positions are computed without gradients, say."""
    frame = sys._getframe(1)
    while frame is not None:
        if program_code.calls_module(frame):
            return True
        frame = frame.f_back
    return False


# --- gradients and optimizers ------------------------------------------------------------------------


def _watch_backward(torch):
    """Counts backwards, and not those that a recomputation runs within another."""
    running = torch._C._current_graph_task_id

    def note(*_, **__):
        _note("backward")
        if running() == -1:
            _add(_BACKWARDS)

    replace(torch.autograd, "backward", _noting(note))


def _note_scaler(self, *args, enabled=True, **__):
    if enabled and False not in args:
        _note("grad_scaler")


def _watch_gradients(torch):
    _watch_backward(torch)
    clipping = _noting(lambda *_, **__: _note("clip_gradients"))
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        replace(torch.nn.utils, name, clipping)
    replace(torch.amp.GradScaler, "__init__", _noting(_note_scaler))


@guarded(_UNKNOWN)
def note_optimizer(optimizer):
    models.optimizers.add(optimizer)
    kind, line = type(optimizer), _line_of(_caller())
    has_small_state = kind.__module__.startswith(("bitsandbytes", "torchao")) or "8bit" in kind.__name__
    _optimizers[kind.__name__, line] = {
        "name": kind.__name__, "line": line, "fused": bool(optimizer.defaults.get("fused")),
        "low_bit": has_small_state}


_SETTLED_STEP = 2  # by which models have names


@guarded(_UNKNOWN)
def note_step(step):
    """Notes the gradients that no optimizer uses, once: they are there in each step or in none."""
    if step != _SETTLED_STEP:
        return
    unused = models.find_unstepped()
    if unused:
        sizes = [(gradient.nbytes, name) for name, gradient in unused if gradient.is_cuda]
        _facts.update(unstepped_gradients=len(sizes), unstepped_gradient_bytes=sum(size for size, _ in sizes),
                      largest_unstepped=max(sizes, default=(0, ""))[1])


# --- the rest ----------------------------------------------------------------------------------------


def _note_embedding(self, num_embeddings, *_, **__):
    if num_embeddings >= _LEAST_VOCABULARY:
        _vocabularies.add(int(num_embeddings))


def _is_graphed_callable():
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "make_graphed_callables":
        frame = frame.f_back
    return frame is not None


@guarded(_UNKNOWN)
def _note_graph(graph):
    """Keeps graphs of make_graphed_callables apart: each call captures on its own stream,
    so that its graphs cannot use what is free in another's pool."""
    kind = "graphed_callable" if _is_graphed_callable() else "cuda_graph"
    _note(f"{kind}s")
    _add(f"{kind}_captures")
    _pools[kind].add(tuple(graph.pool()))


def _capturing(end):
    @functools.wraps(end)
    def capture_end(self, *args, **kwargs):
        result = end(self, *args, **kwargs)
        _note_graph(self)
        return result

    return capture_end


def watch_graphs(module):
    replace(module.CUDAGraph, "capture_end", _capturing)


def _watch_calls(torch):
    replace(torch.autocast, "__init__", _noting(_note_autocast))
    replace(torch.nn.Embedding, "__init__", _noting(_note_embedding))
    replace(torch.nn.Module, "load_state_dict", _noting(lambda *_, **__: _note("load_state_dict")))
    _watch_gradients(torch)
    _watch_evaluation(torch)


def prepare(torch):
    guarded(_UNKNOWN)(_watch_calls)(torch)


def _is_expandable():
    settings = (os.environ.get("PYTORCH_ALLOC_CONF"), os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))
    return any("expandable_segments:True" in each for each in settings if each)


def _names_fsdp():
    """Returns True if the program's main module has a name for FSDP: it may shard what it has not
    sharded yet."""
    names = vars(sys.modules["__main__"]).values() if "__main__" in sys.modules else ()
    return any(getattr(value, "__name__", None) in ("fully_shard", "FullyShardedDataParallel")
               for value in list(names))


@guarded(_UNKNOWN, {})
def all_uses(steps):
    """Returns what is used, as JSON: `lines` by what is used, `optimizers`, and counts. The last
    backward may have come to no step."""
    if _evaluation:
        _end_evaluation(sys.modules["torch"], is_at_end=True)
    return {"lines": dict(_lines), "optimizers": list(_optimizers.values()),
            "expandable_segments": _is_expandable(),
            "names_fsdp": _names_fsdp(),
            "accumulates_gradients": _facts.get(_BACKWARDS, 0) > steps + 1,
            "compile": "torch._inductor.compile_fx" in sys.modules,
            "cuda_graph_pools": len(_pools["cuda_graph"]),
            "graphed_callable_pools": len(_pools["graphed_callable"]),
            "vocabularies": sorted(_vocabularies), **_facts}
