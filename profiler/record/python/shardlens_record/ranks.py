"""Says which rank this process is. On a null device the other ranks do not exist (collectives.py),
and a launcher starts only this one."""

import functools
import json
import os
import sys

from . import IS_ATTACHED, OPTIONS, account, bounds, groups
from .guards import replace, say


# Names of the variables that hold the rank, the world size and the rank on this machine under
# torchrun, Open MPI, other MPIs and Slurm.
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_LAUNCHERS = (
    _TORCHRUN,
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def own_place():
    """Returns the rank, the world size and the rank on this machine, as far as they are known before
    the program has run. On a null device only torchrun's variables count, because `shardlens record`
    itself may have been started by MPI or Slurm."""
    launchers = _LAUNCHERS if IS_ATTACHED else [_TORCHRUN]
    told = next((names for names in launchers if names[0] in os.environ), _TORCHRUN)
    rank, size = OPTIONS["rank"] or 0, OPTIONS["world"] or 1
    return tuple(int(os.environ.get(*pair)) for pair in zip(told, map(str, (rank, size, rank))))


def tell_spawned(module):
    """Gives processes of torch.multiprocessing.spawn their rank. It is an argument, and a recording
    that begins with the GPU may begin before the program has read it. Errors that they raise are
    passed to their parent, so they are written down here."""
    run, start = module._wrap, module.start_processes

    @functools.wraps(run)
    def run_rank(fn, i, *rest):
        @functools.wraps(fn)
        def tell_and_raise(*args):
            try:
                return fn(*args)
            except Exception as error:
                account.tell_raised(error)
                raise

        OPTIONS["rank"] = i
        run(tell_and_raise, i, *rest)

    @functools.wraps(start)
    def start_ranks(fn, args=(), nprocs=1, *rest, **kwargs):
        os.environ["SHARDLENS_RECORD"] = json.dumps(OPTIONS | {"world": nprocs})
        return start(fn, args, nprocs, *rest, **kwargs)

    module._wrap, module.start_processes = run_rank, start_ranks


class World:
    """Holds this process's rank and world size. The command's --world and --rank override torchrun's
    and the program's."""

    size = OPTIONS["world"]
    rank = OPTIONS["rank"]

    @classmethod
    def settle(cls, size, rank, gpus_per_node=None):
        if cls.size is None:
            cls.size = size
        if cls.rank is None:
            cls.rank = rank
        if not 0 <= cls.rank < cls.size:
            why = f"rank {cls.rank} is not in a world of {cls.size}; give --rank and --world"
            say(why)
            account.tell("refused", why)
            sys.exit(2)
        gpus = cls.gpus(gpus_per_node)
        os.environ.update(_environment(cls.size, cls.rank, gpus))
        _set_null_gpus(gpus)

    @classmethod
    def gpus(cls, of_launcher=None):
        """Returns the number of GPUs of a node; all nodes have the same number."""
        told = (OPTIONS["gpus_per_node"], of_launcher, int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
        return next((gpus for gpus in told if gpus and cls.size % gpus == 0), 1)


def _set_null_gpus(gpus):
    """Tells the driver the number of GPUs. Changing the environment may be too late: the driver
    reads it once, and cuDNN may have asked the driver when it was loaded."""
    set_gpus = bounds.stub("shardlens_null_set_gpus", None)
    if set_gpus is not None:
        set_gpus(gpus)


def _environment(size, rank, gpus):
    """Returns the variables that torchrun would set, and the number of the null device's GPUs."""
    return {
        "WORLD_SIZE": str(size),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % gpus),
        "LOCAL_WORLD_SIZE": str(gpus),
        "GROUP_RANK": str(rank // gpus),
        "GROUP_WORLD_SIZE": str(size // gpus),
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
        "SHARDLENS_NULL_GPUS": str(gpus),
    }


def options_as(rank):
    """Returns the options of a process that is another rank of this world."""
    return OPTIONS | {"rank": rank, "world": World.size}


def environment_as(rank):
    return _environment(World.size, rank, World.gpus())


def count_null_devices(torch):
    """Makes PyTorch count GPUs without NVML, which would count those of the machine."""
    torch.cuda._device_count_nvml = lambda: -1


def ignore_others_shapes(module):
    """Lets DDP continue after it asks whether all ranks have the same parameters, which no rank
    answers."""
    inner = module._verify_param_shape_across_processes

    def verify(*args, **kwargs):
        try:
            inner(*args, **kwargs)
        except RuntimeError:
            pass

    module._verify_param_shape_across_processes = verify


def plan_checkpoints_alone(module):
    """Lets this rank plan its checkpoint alone. In torch.distributed.checkpoint one rank plans for
    all ranks, from data that all send."""
    wrapper = module._DistWrapper
    inner = wrapper.__init__

    def init(self, *args, **kwargs):
        inner(self, *args, **kwargs)
        self.use_dist, self.is_coordinator = False, True
        say("torch.distributed.checkpoint: a checkpoint has only this rank's part")

    wrapper.__init__ = init


def accept_parts_of_checkpoints(module):
    """Accepts a checkpoint of one rank's part. PyTorch 2.11 and older ask whether a plan is valid,
    newer versions ask for a list of its errors."""
    validate = module._validate_global_plan

    def accept(*args, **kwargs):
        found = validate(*args, **kwargs)
        return True if isinstance(found, bool) else type(found)()

    module._validate_global_plan = accept


def complete_optimizer_states(module):
    """Completes what FSDP1 gathers about optimizer states. It asks all ranks which parameters they
    have state for and of what shapes; another rank is assumed to have what this one lacks."""
    map_keys, gather = module._map_param_key_to_optim_keys, module._allgather_state_info

    def map_all_keys(states, group, params, names, infos, merge_keys=False):
        keys, own = map_keys(states, group, params, names, infos, merge_keys)
        if not merge_keys or not own:
            return keys, own
        known = {name for key in keys for name in key.unflat_param_names}
        others = [module._OptimStateKey((name,), True) for name, info in infos.items()
                  if name not in known and info.param_requires_grad[info.param_indices[name]]]
        return sorted(keys + others), own

    def gather_all(fsdp_state, input_states):
        gathered = gather(fsdp_state, input_states)
        here = gathered[fsdp_state.rank]
        like = next((info for info in here.values() if info.tensors), None)
        if like is not None:
            lacking = {name: like for name, state in input_states.items() if not state}
            gathered[fsdp_state.rank - 1] = here | lacking
        return gathered

    module._map_param_key_to_optim_keys = map_all_keys
    module._allgather_state_info = gather_all


def reduce_alone(module):
    """Makes DDP use a bucket as its own sum. DDP waits for the sum as a value, which the fake process
    group does not give. This hook's sum takes as much memory as the one that DDP makes."""
    ddp = module.DistributedDataParallel
    init, register = ddp.__init__, ddp.register_comm_hook

    def sum_of_bucket(ddp_group, bucket):
        groups.tell_reduced(ddp_group, bucket.buffer())
        future = module.torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def init_with_hook(self, *args, **kwargs):
        init(self, *args, **kwargs)
        register(self, self.process_group, sum_of_bucket)
        self._comm_hooks.clear()  # a copy of the model copies these, and a group has no copy

    def leave_out(self, *args, **kwargs):
        say("DDP's communication hook is left out: what it allocates is not recorded")

    ddp.__init__ = init_with_hook
    ddp.register_comm_hook = leave_out


# --- launchers ------------------------------------------------------------------------------------


def _flag(words, name, default):
    """Returns N of --name N or --name=N, with hyphens or underscores, before the first script."""
    for word, following in zip(words, [*words[1:], ""]):
        if word.endswith(".py"):
            break
        flag, _, value = word.partition("=")
        if flag.replace("-", "_") == f"__{name}" and (value or following).isdecimal():
            return int(value or following)
    return default


def _gpus_wanted_by_launcher():
    """Returns the number of GPUs that accelerate or DeepSpeed is asked for. Both count GPUs: if there
    is one, accelerate starts one process, however many it is asked for."""
    words = sys.orig_argv
    programs = {os.path.basename(word) for word in words[:3]}
    if (programs & {"accelerate-launch", "accelerate.commands.launch"}
            or ("accelerate" in programs and "launch" in words[:3])):
        return _flag(words, "num_processes", 1) // _flag(words, "num_machines", 1)
    if programs & {"deepspeed", "deepspeed.launcher.runner"}:
        return _flag(words, "num_gpus", 1)
    return 1


def give_gpus_to_launcher():
    there = int(os.environ.get("SHARDLENS_NULL_GPUS", 1))
    os.environ["SHARDLENS_NULL_GPUS"] = str(max(_gpus_wanted_by_launcher(), there))


def settle_under_deepspeed():
    """Ends all but one of the processes that DeepSpeed's launcher starts, one for each rank of a
    machine. The launcher has already told each process its GPU."""
    names = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_SIZE")
    if any(name not in os.environ for name in names):
        return
    size, gpu, gpus, _ = (int(os.environ[name]) for name in names)
    if gpu != (World.rank or 0) % gpus:
        os._exit(0)
    World.settle(size, 0, gpus)
    say(f"DeepSpeed's launcher: only rank {World.rank} of {World.size} is run")


def replace_spawn(module):
    """Runs one rank in this process; torch.multiprocessing.spawn would start a process for each
    rank of a machine."""

    def spawn(fn, args=(), nprocs=1, *rest, **kwargs):
        World.settle(nprocs, 0, nprocs)
        say(f"torch.multiprocessing.spawn: only rank {World.rank} of {nprocs} is run")
        fn(World.rank % nprocs, *args)

    module.spawn = spawn


def replace_torchrun(module):
    """Turns this process into one rank. torchrun, and accelerate through it, would start a process
    for each."""

    def launch(self, *arguments):
        config = self._config
        gpus = config.nproc_per_node
        World.settle(config.max_nodes * gpus, 0, gpus)
        if callable(self._entrypoint):
            return self._entrypoint(*arguments)
        sys.stdout.flush()
        os.execvp(self._entrypoint, [self._entrypoint, *arguments])

    module.elastic_launch.__call__ = launch
