"""A ViT with random weights, its image processor, and a folder of images for each class."""

import pathlib
import sys

import numpy
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

FOLDER = pathlib.Path(sys.argv[1])
PIXELS = numpy.random.default_rng(7)

config = ViTConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                   num_attention_heads=4, image_size=64, patch_size=8, num_labels=2)
ViTForImageClassification(config).save_pretrained(FOLDER)
ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(FOLDER)
for split in ("train", "test"):
    for name in ("cats", "dogs"):
        folder = FOLDER / "images" / split / name
        folder.mkdir(parents=True)
        for number in range(12):
            image = PIXELS.integers(0, 256, (72, 80, 3), dtype=numpy.uint8)
            Image.fromarray(image).save(folder / f"{number}.png")
