"""Lets NVIDIA's own cuDNN choose kernels and their workspaces without a GPU, if the program's
environment has it (profiler/null_device/libraries/dnn_graph.h). Otherwise cuDNN is left out.
Operations that cuDNN can plan only with a GPU fall back to PyTorch's own kernels."""

import contextlib
import ctypes
import functools
import os
import sys

from .guards import guarded, note, replace, replace_function, say

_CUDNN = "which of cuDNN's kernels the program takes may be reported wrongly"
_UNKNOWN = "cuDNN's workspace is not known without a GPU"


class _Null:
    library = None  # the stubs, once cuDNN answers through them
    kernels = None  # replaces some of cuDNN's operators for as long as it lives


# --- finding it -----------------------------------------------------------------------------------


def _nvidia_folders(torch):
    """Returns the folders that pip puts NVIDIA's packages in, those beside PyTorch first."""
    beside = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    return [os.path.join(folder, "nvidia") for folder in [beside, *sys.path]]


def _find(folders, *names):
    paths = (os.path.join(folder, name) for folder in folders for name in names)
    return next(filter(os.path.exists, paths), None)


def _load(call, path):
    """Loads a library with one of the stubs' calls; returns why it cannot be loaded, or ""."""
    call.argtypes, call.restype = [ctypes.c_char_p], ctypes.c_char_p
    return call(os.fsencode(path)).decode()


def _why_not(torch):
    """Returns why cuDNN cannot be used, or "". NVRTC is loaded first: without it cuDNN takes other
    kernels."""
    folders = _nvidia_folders(torch)
    major = (torch.version.cuda or "").partition(".")[0]
    cudnn = _find(folders, "cudnn/lib/libcudnn_graph.so.9")
    nvrtc = _find(folders, *(f"{folder}/lib/libnvrtc.so.{major}"
                             for folder in (f"cu{major}", "cuda_nvrtc")))
    if cudnn is None:
        return "this Python has no nvidia/cudnn"
    if nvrtc is None:
        return f"this Python has no libnvrtc.so.{major}, with which cuDNN compiles"
    stubs = ctypes.CDLL(None)
    why = _load(stubs.shardlens_null_nvrtc, nvrtc) or _load(stubs.shardlens_null_cudnn, cudnn)
    if not why:
        _Null.library = stubs
    return why


def prepare(torch):
    """Uses cuDNN or leaves it out, before the program sees PyTorch. If asking fails, cuDNN is left
    out."""
    why = "asking it failed"
    try:
        why = _why_not(torch)
    finally:
        if why:
            _leave_out(torch, why)
        else:
            _use(torch)


def say_fault():
    """Notes a doubt at the end if cuDNN gave up a plan because of something that only the null device
    lacks."""
    if _Null.library is None:
        return
    fault = _Null.library.shardlens_null_cudnn_fault
    fault.restype = ctypes.c_char_p
    text = fault().decode()
    if text:
        note("on a GPU cuDNN may take other kernels", text)


# --- PyTorch's switches ---------------------------------------------------------------------------


def _replace_switch(torch, name, getter, setter):
    """Replaces torch.backends.cudnn.NAME and PyTorch's functions beneath it, which its contexts
    call."""
    for kind, function in (("get", getter), ("set", setter)):
        if function is not None:
            function.of_shardlens = True
            setattr(torch._C, f"_{kind}_cudnn_{name}", function)
    switch = vars(type(torch.backends.cudnn))[name]
    switch.getter = getter or switch.getter
    switch.setter = setter


def _leave_out(torch, why):
    set_enabled = torch._C._set_cudnn_enabled
    if getattr(set_enabled, "of_shardlens", False):
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    # PyTorch compares cuDNN's version with the build's; the version here need not be the same.
    os.environ.setdefault("PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK", "1")
    say(f"cuDNN is left out: attention and convolutions take PyTorch's other kernels ({why})")

    def set_off(enabled):
        if enabled:
            note("the program switches cuDNN on, but it stays off", _UNKNOWN)
        set_enabled(False)

    _replace_switch(torch, "enabled", None, set_off)
    set_attention = torch._C._set_sdp_use_cudnn
    torch._C._set_sdp_use_cudnn = lambda enabled: set_attention(False)


def allow_other_attention(module):
    """Lets torch.nn.attention fall back to PyTorch's other kernels if the program wants only
    cuDNN's attention and cuDNN is left out."""
    kinds = module.SDPBackend

    def allowing(inner):
        @functools.wraps(inner)
        def choose(backends, *args, **kwargs):
            backends = list(backends)
            if _Null.library is None and backends == [kinds.CUDNN_ATTENTION]:
                note("the program wants only cuDNN's attention; it takes PyTorch's other kernels",
                     _UNKNOWN)
                backends += [kinds.FLASH_ATTENTION, kinds.EFFICIENT_ATTENTION, kinds.MATH]
            return inner(backends, *args, **kwargs)

        return choose

    replace(module, "_sdpa_kernel", allowing)


def _use(torch):
    version = ".".join(map(str, torch._C._cudnn.getRuntimeVersion()))
    say(f"cuDNN {version} of this Python plans for the GPU: kernels and workspaces are as it chooses")
    _never_measure(torch)
    _norm_by_pytorch(torch)
    for owner, name, kind, asks in _NEED_A_GPU:
        _do_without(torch, _owner(torch, owner), name, kind, asks)
    _flatten_nothing(torch)


def _never_measure(torch):
    """Keeps cuDNN from timing its kernels, because on a null device all take equally long."""
    set_benchmark = torch._C._set_cudnn_benchmark
    if getattr(set_benchmark, "of_shardlens", False):
        return
    asked = [False]

    def get():
        return asked[0]

    def set_asked(benchmark):
        asked[0] = bool(benchmark)
        set_benchmark(False)
        if benchmark:
            note("torch.backends.cudnn.benchmark: a GPU takes the kernels that are fastest there",
                 "the first that cuDNN proposes are taken here")

    _replace_switch(torch, "benchmark", get, set_asked)


# --- operations that cuDNN can plan only with a GPU -----------------------------------------------


def _norm_by_pytorch(torch):
    """Replaces cuDNN's batch norm with PyTorch's own wherever PyTorch chose cuDNN's, also in scripts
    (torch.jit)."""

    def forward(values, weight, bias, mean, variance, is_training, factor, epsilon):
        note("batch norm takes PyTorch's own kernels here", _UNKNOWN)
        result = torch.native_batch_norm(values, weight, bias, mean, variance, is_training, factor,
                                         epsilon)
        return *result, torch.empty(0, dtype=torch.uint8, device=values.device)

    def backward(values, gradient, weight, mean, variance, saved_mean, saved_variance, epsilon, _):
        return torch.ops.aten.native_batch_norm_backward(
            gradient, values, weight, mean, variance, saved_mean, saved_variance, True, epsilon,
            [True, True, True])

    if _Null.kernels is None:
        _Null.kernels = torch.library.Library("aten", "IMPL", "CUDA")
        _Null.kernels.impl("cudnn_batch_norm", forward)
        _Null.kernels.impl("cudnn_batch_norm_backward", backward)


def _is_on_gpu(args):
    return args[0].is_cuda


def _is_ctc(args):
    """Returns True if PyTorch gives this call to cuDNN; `args` are those of ctc_loss(log_probs,
    targets, input_lengths, target_lengths, blank, ...)."""
    return args[0].is_cuda and sys.modules["torch"]._use_cudnn_ctc_loss(*args[:5])


_NEED_A_GPU = [
    ("torch", "ctc_loss", "CTC loss", _is_ctc),
    ("torch._VF", "lstm", "LSTM", _is_on_gpu),
    ("torch._VF", "gru", "GRU", _is_on_gpu),
    ("torch._VF", "rnn_tanh", "RNN", _is_on_gpu),
    ("torch._VF", "rnn_relu", "RNN", _is_on_gpu),
]


def _owner(torch, name):
    return torch if name == "torch" else sys.modules[name]


@contextlib.contextmanager
def _switched_off(torch):
    was = torch._C._get_cudnn_enabled()
    torch._C._set_cudnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_cudnn_enabled(was)


def _do_without(torch, owner, name, kind, asks):
    """Makes a function take PyTorch's own kernels instead of cuDNN's. A compiled function is left
    alone, because torch.compile turns it into PyTorch's own kernels."""
    is_cudnns = guarded(_CUDNN, otherwise=True)(asks)

    def doing(inner):
        @functools.wraps(inner)
        def call(*args, **kwargs):
            if torch.compiler.is_compiling() or kwargs or not torch._C._get_cudnn_enabled():
                return inner(*args, **kwargs)
            if not is_cudnns(args):
                return inner(*args)
            note(f"{kind} takes PyTorch's own kernels here", _UNKNOWN)
            with _switched_off(torch):
                return inner(*args)

        return call

    replace_function(torch, owner, name, doing)


def _flatten_nothing(torch):
    """Keeps RNNs from arranging their weights as cuDNN wants them; PyTorch's own kernels take any
    layout."""

    def flattening(inner):
        @functools.wraps(inner)
        def flatten_parameters(self):
            with _switched_off(torch):
                return inner(self)

        return flatten_parameters

    replace(torch.nn.RNNBase, "flatten_parameters", flattening)
