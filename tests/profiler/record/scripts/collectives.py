"""Calls the functions of torch.distributed, and prints the shape of all that they return.

    collectives.py [DEVICE [WHERE_RANKS_MEET]]

Values of tensors are not printed: absent ranks have none. On a CPU two real processes can run it,
too.
"""

import datetime
import os
import sys
import warnings

import torch
import torch.distributed as dist

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"


def shown(value):
    """Shows tensors by their shapes, and handles by whether they can be waited for."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return [shown(one) for one in value]
    if hasattr(value, "wait"):
        value.wait()
        return f"a handle that is done: {value.is_completed()}"
    return value


def tell(name, value, *filled):
    print(f"{name}: {shown(value)} {shown(filled)}", flush=True)


def make(*shape):
    return torch.ones(*shape, device=DEVICE)


def hear_numbers(group, rank):
    """Receives numbers from the other rank, as DeepSpeed and Megatron send lists and lengths."""
    for holder in (-1, 0):
        numbers = torch.tensor([3, 1, 4] if rank == 0 else [holder] * 3, device=DEVICE)
        dist.broadcast(numbers, 0, group=group)
        print(f"numbers in place of {holder * -1}: {numbers.tolist()}", flush=True)


def reduce_and_gather(group, rank, size):
    tell("get_backend", dist.get_backend(group))
    tell("barrier", dist.barrier(group=group))
    device_ids = [0] if DEVICE != "cpu" else None
    tell("barrier of a device", dist.barrier(group=group, device_ids=device_ids))
    tell("barrier, async", dist.barrier(group=group, async_op=True))
    tell("all_reduce", dist.all_reduce(make(3), group=group))
    tell("all_reduce, async", dist.all_reduce(make(3), group=group, async_op=True))
    tell("reduce", dist.reduce(make(3), 1, group=group))
    tell("broadcast", dist.broadcast(make(3), 1, group=group))
    out = [make(2, 3) for _ in range(size)]
    tell("all_gather", dist.all_gather(out, make(2, 3), group=group), out)
    if DEVICE != "cpu":  # gloo cannot
        out = [make(2 + i) for i in range(size)]
        tell("all_gather of uneven", dist.all_gather(out, make(2 + rank), group=group), out)
        out = make(1, 3 * size)
        tell("all_gather_into_tensor of a row",
             dist.all_gather_into_tensor(out, make(3), group=group), out)
        out = make(3)
        tell("reduce_scatter_tensor of a row",
             dist.reduce_scatter_tensor(out, make(1, 3 * size), group=group), out)
    out = make(2 * size, 3)
    tell("all_gather_into_tensor", dist.all_gather_into_tensor(out, make(2, 3), group=group), out)
    out = [make(4) for _ in range(size)] if rank == 1 else None
    tell("gather", dist.gather(make(4), out, 1, group=group), out or [])
    parts = [make(4) for _ in range(size)] if rank == 1 else None
    tell("scatter", dist.scatter(make(4), parts, 1, group=group))


def exchange(group, rank, size):
    out = make(2)
    tell("reduce_scatter_tensor",
         dist.reduce_scatter_tensor(out, make(2 * size), group=group), out)
    tell("reduce_scatter",
         dist.reduce_scatter(out, [make(2) for _ in range(size)], group=group), out)
    out = make(2 * size)
    tell("all_to_all_single", dist.all_to_all_single(out, make(2 * size), group=group), out)
    sent = [1 + rank] * size
    taken = [1 + i for i in range(size)]
    out = make(sum(taken))
    tell("all_to_all_single of uneven",
         dist.all_to_all_single(out, make(sum(sent)), taken, sent, group=group), out)
    if DEVICE != "cpu":
        out = [make(n) for n in taken]
        tell("all_to_all", dist.all_to_all(out, [make(n) for n in sent], group=group), out)


def send_and_receive(group, rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    ops = [dist.P2POp(dist.isend, make(5), after, group),
           dist.P2POp(dist.irecv, make(5), before, group)]
    tell("batch_isend_irecv", dist.batch_isend_irecv(ops))
    handle = dist.isend(make(5), after, group)
    out = make(5)
    tell("recv", dist.recv(out, before, group), out)
    tell("isend", handle)
    handle = dist.irecv(make(5), before, group)
    tell("send", dist.send(make(5), after, group))
    tell("irecv", handle)
    if size == 2:
        handle = dist.isend(make(5), after, group)
        tell("recv of any", dist.recv(make(5), group=group))
        handle.wait()


def coalesce(group):
    device = torch.device(DEVICE, 0) if DEVICE != "cpu" else None
    with dist._coalescing_manager(group, device, async_ops=True) as works:
        for _ in range(3):
            dist.all_reduce(make(4), group=group)
    tell("coalesced", works.wait())


def give_objects(group, rank, size):
    out = [None] * size
    tell("all_gather_object", dist.all_gather_object(out, {"a": 1}, group=group), out)
    out = [{"a": 1}, "b"]
    tell("broadcast_object_list", dist.broadcast_object_list(out, 1, group=group), out)
    out = [None] * size if rank == 1 else None
    tell("gather_object", dist.gather_object("c", out, 1, group=group), out)
    if rank == 0:
        tell("send_object_list", dist.send_object_list([rank, "to 1"], 1, group=group))
    if rank == 1:
        out = [None, None]
        tell("recv_object_list", dist.recv_object_list(out, 0, group=group), out)


def main():
    warnings.simplefilter("ignore")
    dist.init_process_group(
        "gloo" if DEVICE == "cpu" else "cpu:gloo,cuda:nccl",
        init_method=sys.argv[2] if len(sys.argv) > 2 else None,
        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    rank = dist.get_rank()
    group = dist.new_group(backend="gloo")
    tell("get_backend of gloo", dist.get_backend(group))
    tell("monitored_barrier", dist.monitored_barrier(group, datetime.timedelta(seconds=30)))
    tell("monitored_barrier of the group's own", group.monitored_barrier())
    tell("gloo on the CPU", dist.all_reduce(torch.ones(3), group=group))
    out = [torch.ones(1) for _ in range(dist.get_world_size())]
    tell("gather on the CPU", dist.all_gather(out, torch.ones(1), group=group))
    pair = dist.new_group([0, 1])
    if rank < 2:
        hear_numbers(pair, rank)
    for one in (None, pair) if rank < 2 else (None,):
        reduce_and_gather(one, rank, dist.get_world_size(one))
        exchange(one, rank, dist.get_world_size(one))
        send_and_receive(one, rank, dist.get_world_size(one))
        coalesce(one)
        give_objects(one, rank, dist.get_world_size(one))
    alone = [dist.new_group([one]) for one in range(2)]
    tell("of another's group", dist.all_reduce(make(1), group=alone[1 - rank % 2]))
    dist.destroy_process_group()


main()
