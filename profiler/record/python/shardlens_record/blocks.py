"""Says what blocks turned out to hold: the recorder gets the category and the name of the block of a
tensor. It calls nothing of a tensor that a program may have replaced."""

import sys

from .guards import guarded

# These are numbers of profiler/recording/profile.h.
PARAMETER_SHARD, GRADIENT_SHARD, OPTIMIZER_STATE, UNSHARDED_PARAMETER = range(4)
GRADIENT, INPUT = 5, 7

# This is what is in doubt if a hook has failed.
CLASSES = "classes of some blocks unknown"

_SPARSE = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


def _parts(tensor):
    """Returns the tensors that a sparse tensor consists of or a subclass wraps (a DTensor, a
    quantised or a nested tensor); the list is empty if the tensor holds memory itself."""
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided and str(tensor.layout) in _SPARSE:
        return [getattr(tensor, name)() for name in _SPARSE[str(tensor.layout)]]
    if hasattr(tensor, "__tensor_flatten__"):
        return _tensors(getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
    return []


def _tensors(values):
    """Returns the values that are tensors: a DTensor also lists its mesh among what it wraps."""
    return [value for value in values if hasattr(value, "untyped_storage")]


def _wrapped(tensor):
    """Returns the tensors among the attributes of a subclass that does not say what it wraps."""
    return _tensors(vars(tensor).values())


def _addresses(tensor):
    torch = sys.modules["torch"]
    if type(tensor) is torch.Tensor and tensor.layout is torch.strided:  # most are: the shortest way
        address = tensor.untyped_storage().data_ptr() if tensor.is_cuda else 0
        return [address] if address else []  # 0 on a GPU: its memory has been given back
    parts = _parts(tensor)
    if parts:
        return [address for part in parts for address in _addresses(part)]
    if not tensor.is_cuda:
        return []
    storage = tensor.untyped_storage()
    if storage.device.type != "cuda" or storage.nbytes() == 0:
        return []  # a fake tensor, or one whose memory has been given back
    try:
        return [storage.data_ptr()]
    except RuntimeError:  # a wrapper has no address
        wrapped = _wrapped(tensor)
        if not wrapped:
            raise
        return [address for part in wrapped for address in _addresses(part)]


@guarded(CLASSES, otherwise=())
def addresses_of(tensor):
    """Returns the addresses of a tensor's blocks. A caller switches off __torch_function__, which may
    do anything."""
    return _addresses(tensor)


def without_torch_function():
    return sys.modules["torch"]._C.DisableTorchFunction()


def _common_name(names):
    """Returns "layers.7 (12 parameters)" for what shares a block."""
    if len(names) == 1:
        return names[0]
    common = names[0].split(".")
    for name in names[1:]:
        parts = name.split(".")
        same = [a == b for a, b in zip(common, parts)]
        common = common[:same.index(False) if False in same else len(same)]
    count = f"{len(names)} parameters"
    return f"{'.'.join(common)} ({count})" if common else count


class _Told:
    recorder = None  # while there is one
    labels = {}  # the recorder's numbers of names


def begin(recorder):
    _Told.recorder, _Told.labels = recorder, {}


def label(name):
    """Returns the recorder's number of a name; 0: no name."""
    if not name or _Told.recorder is None:
        return 0
    if name not in _Told.labels:
        _Told.labels[name] = _Told.recorder.name(name)
    return _Told.labels[name]


def name_module(module, path, class_name):
    """Says where in its model the module with an id is."""
    if _Told.recorder is not None:
        _Told.recorder.name_module(module, path, class_name)


def forget_module(module):
    if _Told.recorder is not None:
        _Told.recorder.forget_module(module)


def tell_block(address, category, number):
    """Reports one block, with the number of its name."""
    if _Told.recorder is not None:
        _Told.recorder.recategorise(address, category, number)


@guarded(CLASSES)
def tell(found, only_unknown=False):
    """Reports (tensor, category, name) of each tensor. Tensors that share a block share its name."""
    blocks = {}
    with without_torch_function():
        for tensor, category, name in found:
            for address in addresses_of(tensor):
                blocks.setdefault((address, category), []).append(name)
    if _Told.recorder is None:
        return
    report = _Told.recorder.classify if only_unknown else _Told.recorder.recategorise
    for (address, category), names in blocks.items():
        if len(names) == 1:
            report(address, category, label(names[0]))
            continue
        known = [name for name in dict.fromkeys(names) if name]
        report(address, category, label(_common_name(known)) if known else 0)
