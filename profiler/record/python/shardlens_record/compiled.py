"""Tells the recorder which code of the program the nodes of a compiled graph stand for. Inductor
names these nodes in a comment above each kernel of its generated code, which the recorder reads."""

import functools
import re
import sys

from .guards import guarded, replace

_UNKNOWN = "what compiled code allocates has no line of the program"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_INDEX = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]")


def _place(node):
    """Returns "train.py:16 forward", the innermost line of the program in a node's stack."""
    places = [(file, line, name) for file, line, name in _FRAME.findall(node.meta.get("stack_trace") or "")
              if "/torch/" not in file]
    if not places:
        return ""
    file, line, name = places[-1]
    return f"{file.rsplit('/', 1)[-1]}:{line} {name}"


def _module(node):
    """Returns "blocks.3", the innermost module that the node is in."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path = list(stack.values())[-1][0]
    path = _INDEX.sub(r".\1", path.replace("L['self']", "").replace("L['fn']", ""))
    return ".".join(part for part in path.split(".")
                    if part and part not in ("_modules", "L", "self", "_orig_mod"))


def _graph(torch):
    """Returns the graph as the first line of the generated code names it."""
    context = torch._guards.TracingContext.try_get()
    return str(getattr(context, "aot_graph_name", None)) if context is not None else None


def _nodes(schedule, utils):
    origins = [one for one in utils.aggregate_origins(schedule) if one.op == "call_function"]
    for node in origins:
        is_backward = node.meta.get("partitioner_tag") == "is_backward"
        source = node.meta.get("from_node")
        yield (node.name if not source else source[0].name), node, is_backward


def watch(module, tell):
    """Replaces get_kernel_metadata, which writes the comments, wherever Inductor has imported it."""

    @guarded(_UNKNOWN)
    def note(schedule):
        graph = _graph(sys.modules["torch"])
        if graph is None:
            return
        for name, node, is_backward in _nodes(schedule, sys.modules["torch._inductor.utils"]):
            place = _place(node)
            if place:
                tell(graph, name, place, _module(node), is_backward)

    def noting(inner):
        @functools.wraps(inner)
        def get_kernel_metadata(node_schedule, *args, **kwargs):
            note(node_schedule)
            return inner(node_schedule, *args, **kwargs)

        return get_kernel_metadata

    replace(module, "get_kernel_metadata", noting)
