"""Says how tokens choose experts if scores are unknown (profiler/record/known/experts.h). It tells the
recorder's library the --routing and which experts are this rank's, and the verdict what was
assumed."""

import functools
import re

from . import OPTIONS
from .guards import guarded, replace, say

_BALANCED, _SKEWED, _WORST = range(3)  # of profiler/record/known/routing.h
_OTHER_GROUP = 2  # of shardlens_routing_used

# Matches the names that torchtitan, other meshes and Megatron give to groups over which experts are
# spread.
_NAMES = re.compile(r"(mesh_)?(ep|experts?|expert_parallel|expert_model_parallel_group)", re.I)


class _Experts:
    library = None
    rank, ranks = 0, 1  # that share the experts
    are_placed = False


def follow(library):
    """Passes --routing to the library. It is called before the library begins to follow values."""
    _Experts.library = library
    library.shardlens_set_routing(OPTIONS["routing"], OPTIONS["routing_factor"])
    _tell_place()


def _tell_place():
    if _Experts.library is not None:
        _Experts.library.shardlens_place_experts(_Experts.rank, _Experts.ranks)


@guarded("which experts are this rank's is not known")
def note_group(c10d, group, description):
    """Notes this rank's place in a group over which experts are spread, if the rank is a member."""
    if description is None or not _NAMES.fullmatch(description):
        return
    if group is c10d.GroupMember.NON_GROUP_MEMBER:
        return
    ranks = c10d.get_process_group_ranks(group)
    _place(ranks.index(c10d.get_rank()), len(ranks))


def _place(rank, ranks):
    _Experts.rank, _Experts.ranks, _Experts.are_placed = rank, ranks, True
    _tell_place()


@guarded("which experts are this rank's is not known")
def _note_mesh(mesh):
    place, names = mesh.get_coordinate(), mesh.mesh_dim_names
    if place is None or names is None:
        return
    for dimension, name in enumerate(names):
        if _NAMES.fullmatch(name):
            _place(place[dimension], mesh.size(dimension))


def watch_meshes(module):
    """Watches device meshes, because the dimension of a mesh that is as large as the world has no
    group of its own."""

    def making(made):
        @functools.wraps(made)
        def init(self, *args, **kwargs):
            made(self, *args, **kwargs)
            _note_mesh(self)

        return init

    replace(module.DeviceMesh, "__init__", making)


def _worst(used):
    if used == _OTHER_GROUP:
        return ("which are this rank's is not known, because no group that exchanges them is named "
                "after experts: it may take more than if its own got all tokens")
    if not _Experts.are_placed:
        return "all are assumed to be this rank's, with tokens spread evenly over them"
    return f"all tokens are assumed to choose those of this rank, {_Experts.rank} of {_Experts.ranks}"


def choices_taken():
    """Returns a line that says how experts were chosen, in a list; the list is empty if none were
    chosen."""
    used = _Experts.library.shardlens_routing_used() if _Experts.library is not None else 0
    if not used:
        return []
    how = {_BALANCED: "routing taken as balanced",
           _SKEWED: f"the busiest is assumed to get {OPTIONS['routing_factor']:g} times its share"}
    line = f"experts: {how.get(OPTIONS['routing']) or _worst(used)} (--routing)"
    say(line)
    return [line]
