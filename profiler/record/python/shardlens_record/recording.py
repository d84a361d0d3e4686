"""Begins the recording when PyTorch has initialised CUDA, marks its steps, reports what blocks turned
out to be, and ends it with the program. The recorder itself is in C++ (library.py), or is PyTorch's
own history (history.py)."""

import atexit
import contextlib
import functools
import importlib
import json
import os
import subprocess
import sys
import time
import weakref

from . import (IS_ATTACHED, OPTIONS, account, blocks, bounds, compiled, counters, cudnn, experts,
               fills, groups, history, library, models, parts, ranks, sources, timing, uses, values)
from .guards import describe, doubts, guarded, replace, say

# Most programs are recorded without it, and start sooner.
holders = importlib.import_module(".holders", __package__) if OPTIONS.get("holders") else None

# These are the values of c10::CachingDeviceAllocator::RecordContext.
HISTORY_CONTEXT = {None: 0, "state": 1, "alloc": 2, "all": 3}

NOTICE = "" if IS_ATTACHED else "null device: memory is real, values are not"

_AUTOGRAD_ENDS_S = 0.1  # a thread that waits for Python's lock needs less

# This is what is in doubt if a hook has failed.
_STEPS = "steps of the recording may be missing"


class _Recording:
    recorder = None  # while there is one
    process = 0
    rank = 0
    step = -1  # the current step; -1: no optimizer has been made
    stepping = None  # the optimizer whose steps are counted
    classed = weakref.WeakSet()  # optimizers whose parameters and state have been reported
    makes_state = False  # the current step was not made by the program
    ended_early = False
    history = None  # the program's own memory history, as it last asked for it
    ask_history = None  # PyTorch's function to ask for a memory history


def _file(ending):
    return os.path.join(OPTIONS["folder"], f"rank{_Recording.rank}.{ending}")


_IDLE = "idle"  # in a claim: its process has allocated nothing


def _write_claim(mode, *more):
    with open(_file(OPTIONS["claim"]), mode, encoding="utf-8") as claim:
        claim.write(" ".join([str(os.getpid()), *more]))


def _read_claim():
    """Returns the process that has claimed the rank, and whether it is idle."""
    with open(_file(OPTIONS["claim"]), encoding="utf-8") as claim:
        process, *more = claim.read().split()
    return int(process), _IDLE in more


def _claim():
    """Returns False if another process of this rank already has a recording. A process that was idle
    when it started this one is its launcher; one that became this one by exec is the same process."""
    try:
        _write_claim("x")
    except FileExistsError:
        process, is_idle = _read_claim()
        if process != os.getpid() and not is_idle:
            say(f"process {os.getpid()} uses the GPU too; only the first process of a rank is recorded")
            return False
        _write_claim("w")
    for ending in ("slp", "json", history.Recorder.ENDING):  # of an earlier run
        with contextlib.suppress(FileNotFoundError):
            os.remove(_file(ending))
    return True


def _offer_claim():
    """Lets the process that is about to start claim the rank if this one has allocated nothing."""
    torch = sys.modules["torch"]
    if not _is_recording() or _read_claim()[0] != os.getpid():
        return
    stats = torch._C._cuda_memoryStats(torch.cuda.current_device())
    _write_claim("w", *([] if stats["allocation"]["all"]["allocated"] else [_IDLE]))


def _starting(inner):
    offer = guarded("a process that was started may have been recorded, or not")(_offer_claim)

    @functools.wraps(inner)
    def init(self, *args, **kwargs):
        offer()
        inner(self, *args, **kwargs)

    return init


def _refuse(why):
    say(f"nothing is recorded: {why}")
    account.tell("refused", why)


def begin(torch):
    """Begins the recording; by now PyTorch has initialised CUDA anyway."""
    account.tell_once("gpu")
    if _Recording.recorder is not None:
        return
    try:
        why = _begin(torch)
    except Exception as error:  # pylint: disable=broad-except
        why = describe(error)
    if why:
        _refuse(why)


def _begin(torch):
    """Returns why there is no recording, or None."""
    if str(torch.__version__) != OPTIONS["torch"]:
        return (f"{sys.executable} has PyTorch {torch.__version__}, but the recorder is for "
                f"{OPTIONS['torch']} of {OPTIONS['python']}; activate its environment, or start the "
                "program with its python")
    _Recording.rank, world_size, local_rank = ranks.own_place()
    if not _claim():
        return None
    try:
        _open(torch, world_size, local_rank)
    except Exception as error:  # pylint: disable=broad-except
        os.remove(_file(OPTIONS["claim"]))
        return str(error) if isinstance(error, library.Failure) else describe(error)
    if bounds.stub("shardlens_null_set_gpus", None) is not None:  # no GPU here is real
        atexit.register(_wait_for_autograd, torch)
    atexit.register(end)  # is called first
    replace(os, "_exit", _close_before)
    replace(subprocess.Popen, "__init__", _starting)
    return None


def _traces_work():
    """Returns True if the recorder makes a trace of what the GPU is asked to do."""
    return os.environ.get("SHARDLENS_NULL_WORK") == "1"


def _open(torch, world_size, local_rank):
    """Opens the recording; raises if it cannot."""
    kind = library.Recorder if OPTIONS["library"] else history.Recorder
    start = {
        "path": _file(kind.ENDING),
        "device": OPTIONS["device"],
        "notice": NOTICE,
        "libraries": f"PyTorch {torch.__version__}\nPython {sys.version.split()[0]}\n",
        "config": json.dumps(sources.how_it_runs()),
        "rank": _Recording.rank,
        "world_size": world_size,
        "gpu": min(local_rank, torch._C._cuda_getDeviceCount() - 1),
        "is_attached": IS_ATTACHED,
        "recorded_gpu": -1 if OPTIONS.get("gpu_index") is None else OPTIONS["gpu_index"],
        "has_work": _traces_work(),
    }
    if kind is history.Recorder:
        _Recording.recorder = kind(start, _Recording.ask_history)
    else:
        _Recording.recorder = kind(start)
    _Recording.process = os.getpid()
    blocks.begin(_Recording.recorder)
    parts.begin(_Recording.recorder)
    timing.begin()
    _Recording.recorder.await_forward(_look_at_forward)
    if kind is library.Recorder:
        groups.tell(_Recording.recorder)
    if _Recording.history and kind is library.Recorder:
        _Recording.recorder.share_history(*_Recording.history)


def _look_at_forward():
    if _is_recording():
        models.look_at_forward(steps_follow=_Recording.step >= 0)


def _close_before(leave):
    """Ends the recording before os._exit, which programs call that would hang in atexit's
    functions."""

    @functools.wraps(leave)
    def close_and_leave(status):
        end()
        leave(status)

    return close_and_leave


def _is_recording():
    return _Recording.recorder is not None and _Recording.process == os.getpid()


def _has_autograd_threads():
    """Returns True once a backward has run on a GPU, because PyTorch then starts a thread for it."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended in the meantime
            with open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as file:
                if file.read().startswith("pt_autograd_"):
                    return True
    return False


@guarded("autograd's threads may not have ended")
def _wait_for_autograd(torch):
    """Waits until autograd's threads have released their Python callbacks. A thread that does so when
    Python ends aborts the process. This is PyTorch's own bug, which a slower GPU hides. A thread
    releases callbacks before the next backward, which runs here, and those of that backward well
    within the wait."""
    if _Recording.process == os.getpid() and _has_autograd_threads():
        with contextlib.suppress(RuntimeError):  # the program has left no memory
            torch.zeros(1, device="cuda", requires_grad=True).sum().backward()
        time.sleep(_AUTOGRAD_ENDS_S)


def _used_gpu(torch):
    """Returns the GPU that was used: the thread that ends the program may have another current
    GPU."""
    if OPTIONS.get("gpu_index") is not None:
        return OPTIONS["gpu_index"]
    current = torch.cuda.current_device()
    made = [torch._C._cuda_memoryStats(gpu)["allocation"]["all"]["allocated"]
            for gpu in range(torch._C._cuda_getDeviceCount())]
    return current if made[current] else made.index(max(made))


@guarded("the recording's end is incomplete")
def end():
    """Closes the recording, and writes beside it what only this process knows."""
    if not _is_recording():
        return
    if holders and _Recording.step < 2:
        holders.look(None)
    torch = sys.modules["torch"]
    timing.end()
    with torch.cuda.device(_used_gpu(torch)):
        _Recording.recorder.find_workspaces()
        found = _Recording.recorder.end()
    if found is None:
        return
    fault = _Recording.recorder.event_fault()
    _Recording.recorder = None
    if _read_claim()[0] != os.getpid():  # a process that it started is recorded instead
        if found["allocations"]:
            say(f"process {os.getpid()} uses the GPU too; the process that it started is recorded")
        return
    values.say_unmet()
    cudnn.say_fault()
    predicted = found.pop("predicted_times", 0)
    facts = found | {"history": not OPTIONS["library"], "event_reads": timing.reads(predicted)}
    steps = max(_Recording.step, 0)
    facts |= {"steps": steps, "values_read": values.counts()}
    taken = values.decisions_taken() + experts.choices_taken()
    others = counters.of_other_gpus(torch, found["gpu"])
    taken += [counters.doubt_of(other, found["gpu"]) for other in others]
    taken += timing.doubts(predicted, _traces_work(), fault)
    facts |= {"doubts": OPTIONS["doubts"] + doubts() + bounds.doubts() + taken, "other_gpus": others}
    facts |= {"communicators": groups.made(), "groups": groups.all_ranks(), "fills": fills.facts()}
    facts |= {"uses": uses.all_uses(steps), "holders": holders.all_found() if holders else []}
    facts |= {"sources": sources.fingerprints()}
    with open(_file("json"), "w", encoding="utf-8") as file:
        json.dump(facts, file)
    if OPTIONS.get("tells_imports"):
        from . import warm

        account.tell("imports", warm.imports())


def _keep_counters(torch):
    counters.keep_over_resets(torch, _is_recording)


@guarded("a process that is not recorded may have run out of memory")
def _watch_out_of_memory(torch):
    """Notes that memory ran out, even if the process is not recorded or the program continues."""

    @guarded("how the program ran out of memory is unknown")
    def tell(gpu, asked_bytes, used_bytes, free_bytes):
        asked, used, free = map(counters.mib_text, (asked_bytes, used_bytes, free_bytes))
        account.tell_once("out_of_memory", f"{asked} could not be allocated, with {used} of GPU {gpu} "
                                           f"in use and {free} free")

    torch._C._cuda_attach_out_of_memory_observer(tell)


def end_with_ray_worker(module):
    """Ends the recording when Ray Train asks a worker to shut down after the program's function has
    returned: it then kills the worker, so Python's exit functions do not run."""

    def ending(inner):
        @functools.wraps(inner)
        def shutdown(self, *args, **kwargs):
            inner(self, *args, **kwargs)
            end()

        return shutdown

    replace(module.RayTrainWorker, "shutdown", ending)


# --- what blocks are ------------------------------------------------------------------------------


def watch_fsdp2(module):
    models.watch_fsdp2(module, _is_recording, _name_next)


def watch_compiled(module):
    compiled.watch(module, _tell_compiled)


def _tell_compiled(*source):
    if _is_recording():
        _Recording.recorder.compiled(*source)


def _name_next(name):
    if _is_recording():
        _Recording.recorder.name_next(name)


@guarded(blocks.CLASSES)
def _tell_state(optimizer):
    """Reports the classes once: after the first step, parameters and state only move when loaded."""
    if optimizer in _Recording.classed:
        return
    _Recording.classed.add(optimizer)
    models.find()
    models.tell_parameters(optimizer)
    models.tell_state(optimizer)


def _after_backward():
    if _is_recording() and _Recording.step < 0:
        models.tell_all_gradients()


@guarded("what backward allocates has no line of the program")
def watch_backward(module):
    """Tells the recorder which line calls backward."""

    def calling(inner):
        @functools.wraps(inner)
        def run_backward(*args, **kwargs):
            if not _is_recording():
                return inner(*args, **kwargs)
            recorder = _Recording.recorder
            recorder.begin_backward()
            try:
                return inner(*args, **kwargs)
            finally:
                recorder.end_backward()
                _after_backward()

        return run_backward

    replace(module, "_engine_run_backward", calling)


@guarded("waits for collectives may be missing in the trace of work")
def watch_waits(_):
    """Tells the recorder when the program has waited for an asynchronous collective."""
    if not _traces_work():
        return

    def waiting(inner):
        @functools.wraps(inner)
        def wait(self, *args, **kwargs):
            done = inner(self, *args, **kwargs)
            if _is_recording() and isinstance(_Recording.recorder, library.Recorder):
                _Recording.recorder.await_collectives()
            return done

        return wait

    classes = importlib.import_module("torch._C._distributed_c10d")
    for work in (classes.Work, getattr(classes, "FakeWork", None)):
        if work is not None and "wait" in vars(work):
            replace(work, "wait", waiting)


# --- steps ----------------------------------------------------------------------------------------


def _step_begins():
    _Recording.step += 1
    _Recording.recorder.step(_Recording.step)
    if _Recording.step & (_Recording.step - 1) == 0:  # modules may be made at any time
        _Recording.recorder.await_forward(_look_at_forward)


@guarded(_STEPS)
def _made(optimizer):
    if not _is_recording():
        return
    _Recording.stepping = None  # the program continues with another optimizer
    parts.end_optimizers()
    if _Recording.step < 0:
        models.tell_parameters(optimizer)
        _step_begins()


def _before_step(optimizer, *_):
    if _is_recording():
        models.tell_gradients(optimizer)
        parts.begin_optimizer(optimizer)


def _end_early():
    _Recording.ended_early = True
    say(f"ended after step {_Recording.step}, as --steps says")
    end()
    sys.stdout.flush()
    raise SystemExit(0)


@guarded(_STEPS)
def _after_step(optimizer, *_):
    if _Recording.ended_early:
        os._exit(0)  # the program has caught SystemExit
    parts.end_optimizer(optimizer)
    if not _is_recording() or _Recording.makes_state:
        return
    _tell_state(optimizer)
    _Recording.stepping = _Recording.stepping or id(optimizer)
    if _Recording.stepping != id(optimizer):
        return  # if several optimizers take turns, the first one's steps are the program's
    _Recording.recorder.find_workspaces()
    uses.note_step(_Recording.step)
    _step_begins()
    if holders and holders.is_due(_Recording.step):
        holders.look(_Recording.step)
    if OPTIONS["steps"] is not None and _Recording.step >= OPTIONS["steps"]:
        _end_early()


def _watch_optimizers(torch):
    hooks = importlib.import_module("torch.optim.optimizer")  # torch.optim hides its name
    if _before_step not in hooks._global_optimizer_pre_hooks.values():
        hooks.register_optimizer_step_pre_hook(_before_step)
        hooks.register_optimizer_step_post_hook(_after_step)
    replace(torch.optim.Optimizer, "__init__", _making)
    replace(torch.optim.Optimizer, "load_state_dict", _loading)


def _making(made):
    @functools.wraps(made)
    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        uses.note_optimizer(self)
        _made(self)

    return init


def _loading(load):
    @functools.wraps(load)
    def load_state_dict(self, *args, **kwargs):
        result = load(self, *args, **kwargs)
        _tell_again(self)
        return result

    return load_state_dict


@guarded(blocks.CLASSES)
def _tell_again(optimizer):
    _Recording.classed.discard(optimizer)


def watch_checkpoints(module):
    """Keeps the step from counting with which torch.distributed.checkpoint makes an optimizer's
    state."""

    def making_state(inner):
        @functools.wraps(inner)
        def init(*args, **kwargs):
            _Recording.makes_state = True
            try:
                return inner(*args, **kwargs)
            finally:
                _Recording.makes_state = False

        return init

    replace(module, "_init_optim_state", making_state)


# --- PyTorch --------------------------------------------------------------------------------------


def _history_of_old_call(enabled, record_context=True, trace_alloc_max_entries=1,
                         trace_alloc_record_context=False, device=None, record_context_cpp=False,
                         *_, **__):
    """Returns the allocator's arguments for _record_memory_history(True, ...)."""
    when = "alloc" if trace_alloc_record_context else "state" if record_context else None
    return HISTORY_CONTEXT[when if enabled else None], trace_alloc_max_entries, record_context_cpp


def _history_of_call(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, *_, **__):
    if not enabled:
        return HISTORY_CONTEXT[None], 1, stacks == "all"
    return HISTORY_CONTEXT[context], max_entries, stacks == "all"


@guarded("the program's own memory history may miss stacks, and the recording classes")
def _note_history(args, kwargs):
    enabled = args[0] if args else kwargs.get("enabled", "all")
    read = _history_of_old_call if isinstance(enabled, bool) else _history_of_call
    _Recording.history = read(*args, **kwargs)
    if _is_recording():
        _Recording.recorder.share_history(*_Recording.history)


def _is_own_history():
    return _is_recording() and isinstance(_Recording.recorder, history.Recorder)


def _share_history(torch):
    """Makes the program and us share one memory history, because the allocator has only one."""

    def sharing(inner):
        _Recording.ask_history = inner

        @functools.wraps(inner)
        def record(*args, **kwargs):
            if _is_own_history():
                return say("the program asks for a memory history: it gets the one that is recorded")
            result = inner(*args, **kwargs)
            _note_history(args, kwargs)
            return result

        return record

    replace(torch.cuda.memory, "_record_memory_history", sharing)


@guarded("the program uses torch.profiler, which may take CUPTI from the recording")
def _note_profiler():
    if not IS_ATTACHED:
        say("the program uses torch.profiler: it sees no kernels, and its times mean nothing")
    elif _is_recording():
        say("the program uses torch.profiler, which wants CUPTI for itself: from here on what is "
            "allocated outside PyTorch is not recorded")
        _Recording.recorder.leave_driver()


def _watch_profiler(torch):
    def noting(inner):
        @functools.wraps(inner)
        def start(self):
            _note_profiler()
            return inner(self)

        return start

    replace(torch.profiler.profile, "start", noting)


def _begin_with_cuda(torch):
    """Begins when the allocator exists and nothing has been allocated yet."""

    def beginning(inner):
        @functools.wraps(inner)
        def init():
            inner()
            begin(torch)

        return init

    replace(torch._C, "_cuda_init", beginning)
    torch.cuda._lazy_call(lambda: _watch_out_of_memory(torch))


def follow_values(torch):
    """Follows values without a recording, in a process that is run for its messages."""

    def following(inner):
        @functools.wraps(inner)
        def init():
            inner()
            if OPTIONS["library"]:
                library.follow_values(library.load())

        return init

    replace(torch._C, "_cuda_init", following)


def prepare(torch):
    account.tell_once("torch")
    for part in (_begin_with_cuda, _watch_optimizers, _share_history, _watch_profiler,
                 _keep_counters):
        guarded("PyTorch is not watched as it should be")(part)(torch)
