"""Photographs of noise: folders of two classes, for training and validation, and their captions in
the formats that open_clip and datasets read."""

import csv
import json
import pathlib
import sys

import numpy
from PIL import Image

SIDE = 256
COUNTS = {"train": 32, "val": 16}  # in a class


def main():
    out, noise = pathlib.Path(sys.argv[1]), numpy.random.default_rng(0)
    captions = []
    for part, count in COUNTS.items():
        for kind in ("cat", "dog"):
            (out / part / kind).mkdir(parents=True)
            for number in range(count):
                path = out / part / kind / f"{number}.jpg"
                pixels = noise.integers(0, 256, (SIDE, SIDE, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(path, quality=50)
                captions.append((path, f"a photo of a {kind}"))
    with (out / "captions.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(("filepath", "title"))
        writer.writerows(captions)
    with (out / "train" / "metadata.jsonl").open("w") as file:
        for path, caption in captions:
            if path.is_relative_to(out / "train"):
                name = str(path.relative_to(out / "train"))
                print(json.dumps({"file_name": name, "text": caption}), file=file)


main()
