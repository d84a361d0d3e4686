"""Changes the forward of the program's models: autocast, activations on the host, attention, dtypes,
torch.compile."""

import functools
import weakref

from . import blocks, sites

_done = weakref.WeakSet()
_SDPA = {"flash": "enable_flash_sdp", "efficient": "enable_mem_efficient_sdp",
         "math": "enable_math_sdp", "cudnn": "enable_cudnn_sdp"}


def _in_context(forward, enter):
    @functools.wraps(forward)
    def inside(*args, **kwargs):
        with enter():
            return forward(*args, **kwargs)

    return inside


def _keep_on_host(torch, root):
    code = "with torch.autograd.graph.save_on_cpu(pin_memory=True): model(...)"
    if sites.at("activations", code) is not None:
        root.forward = _in_context(
            root.forward, lambda: torch.autograd.graph.save_on_cpu(pin_memory=True))


def _autocast(torch, root):
    pulled = sites.PULLED.get("autocast", "bf16")
    if pulled == "off":
        return
    code = f'with torch.autocast("cuda", {sites.named_dtype(torch, pulled)}): model(...)'
    value = sites.at("autocast", code, value=pulled)
    if value is None:
        return

    def enter():
        if torch.is_autocast_enabled("cuda"):
            sites.cannot("autocast", "the program uses autocast already")
        return torch.autocast("cuda", sites.named_dtype(torch, value))

    root.forward = _in_context(root.forward, enter)


def _compile(root):
    if sites.at("compile", "model.compile()") is not None:
        root.compile()


def apply(torch, optimizer, is_wanted):
    """Applies these levers to the models of an optimizer, once it has been made."""
    for root in blocks.roots_of(torch, optimizer):
        if root in _done:
            continue
        _done.add(root)
        if is_wanted("activations"):
            _keep_on_host(torch, root)
        if is_wanted("autocast"):
            _autocast(torch, root)
        if is_wanted("compile"):
            _compile(root)


# --- autocast off ---------------------------------------------------------------------------------


def _watch_autocast(torch):
    def entering(inner):
        @functools.wraps(inner)
        def enter(self):
            if self.device == "cuda" and self._enabled:
                dtype = sites.name_of_dtype(torch, self.fast_dtype)
                code = 'torch.autocast("cuda", enabled=False)'
                if sites.PULLED.get("autocast") == "off" or sites.LOOKS:
                    if sites.at("autocast", code, now=dtype, value="off") is not None:
                        self._enabled = False
            return inner(self)

        return enter

    if sites.is_wanted("autocast"):
        sites.replace(torch.autocast, "__enter__", entering)


# --- the model's dtype ----------------------------------------------------------------------------


def _moves_to_gpu(torch, args, kwargs):
    device = torch._C._nn._parse_to(*args, **kwargs)[0]
    return device is not None and device.type == "cuda"


def _change_dtype(torch, model):
    first = next((one for one in model.parameters() if one.is_floating_point()), None)
    if first is None or first.is_cuda:
        return
    now = sites.name_of_dtype(torch, first.dtype)
    value = sites.at("model-dtype", 'model.to("cuda", VALUE)', now=now)
    if value is not None:
        model.to(sites.named_dtype(torch, value))


def _watch_moves(torch):
    def moving(inner, moves):
        @functools.wraps(inner)
        def move(self, *args, **kwargs):
            if moves(args, kwargs):
                _change_dtype(torch, self)
            return inner(self, *args, **kwargs)

        return move

    if sites.is_wanted("model-dtype"):
        sites.replace(torch.nn.Module, "cuda", lambda inner: moving(inner, lambda *_: True))
        sites.replace(torch.nn.Module, "to",
                      lambda inner: moving(inner, lambda *given: _moves_to_gpu(torch, *given)))


# --- attention ------------------------------------------------------------------------------------


def choose_attention(torch):
    value = sites.PULLED.get("attention")
    if value not in _SDPA:
        return
    for name, enable in _SDPA.items():
        getattr(torch.backends.cuda, enable)(name == value)


def watch_attention(module):
    """Notes that the program uses scaled_dot_product_attention (module: torch.nn.functional)."""

    def attending(inner):
        @functools.wraps(inner)
        def attend(*args, **kwargs):
            code = "torch.nn.attention.sdpa_kernel(...) that chooses VALUE"
            for value in _SDPA:
                sites.at("attention", code, value=value)
            return inner(*args, **kwargs)

        return attend

    if sites.is_wanted("attention"):
        sites.replace(module, "scaled_dot_product_attention", attending)


def watch(torch):
    _watch_autocast(torch)
    _watch_moves(torch)
    choose_attention(torch)
