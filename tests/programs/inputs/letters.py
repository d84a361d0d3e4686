"""Text of one letter after another, in the formats of nanoGPT, minGPT, the word language model and
enwik8."""

import gzip
import pathlib
import pickle
import string
import sys

import numpy

LETTERS = string.ascii_letters + ",.! \n"
ENWIK8_BYTES = 95_000_000  # of which programs split off 5 million


def nanogpt(out):
    ids = numpy.arange(100_000, dtype=numpy.uint16) % len(LETTERS)
    for name in ("train.bin", "val.bin"):
        ids.tofile(out / name)
    to_number = {letter: number for number, letter in enumerate(LETTERS)}
    with (out / "meta.pkl").open("wb") as file:
        pickle.dump({"vocab_size": len(LETTERS), "stoi": to_number,
                     "itos": dict(enumerate(LETTERS))}, file)


def main():
    out = pathlib.Path(sys.argv[1])
    (out / "shakespeare_char").mkdir()
    nanogpt(out / "shakespeare_char")
    (out / "input.txt").write_text(LETTERS * 200)
    words = [" ".join(LETTERS[i:i + 5].strip() for i in range(20)) for _ in range(400)]
    for name in ("train", "valid", "test"):
        (out / f"{name}.txt").write_text("\n".join(words) + "\n")
    with gzip.open(out / "enwik8.gz", "wb", compresslevel=1) as file:
        file.write(LETTERS.encode() * (ENWIK8_BYTES // len(LETTERS) + 1))


main()
