"""Nothing can be timed on a null device: all kernels among which Triton would choose take as long. It
takes the first that can be launched, and the others need not be compiled."""

from .guards import replace


_NEVER = float("inf")  # Triton's time of a kernel that cannot be launched


def take_first(module):
    """For each choice Triton asks which kernels come into question, then how long each takes."""
    tuner = module.Autotuner

    def pruning(inner):
        def prune_configs(self, *args, **kwargs):
            self._shardlens_chosen = False
            return inner(self, *args, **kwargs)

        return prune_configs

    def timing(inner):
        def bench(self, *args, **kwargs):
            if getattr(self, "_shardlens_chosen", False):
                return [_NEVER] * 3
            times = inner(self, *args, **kwargs)
            self._shardlens_chosen = times[0] != _NEVER
            return times

        return bench

    replace(tuner, "prune_configs", pruning)
    replace(tuner, "_bench", timing)
