"""MNIST and FashionMNIST as torchvision leaves them, with a few images of noise."""

import pathlib
import struct
import sys

import numpy

COUNTS = {"train": 1024, "t10k": 256}


def main():
    noise = numpy.random.default_rng(0)
    for name in ("MNIST", "FashionMNIST"):
        raw = pathlib.Path(sys.argv[1]) / name / "raw"
        raw.mkdir(parents=True)
        for part, count in COUNTS.items():
            pixels = noise.integers(0, 256, (count, 28, 28), dtype=numpy.uint8)
            labels = noise.integers(0, 10, count, dtype=numpy.uint8)
            for ending, head, values in (("images-idx3", (2051, count, 28, 28), pixels),
                                         ("labels-idx1", (2049, count), labels)):
                data = struct.pack(f">{len(head)}i", *head) + values.tobytes()
                (raw / f"{part}-{ending}-ubyte").write_bytes(data)


main()
