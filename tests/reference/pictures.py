"""Writes pictures of every kind that train reads, each with the pixels that Pillow reads from it:

    tests/support/pytorch build tests/reference/pictures.py FOLDER SEED

NAME.jpg or .png has NAME.rgb and NAME.grey beside it: convert("RGB"), and
convert("L") of that, row by row.
"""

import pathlib
import random
import sys

import numpy
from PIL import Image

MODES = {".jpg": ["L", "RGB", "CMYK"], ".png": ["1", "L", "P", "LA", "RGB", "RGBA"]}
SUBSAMPLING = [0, 1, 2]  # 4:4:4, 4:2:2, 4:2:0


def picture(mode, width, height, generator):
    """Smooth with noise, for which JPEG is made."""
    x, y = numpy.meshgrid(numpy.linspace(0, 3, width), numpy.linspace(0, 3, height))
    planes = [128 + 100 * numpy.sin(x * (1 + c) + y) for c in range(4)]
    noise = generator.normal(0, 9, (height, width, 4))
    pixels = numpy.clip(numpy.stack(planes, axis=2) + noise, 0, 255).astype(numpy.uint8)
    return Image.fromarray(pixels, "RGBA").convert("RGB" if mode == "CMYK" else "RGBA").convert(mode)


def main():
    folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    draw, generator = random.Random(seed), numpy.random.default_rng(seed)
    for ending, modes in MODES.items():
        for number, mode in enumerate(modes * 4):
            image = picture(mode, draw.randint(1, 70), draw.randint(1, 70), generator)
            path = folder / f"{number}-{mode}-{ending[1:]}{ending}"
            options = {"quality": draw.randint(5, 100), "progressive": draw.random() < 0.5}
            if mode == "RGB":
                options["subsampling"] = draw.choice(SUBSAMPLING)
            image.save(path, **(options if ending == ".jpg" else {}))
            read = Image.open(path)
            path.with_suffix(".rgb").write_bytes(read.convert("RGB").tobytes())
            path.with_suffix(".grey").write_bytes(read.convert("RGB").convert("L").tobytes())


main()
