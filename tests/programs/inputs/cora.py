"""A graph of Cora's size with random edges, as Planetoid's files have it."""

import collections
import pathlib
import pickle
import sys

import numpy
import scipy.sparse

NODES, FEATURES, CLASSES, EDGES = 2708, 1433, 7, 5278
TRAINED, TESTED = 140, 1000


def main():
    raw = pathlib.Path(sys.argv[1]) / "Cora" / "raw"
    raw.mkdir(parents=True)
    noise = numpy.random.default_rng(0)
    features = scipy.sparse.random(NODES, FEATURES, 0.0127, "csr", numpy.float32, 0)
    labels = numpy.eye(CLASSES, dtype=numpy.int32)[noise.integers(0, CLASSES, NODES)]
    graph = collections.defaultdict(list)
    for left, right in noise.integers(0, NODES, (EDGES, 2)).tolist():
        graph[left].append(right)
        graph[right].append(left)
    graph = {node: graph[node] for node in range(NODES)}
    rest = NODES - TESTED
    parts = {"x": features[:TRAINED], "tx": features[rest:], "allx": features[:rest],
             "y": labels[:TRAINED], "ty": labels[rest:], "ally": labels[:rest], "graph": graph}
    for name, values in parts.items():
        with (raw / f"ind.cora.{name}").open("wb") as file:
            pickle.dump(values, file)
    (raw / "ind.cora.test.index").write_text("".join(f"{node}\n" for node in range(rest, NODES)))


main()
