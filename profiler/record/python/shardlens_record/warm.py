"""Starts variants of a program from a process that has imported what the program imports: importing
PyTorch and libraries takes longer than the steps of most variants.

The first variant tells which modules it imported (imports). The warm process is then started with
the program's own command. It stops before the program begins, imports these modules, and forks for each
variant: the child returns to Python's start and runs the program, which finds its modules imported. All
hooks are installed by then; they ask for the levers when they are called.

`shardlens advise` and others talk to it over the socket SHARDLENS_WARM, a JSON object or a word a line
(profiler/record/warm_python.cpp). What the program imports after it has changed its environment is left
to the child. A variant is refused, and then started as a new process, wherever a fork is not sure to be
equal: the program does so before it imports PyTorch, a thread runs, or CUDA has begun.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys

from . import OPTIONS, program_code

_SOCKET = "SHARDLENS_WARM"
# While modules are imported, NumPy's library starts no threads, and PyTorch asks NVML, not CUDA, whether
# there are GPUs: after that some versions forbid CUDA in a fork (_allow_cuda).
_WHILE_IMPORTING = {"OPENBLAS_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
# pyarrow's allocator stops its thread before a fork; it gives back memory of the host, and nothing else.
_HARMLESS_THREADS = ("jemalloc_bg_thd",)
_OWN = ("SHARDLENS_RECORD", _SOCKET, "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

_environment = dict(os.environ)  # as the process was started
_changed_before = {}  # by package: the variables that were changed before it was imported


is_waiting = _SOCKET in os.environ  # for variants: nothing of the program runs


def _changed():
    names = set(_environment) | set(os.environ)
    return {name for name in names if _environment.get(name) != os.environ.get(name)}


# --- what a program imports -----------------------------------------------------------------------


def note_import(name):
    """Notes which variables have been changed by now: the module may read them."""
    if OPTIONS.get("tells_imports") and "." not in name:
        _changed_before.setdefault(name, _changed() - set(_OWN))


def _is_library(name, module):
    spec = getattr(module, "__spec__", None)
    if spec is None or spec.loader is None or spec.name != name or name.endswith("__main__"):
        return False
    origin = spec.origin or ""
    return origin in ("built-in", "frozen") or not program_code.is_own(origin)


def imports():
    """Returns what the warm process has to know of this one, as JSON."""
    ours = __package__
    names = [name for name, module in list(sys.modules.items())
             if _is_library(name, module) and name.partition(".")[0] not in (ours, "sitecustomize")]
    changed = {name: sorted(variables) for name, variables in _changed_before.items() if variables}
    return json.dumps({"modules": names, "changed": changed})


# --- the warm process -----------------------------------------------------------------------------


class _Refused(Exception):
    """Says why no variant can be forked."""


class _Socket:
    def __init__(self):
        self.file = int(os.environ.pop(_SOCKET))
        self.rest = b""

    def line(self):
        """Returns the next line; ends this process when nobody wants variants any more."""
        while b"\n" not in self.rest:
            part = os.read(self.file, 1 << 16)
            if not part:
                os._exit(0)
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def send(self, text):
        os.write(self.file, text.encode() + b"\n")


def _import(names, changed):
    """Imports modules in this order, up to the first before which the program itself changes a variable:
    returns that variable, or None. A module that another one makes cannot be imported, and needs not."""
    own = {name: os.environ.get(name) for name in _WHILE_IMPORTING}
    for name, value in _WHILE_IMPORTING.items():
        os.environ.setdefault(name, value)
    by_program = set()
    for name in names:
        by_program = set(changed.get(name.partition(".")[0], ())) - _changed()
        if by_program:
            break
        if name not in sys.modules:
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
    for name, value in own.items():
        if value is None:
            del os.environ[name]
    return min(by_program, default=None)


def _threads():
    """Returns the names of threads that a fork would lose."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
        if int(thread) != os.getpid() and name not in _HARMLESS_THREADS:
            names.append(name)
    return names


def _check(variable=None):
    threads = _threads()
    if threads:
        raise _Refused(f"{len(threads)} threads run once the program's modules are imported: {threads[0]}")
    torch = sys.modules.get("torch")
    if torch is None and variable:
        raise _Refused(f"the program sets {variable} before it imports PyTorch")
    if torch is None:
        raise _Refused("PyTorch is not among the program's modules")
    if torch.cuda.is_initialized():
        raise _Refused("a module that the program imports begins CUDA")


def _allow_cuda():
    """Lets this process, which has just been forked, use CUDA. PyTorch forbids it where the process that
    forked had asked for its GPUs, since NVIDIA's driver does not outlive a fork; the null device does: it
    holds nothing outside the process's memory. Versions without this function go on forbidding it."""
    cuda = 1  # c10::DeviceType
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(os.path.join(sys.modules["torch"].__path__[0], "lib", "libtorch_python.so"))
        set_bad = library["_ZN5torch5utils22set_device_in_bad_forkEN3c1010DeviceTypeEb"]
        set_bad.argtypes, set_bad.restype = (ctypes.c_int8, ctypes.c_bool), None
        set_bad(cuda, False)


def _check_fork():
    """Asks a child whether it could use CUDA: PyTorch tells it only there."""
    child = os.fork()
    if not child:
        _allow_cuda()
        os._exit(1 if sys.modules["torch"]._C._cuda_isInBadFork() else 0)
    if os.waitpid(child, 0)[1]:
        raise _Refused("a module that the program imports asks CUDA for its GPUs")


def _become(request):
    """Makes this process, which has just been forked, the one that would have been started."""
    global is_waiting
    is_waiting = False
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _allow_cuda()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = request["options"]["command"]
    words = len(sys.argv) - 1
    if words:
        sys.orig_argv[-words:] = sys.argv[1:] = arguments[-words:]
    os.environ["SHARDLENS_RECORD"] = json.dumps(request["options"])
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = request["compiled"]
    OPTIONS.clear()
    OPTIONS.update(request["options"])


def _child():
    """Forks. Returns 0 in the child, whose parent has ended: it belongs to our caller then, which
    waits for it. Returns its process id here."""
    reading, writing = os.pipe()
    between = os.fork()
    if between:
        os.close(writing)
        os.waitpid(between, 0)
        child = int(os.read(reading, 32))
        os.close(reading)
        return child
    child = os.fork()
    if child:
        os.write(writing, str(child).encode())
        os._exit(0)
    os.close(reading)
    os.close(writing)
    return 0


def _fits(arguments):
    """Returns True if only words differ that the program reads itself."""
    words = len(sys.argv) - 1
    before = OPTIONS["command"]
    return len(arguments) == len(before) and sys.argv[1:] == before[len(before) - words:] and (
        arguments[:len(before) - words] == before[:len(before) - words])


def _start(socket, request):
    """Forks for a request. Returns True in the child."""
    _check()
    if not _fits(request["options"]["command"]):
        raise _Refused("it is another command")
    child = _child()
    if child:
        socket.send(str(child))
        return False
    os.close(socket.file)
    _become(request)
    return True


def serve():
    """Returns in each child that runs a variant, and never in the warm process itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    socket = _Socket()
    told = json.loads(socket.line())
    variable = _import(told["modules"], told["changed"])
    why = None
    try:
        _check(variable)
        _check_fork()
    except _Refused as refused:
        why = str(refused)
    socket.send(f"no {why}" if why else "ready")
    while True:
        request = json.loads(socket.line())
        try:
            if _start(socket, request):
                return
        except _Refused as refused:
            socket.send(f"no {refused}")
