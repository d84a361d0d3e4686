"""Token ids of two bytes, drawn by seed, as nanoGPT's prepare.py leaves them."""

import pathlib
import sys

import numpy

draw = numpy.random.default_rng(7)
for name in ("train", "val"):
    draw.integers(0, 512, 100_000, numpy.uint16).tofile(pathlib.Path(sys.argv[1]) / f"{name}.bin")
