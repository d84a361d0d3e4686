"""Gives the program a world on a null device in which only this rank exists. Collectives do nothing
(PyTorch's own "fake" process group). A collective that returns objects returns those of this rank,
or those of a rank that is run for its messages (absent.py)."""

import functools
import os
import zlib

from . import absent, groups, values
from .guards import guarded, replace, say
from .ranks import World


_MOST_NUMBERS = 1 << 14  # in a broadcast that is received from its sender


def _given(value, variable, default):
    if value is not None and value >= 0:
        return value
    return int(os.environ.get(variable, default))


class _Backends:
    """Keeps, by a group's name, the backend that the program asked for. PyTorch and programs behave
    differently with NCCL than with the fake backend, which no program runs on."""

    of_world = "undefined"  # PyTorch's name for a backend that was not named
    by_group = {}


def _replace_process_groups(c10d):
    init, new_group, get_backend = c10d.init_process_group, c10d.new_group, c10d.get_backend

    def init_process_group(
        backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None,
        group_name="", pg_options=None, device_id=None, *args, **kwargs
    ):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        size = _given(world_size, "WORLD_SIZE", 1)
        World.settle(size, _given(rank, "RANK", 0))
        say(f"rank {World.rank} of {World.size}; the others are absent: collectives do nothing")
        _Backends.by_group.clear()
        of_gpu = "nccl" if device_id is not None else "undefined"
        _Backends.of_world = c10d.Backend(backend or of_gpu)
        init("fake", store=FakeStore(), rank=World.rank, world_size=World.size)

    def new_group_of_absent(ranks=None, timeout=None, backend=None, pg_options=None, **kwargs):
        group = new_group(ranks=ranks, **kwargs)
        if backend and group is not c10d.GroupMember.NON_GROUP_MEMBER:
            _Backends.by_group[group.group_name] = c10d.Backend(backend)
        return group

    def backend_of(group=None):
        used = get_backend(group)
        if used != "fake":
            return used
        name = (group or c10d._get_default_group()).group_name
        return _Backends.by_group.get(name, _Backends.of_world)

    c10d.init_process_group = init_process_group
    c10d.new_group = new_group_of_absent
    c10d.get_backend = backend_of


def _say_absent(name):
    say(f"{name}: absent ranks are assumed to send what this rank has")


def _replace_object_collectives(c10d):
    """Replaces the collectives of objects, because PyTorch would unpickle data that was never
    sent."""

    def broadcast_object_list(object_list, *args, **kwargs):
        _say_absent("broadcast_object_list")

    def all_gather_object(object_list, obj, *args, **kwargs):
        _say_absent("all_gather_object")
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj, object_gather_list=None, *args, **kwargs):
        _say_absent("gather_object")
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(
        scatter_object_output_list, scatter_object_input_list=None, *args, **kwargs
    ):
        _say_absent("scatter_object_list")
        if scatter_object_input_list:
            own = World.rank % len(scatter_object_input_list)
            scatter_object_output_list[0] = scatter_object_input_list[own]

    c10d.broadcast_object_list = broadcast_object_list
    c10d.all_gather_object = all_gather_object
    c10d.gather_object = gather_object
    c10d.scatter_object_list = scatter_object_list


def _global_rank(c10d, group, rank, rank_in_group):
    if rank is not None:
        return rank
    return c10d.get_global_rank(group or c10d._get_default_group(), rank_in_group)


def _replace_messages(c10d):
    """Replaces the calls that send an object from one rank to another, and recv, which may return the
    rank that a tensor came from."""
    send, receive = c10d.send_object_list, c10d.recv
    global_rank = functools.partial(_global_rank, c10d)

    def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, *args,
                         **kwargs):
        send(object_list, dst, group, device, group_dst, *args, **kwargs)
        if not c10d._rank_not_in_group(group):
            absent.send(list(object_list), World.rank, global_rank(group, dst, group_dst))

    def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, *args,
                         **kwargs):
        if c10d._rank_not_in_group(group):
            return -1
        sender = global_rank(group, src, group_src)
        object_list[:] = absent.receive(sender, World.rank)
        return sender

    def recv(tensor, src=None, group=None, tag=0, group_src=None):
        """Receives from the next rank if the program accepts a tensor from any rank."""
        if src is None and group_src is None and not c10d._rank_not_in_group(group):
            group_src = (c10d.get_rank(group) + 1) % c10d.get_world_size(group)
        return receive(tensor, src, group, tag, group_src)

    c10d.send_object_list = send_object_list
    c10d.recv_object_list = recv_object_list
    c10d.recv = recv


def _whole_numbers(tensor):
    """Returns the numbers of a small tensor as lists, or None if they are not known."""
    before = values.unknown_reads()
    numbers = tensor.detach().cpu().tolist()
    return numbers if values.unknown_reads() == before else None


def _are_place_holders(numbers):
    """Returns True for the placeholders of programs for another rank's numbers: all 0 or all -1."""
    if isinstance(numbers, list):
        is_one = bool(numbers) and numbers.count(numbers[0]) == len(numbers)
        return is_one and _are_place_holders(numbers[0])
    return numbers in (0, -1)


@guarded("what an absent rank broadcasts is not known")
def _hear(c10d, tensor, sender, group):
    ranks = c10d.get_process_group_ranks(group or c10d._get_default_group())
    everyone = f"all{zlib.crc32(repr(ranks).encode())}"
    numbers = _whole_numbers(tensor)
    if sender == World.rank:
        return absent.send(numbers, sender, everyone)
    if not _are_place_holders(numbers):
        return absent.skip(sender, everyone)
    said = absent.receive(sender, everyone)
    if said is not None:
        tensor.copy_(c10d.torch.tensor(said, dtype=tensor.dtype))
    return None


def _replace_broadcast(c10d):
    """Makes a broadcast of few whole numbers, such as lengths and lists that ranks compare, bring the
    sender's numbers."""
    inner = c10d.broadcast

    @functools.wraps(inner)
    def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
        work = inner(tensor, src, group, async_op, group_src)
        is_whole = not (tensor.is_floating_point() or tensor.is_complex())
        if is_whole and tensor.numel() <= _MOST_NUMBERS and not c10d._rank_not_in_group(group):
            _hear(c10d, tensor, _global_rank(c10d, group, src, group_src), group)
        return work

    c10d.broadcast = broadcast


def _replace_uneven_collectives(c10d):
    """Keeps the fake process group from failing on uneven shapes: it copies this rank's tensor to the
    place of another rank's part, whatever its shape."""
    all_gather, all_to_all = c10d.all_gather, c10d.all_to_all

    def all_gather_any(tensor_list, tensor, group=None, async_op=False):
        if all(one.shape == tensor.shape for one in tensor_list):
            return all_gather(tensor_list, tensor, group, async_op)
        return c10d.broadcast(tensor, group=group, async_op=async_op, group_src=0)

    def all_to_all_any(output_tensor_list, input_tensor_list, group=None, async_op=False):
        pairs = zip(output_tensor_list, input_tensor_list)
        if all(received.shape == sent.shape for received, sent in pairs):
            return all_to_all(output_tensor_list, input_tensor_list, group, async_op)
        return all_to_all(output_tensor_list, output_tensor_list, group, async_op)

    c10d.all_gather = all_gather_any
    c10d.all_to_all = all_to_all_any


def _flatten_single_tensors(c10d):
    """Flattens the tensors of single-tensor collectives. NCCL takes their numbers in order,
    whatever the shape; the fake group splits the first dimension into one part a rank."""

    def flat(value):
        is_flat = isinstance(value, c10d.torch.Tensor) and value.is_contiguous()
        return value.view(-1) if is_flat else value

    def flattening(inner):
        @functools.wraps(inner)
        def call(*args, **kwargs):
            return inner(*map(flat, args), **{name: flat(value) for name, value in kwargs.items()})

        return call

    for name in ("all_gather_single", "reduce_scatter_single"):  # from PyTorch 2.15 on
        if hasattr(c10d, name):
            replace(c10d, name, flattening)
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        replace(c10d, name, flattening)


def _replace_barriers(c10d):
    inner = c10d.barrier

    def barrier(group=None, async_op=False, device_ids=None, *args, **kwargs):
        """Initialises CUDA, which begins the recording, before PyTorch allocates the barrier's
        tensor without Python."""
        if device_ids and c10d.torch.cuda.is_available():
            c10d.torch.cuda.init()
        return inner(group, async_op, device_ids, *args, **kwargs)

    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if c10d._rank_not_in_group(group):
            return
        if c10d.get_backend(group) == "nccl":
            raise ValueError("monitored_barrier needs a group with a CPU backend, such as gloo")

    def group_barrier(self, *args, **kwargs):
        """Replaces a group's own method, which programs may call without torch.distributed."""
        return monitored_barrier(self)

    c10d.barrier = barrier
    c10d.monitored_barrier = monitored_barrier
    c10d.ProcessGroup.monitored_barrier = group_barrier


def replace_absent(c10d):
    _replace_process_groups(c10d)
    groups.count(c10d)
    _replace_object_collectives(c10d)
    _replace_messages(c10d)
    _replace_broadcast(c10d)
    _replace_uneven_collectives(c10d)
    _flatten_single_tensors(c10d)
    _replace_barriers(c10d)


def derive_gradients(module):
    """Makes a pipeline stage derive its gradients' shapes from its outputs: PyTorch 2.15 asks the
    next stage, which is absent. The gradient of a plain tensor has the tensor's shape, which is
    PyTorch's own rule if programs give shapes."""
    stage = module.PipelineStage
    receive = getattr(stage, "_recv_meta", None)
    if receive is None:
        return

    def receive_or_derive(self, src_stage):
        outputs = self._stage_meta.outputs
        if src_stage < self.stage_index or any(type(meta) is not module._TensorMeta
                                               for meta in outputs):
            return receive(self, src_stage)
        return module._StageBackwardMeta(backward_metas=module._derive_grad_metas(outputs))

    stage._recv_meta = receive_or_derive


def measure_no_collectives(module):
    """Keeps torch.compile from timing collectives."""
    module.can_benchmark_collective = lambda: False
