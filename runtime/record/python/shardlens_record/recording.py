"""Begins the recording when PyTorch has initialised CUDA, marks its steps, says what blocks turned
out to be, and ends it with the program. profiler/recorder_python.h says what the library does."""

import atexit
import contextlib
import ctypes
import functools
import importlib
import json
import os
import sys
import weakref

from . import IS_ATTACHED, OPTIONS, ranks, say, values

# Of profiler/profile.h.
PARAMETER_SHARD, GRADIENT_SHARD, OPTIMIZER_STATE, GRADIENT = 0, 1, 2, 5

# Of c10::CachingDeviceAllocator::RecordContext.
HISTORY_CONTEXT = {None: 0, "state": 1, "alloc": 2, "all": 3}

NOTICE = "" if IS_ATTACHED else "null device: memory is real, values are not"


class _Start(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("path", "device", "notice", "libraries",
                                                     "config")]
    _fields_ += [(name, ctypes.c_int32) for name in ("rank", "world_size", "gpu", "is_attached")]


class _End(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("events", "lost_events", "retries",
                                                    "peak_allocated_bytes", "peak_reserved_bytes")]


class _Recording:
    library = None  # while there is one
    process = 0
    rank = 0
    step = -1  # the one that is running; -1: no optimizer has been made
    stepping = None  # the optimizer whose steps are counted
    classed = weakref.WeakSet()  # optimizers whose parameters and state have been told of
    makes_state = False  # a step is none of the program's
    ended_early = False
    history = None  # the program's own, as it was last asked for


def _load():
    library = ctypes.PyDLL(OPTIONS["library"])  # keeps Python's lock
    library.shardlens_record_begin.restype = ctypes.c_char_p
    library.shardlens_record_driver_fault.restype = ctypes.c_char_p
    library.shardlens_record_end.restype = ctypes.c_bool
    library.shardlens_record_step.argtypes = [ctypes.c_int64]
    library.shardlens_record_recategorise.argtypes = [ctypes.c_uint64, ctypes.c_int32]
    library.shardlens_record_share_history.argtypes = [ctypes.c_int32, ctypes.c_int64,
                                                       ctypes.c_int32]
    return library


def _file(ending):
    return os.path.join(OPTIONS["folder"], f"rank{_Recording.rank}.{ending}")


def _claim():
    """False where another process of this rank has a recording already."""
    try:
        with open(_file(OPTIONS["claim"]), "x", encoding="utf-8") as claim:
            claim.write(str(os.getpid()))
    except FileExistsError:
        say(f"process {os.getpid()} uses the GPU too; only the first of a rank is recorded")
        return False
    return True


def begin(torch):
    if _Recording.library is not None:
        return
    _Recording.rank, world_size, local_rank = ranks.own_place()
    if not _claim():
        return
    library = _load()
    libraries = f"PyTorch {torch.__version__}\nPython {sys.version.split()[0]}\n"
    start = _Start(
        path=_file("slp").encode(),
        device=OPTIONS["device"].encode(),
        notice=NOTICE.encode(),
        libraries=libraries.encode(),
        config=json.dumps({"command": OPTIONS["command"]}).encode(),
        rank=_Recording.rank,
        world_size=world_size,
        gpu=min(local_rank, torch._C._cuda_getDeviceCount() - 1),
        is_attached=IS_ATTACHED,
    )
    failure = library.shardlens_record_begin(ctypes.byref(start))
    if failure:
        say(f"nothing is recorded: {failure.decode()}")
        return
    _Recording.library = library
    _Recording.process = os.getpid()
    fault = library.shardlens_record_driver_fault()
    if fault:
        say(f"{fault.decode()}: what others than PyTorch allocate is not recorded")
    if _Recording.history:
        library.shardlens_record_share_history(*_Recording.history)
    if not IS_ATTACHED:
        atexit.register(_wait_for_autograd, torch)
    atexit.register(end)  # is called first


def _is_recording():
    return _Recording.library is not None and _Recording.process == os.getpid()


def _wait_for_autograd(torch):
    """A thread of autograd's that lets go of a callback in Python when that ends aborts the process:
    PyTorch's own fault, but a GPU takes longer. It does so before it turns to another backward."""
    if _Recording.step > 0 and _Recording.process == os.getpid():
        with contextlib.suppress(RuntimeError):  # the program has left no memory
            torch.zeros(1, device="cuda", requires_grad=True).sum().backward()


def end():
    """Closes the recording, and leaves beside it what only this process knows."""
    if not _is_recording():
        return
    found = _End()
    _Recording.library.shardlens_record_workspaces()
    if not _Recording.library.shardlens_record_end(ctypes.byref(found)):
        return
    _Recording.library = None
    values.say_unmet()
    facts = {name: getattr(found, name) for name, _ in _End._fields_}
    facts |= {"steps": max(_Recording.step, 0), "values_read": values.counts()}
    with open(_file("json"), "w", encoding="utf-8") as file:
        json.dump(facts, file)


# --- what blocks are ------------------------------------------------------------------------------


def _tell(tensor, category):
    local = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
    if not local.is_cuda:
        return
    storage = local.untyped_storage()
    if storage.nbytes() > 0:
        _Recording.library.shardlens_record_recategorise(storage.data_ptr(), category)


def _parameters(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _is_sharded(parameter):
    return hasattr(parameter, "_local_tensor") or hasattr(parameter, "_sharded_size")


def _tell_gradients(optimizer):
    for parameter in _parameters(optimizer):
        if parameter.grad is not None:
            _tell(parameter.grad, GRADIENT_SHARD if _is_sharded(parameter) else GRADIENT)


def _tell_state(optimizer, torch):
    """Once: neither parameters nor state move after the first step, unless they are loaded."""
    if optimizer in _Recording.classed:
        return
    _Recording.classed.add(optimizer)
    for parameter in _parameters(optimizer):
        _tell(parameter, PARAMETER_SHARD)
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                _tell(value, OPTIMIZER_STATE)


def watch_fsdp2(module):
    """Gradients of gathered parameters are gone before the optimizer sees any."""
    group = module.FSDPParamGroup
    inner = group.post_backward

    def tell(self):
        if _is_recording():
            for parameter in self.fsdp_params:
                whole = getattr(parameter, "_unsharded_param", None)
                if whole is not None and whole.grad is not None:
                    _tell(whole.grad, GRADIENT)

    def post_backward(self, *args):
        tell(self)
        return inner(self, *args)

    group.post_backward = post_backward


# --- steps ----------------------------------------------------------------------------------------


def _step_begins():
    _Recording.step += 1
    _Recording.library.shardlens_record_step(_Recording.step)


def _made(optimizer):
    if not _is_recording():
        return
    _Recording.stepping = None  # the program goes on with another one
    if _Recording.step < 0:
        for parameter in _parameters(optimizer):
            _tell(parameter, PARAMETER_SHARD)
        _step_begins()


def _before_step(optimizer, *_):
    if _is_recording():
        _tell_gradients(optimizer)


def _end_early():
    _Recording.ended_early = True
    say(f"ended after step {_Recording.step}, as --steps says")
    end()
    sys.stdout.flush()
    raise SystemExit(0)


def _after_step(optimizer, torch):
    if _Recording.ended_early:
        os._exit(0)  # the program has caught SystemExit
    if not _is_recording() or _Recording.makes_state:
        return
    _tell_state(optimizer, torch)
    if _Recording.stepping is None:
        _Recording.stepping = id(optimizer)
    if _Recording.stepping != id(optimizer):
        return  # of several that take turns, the first one's steps are the program's
    _Recording.library.shardlens_record_workspaces()
    _step_begins()
    if OPTIONS["steps"] is not None and _Recording.step >= OPTIONS["steps"]:
        _end_early()


def _watch_optimizers(torch):
    hooks = importlib.import_module("torch.optim.optimizer")  # torch.optim hides its name
    hooks.register_optimizer_step_pre_hook(_before_step)
    hooks.register_optimizer_step_post_hook(lambda optimizer, *_: _after_step(optimizer, torch))
    made, load = torch.optim.Optimizer.__init__, torch.optim.Optimizer.load_state_dict

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        _made(self)

    @functools.wraps(load)
    def load_state_dict(self, *args, **kwargs):
        load(self, *args, **kwargs)
        _Recording.classed.discard(self)

    torch.optim.Optimizer.__init__ = init
    torch.optim.Optimizer.load_state_dict = load_state_dict


def watch_checkpoints(module):
    """torch.distributed.checkpoint lets an optimizer make its state by a step with no gradients."""
    inner = module._init_optim_state

    def init(*args, **kwargs):
        _Recording.makes_state = True
        try:
            inner(*args, **kwargs)
        finally:
            _Recording.makes_state = False

    module._init_optim_state = init


# --- PyTorch --------------------------------------------------------------------------------------


def _share_history(torch):
    """The allocator has one history: the program's own, if it wants one, and ours in one."""
    memory = torch.cuda.memory
    inner = memory._record_memory_history

    def record(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, *args,
               **kwargs):
        inner(enabled, context, stacks, max_entries, *args, **kwargs)
        wanted = HISTORY_CONTEXT.get(context, 0) if enabled else 0
        _Recording.history = (wanted, max_entries if enabled else 1, stacks == "all")
        if _is_recording():
            _Recording.library.shardlens_record_share_history(*_Recording.history)

    memory._record_memory_history = record


def _watch_profiler(torch):
    profile = torch.profiler.profile
    inner = profile.start

    def start(self):
        if not IS_ATTACHED:
            say("the program uses torch.profiler: it sees no kernels, and its times mean nothing")
        elif _is_recording():
            say("the program uses torch.profiler, which wants CUPTI for itself: from here on what "
                "others than PyTorch allocate is not recorded")
            _Recording.library.shardlens_record_leave_driver()
        return inner(self)

    profile.start = start


def prepare(torch):
    """When the allocator is there and nothing has been allocated yet."""
    inner = torch._C._cuda_init

    def init():
        inner()
        begin(torch)

    torch._C._cuda_init = init
    _watch_optimizers(torch)
    _share_history(torch)
    _watch_profiler(torch)
