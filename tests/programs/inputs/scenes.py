"""Pictures of noise: with objects, in the formats of COCO and Pascal VOC, and in folders of
classes."""

import json
import pathlib
import sys

import numpy
from PIL import Image

WIDTH, HEIGHT = 160, 120
COUNTS = {"train": 8, "val": 4}
KINDS = 90  # kinds of objects in COCO
CLASSES = 6  # more than the five of which torchvision counts hits


def picture(noise, path):
    pixels = noise.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=numpy.uint8)
    Image.fromarray(pixels).save(path, quality=50)


def box(noise):
    x, y = noise.integers(0, WIDTH // 2), noise.integers(0, HEIGHT // 2)
    return [int(x), int(y), WIDTH // 3, HEIGHT // 3]


def outline(x, y, width, height):
    return [x, y, x + width, y, x + width, y + height, x, y + height]


def write_coco(folder, noise):
    (folder / "annotations").mkdir(parents=True)
    for part, count in COUNTS.items():
        (folder / f"{part}2017").mkdir()
        images, objects = [], []
        for number in range(count):
            name = f"{number:012}.jpg"
            picture(noise, folder / f"{part}2017" / name)
            images.append({"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT})
            for _ in range(2):
                place = box(noise)
                objects.append({"id": len(objects) + 1, "image_id": number, "bbox": place, "iscrowd": 0,
                                "category_id": int(noise.integers(1, 20)), "area": place[2] * place[3],
                                "segmentation": [outline(*place)]})
        kinds = [{"id": kind, "name": f"kind{kind}"} for kind in range(1, KINDS + 1)]
        text = json.dumps({"info": {}, "images": images, "annotations": objects, "categories": kinds})
        (folder / "annotations" / f"instances_{part}2017.json").write_text(text)


def write_voc(folder, noise):
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (folder / name).mkdir(parents=True)
    for part, count in COUNTS.items():
        names = [f"{part}{number}" for number in range(count)]
        for name in names:
            picture(noise, folder / "JPEGImages" / f"{name}.jpg")
            classes = noise.integers(0, 21, (HEIGHT, WIDTH), dtype=numpy.uint8)
            Image.fromarray(classes).save(folder / "SegmentationClass" / f"{name}.png")
        (folder / "ImageSets" / "Segmentation" / f"{part}.txt").write_text("\n".join(names) + "\n")


def write_classes(folder, noise):
    for part, count in COUNTS.items():
        for kind in range(CLASSES):
            place = folder / part / f"kind{kind}"
            place.mkdir(parents=True)
            for number in range(count):
                picture(noise, place / f"{number}.jpg")


def main():
    out, noise = pathlib.Path(sys.argv[1]), numpy.random.default_rng(0)
    write_classes(out / "classes", noise)
    write_coco(out / "coco", noise)
    write_voc(out / "voc" / "VOCdevkit" / "VOC2012", noise)


main()
