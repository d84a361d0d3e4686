#!/usr/bin/env python3
"""Writes planner/time/gemm_tables.cpp and nccl_tables.cpp, and the cases that their tests keep from
them, from measured latencies of matrix products and of NCCL.

    reduce_times.py TIMES [--check]

TIMES (../shared/evidence/times) has gemm_*.parquet and nccl_*.parquet of several GPUs, from
ai-dynamo/aiconfigurator at 095f58a5, systems/data (Apache-2.0): milliseconds by m, n and k, in CUDA
graphs, and by operation, GPUs and numbers of 2 bytes. Needs pandas and pyarrow. A shape is in the
table if m, n and k are all of the grid; the test's shapes are drawn from those of which n and k are
not. Of NCCL every other size is in the table, and the sizes between are the test's. So nothing
gives a constant and is tested with. --check writes nothing and exits with 1 if the files differ.
"""

import argparse
import math
import pathlib
import random
import sys

import pandas

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLES = ROOT / "planner/time/gemm_tables.cpp"
HELD_OUT = ROOT / "tests/fixtures/time/gemm_held_out.csv"
NCCL_TABLES = ROOT / "planner/time/nccl_tables.cpp"
NCCL_HELD_OUT = ROOT / "tests/fixtures/time/nccl_held_out.csv"
SEED = 20261127
HELD_OUT_PER_GPU = 240
ROWS = (1, 16, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 8192, 16384, 32768)
SIDES = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384, 65536)
FIRST, LAST = 33, 126  # printable characters
DIGITS = LAST - FIRST + 1
UNITS_PER_OCTAVE = 256  # of a time; 0 stands for half a microsecond
SHORTEST = 0.5e-6
COLUMNS = 86

# Our name and the file, in the order in which the tables are written.
GPUS = (("a100-80", "a100_sxm/gemm_vllm-0.14.0"), ("h100", "h100_sxm/gemm_vllm-0.24.0"),
        ("h200", "h200_sxm/gemm_vllm-0.24.0"), ("l40s", "l40s/gemm_vllm-0.24.0"),
        ("rtx-pro-6000", "rtx_pro_6000_server/gemm_vllm-0.24.0"),
        ("b200", "b200_sxm/gemm_vllm-0.24.0"), ("b300", "b300_sxm/gemm_vllm-0.24.0"),
        ("gb200", "gb200/gemm_vllm-0.24.0"))

# The L40S is left out, since its GPUs there reach each other at 1 GB/s, through one host's sockets.
NCCL = (("a100-80", "a100_sxm/nccl_2.27.3"), ("h100", "h100_sxm/nccl_2.29.2"),
        ("h200", "h200_sxm/nccl_2.29.2"), ("b200", "b200_sxm/nccl_2.29.2"),
        ("b300", "b300_sxm/nccl_2.29.2"), ("gb200", "gb200/nccl_2.29.2"))
OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "alltoall")
NUMBERS = [1 << power for power in range(9, 29)]  # of 2 bytes
HALVES = 2


def times_of(file):
    table = pandas.read_parquet(file)
    table = table[table.gemm_dtype == "bfloat16"]
    return table.groupby(["m", "n", "k"]).latency.median().div(1e3).to_dict()


def filled(times, m, n, k):
    """The time of a shape of the grid; of one that nobody measured, from its neighbours'."""
    if (m, n, k) in times:
        return times[m, n, k]
    i, j = SIDES.index(n) - 1, SIDES.index(k) - 1
    return (times[m, SIDES[i], k] * times[m, n, SIDES[j]]) / times[m, SIDES[i], SIDES[j]]


def encoded(seconds):
    units = round(UNITS_PER_OCTAVE * math.log2(seconds / SHORTEST))
    assert 0 <= units < DIGITS * DIGITS, seconds
    return "".join(chr(FIRST + digit) for digit in divmod(units, DIGITS))


def rows_of(times):
    measured = {m for m, _, _ in times}
    return [m for m in ROWS if m in measured]


def table_text(gpu, times):
    cells = [encoded(filled(times, m, n, k)) for m in rows_of(times) for n in SIDES for k in SIDES]
    text = "".join(cells)
    lines = [text[i:i + COLUMNS] for i in range(0, len(text), COLUMNS)]
    quoted = "\n".join('    R"t(' + line + ')t"' for line in lines)
    name = "".join(part.capitalize() for part in gpu.split("-"))
    return f"constexpr std::string_view k{name} =\n{quoted};\n", name


HEAD = """// Written by tests/evidence/reduce_times.py from measurements of ai-dynamo/aiconfigurator
// (095f58a5, systems/data, Apache-2.0): how long bf16 matrix products with fp32 sums took, by
// torch.nn.functional.linear in a CUDA graph, the median of a shape's rows. Two characters a time,
// by m, then n, then k: units = 94 x (first - '!') + (second - '!'), and the time is
// 0.5 us x 2^(units / 256).
#include "planner/time/gemm_tables.h"

#include <array>

namespace shardlens::planner {

namespace {

// clang-format off
"""


def tables_text(all_times):
    text, names = HEAD, []
    for gpu, times in all_times.items():
        table, name = table_text(gpu, times)
        text += table + "\n"
        names.append((gpu, name, rows_of(times)))
    numbers = ", ".join(map(str, ROWS))
    text += f"constexpr std::array kRows = {{{numbers}}};\n"
    sides = ", ".join(map(str, SIDES))
    text += f"constexpr std::array kSides = {{\n    {sides}}};\n"
    short = [rows for _, _, rows in names if rows != list(ROWS)]
    assert len(short) == 1
    text += f"constexpr std::array kFewRows = {{{', '.join(map(str, short[0]))}}};\n"
    text += "\nconstexpr std::array kGemmTables = {\n"
    for gpu, name, rows in names:
        array = "kRows" if rows == list(ROWS) else "kFewRows"
        text += f'    GemmTable{{"{gpu}", {array}, kSides, k{name}}},\n'
    text += "};\n// clang-format on\n\n}  // namespace\n\n"
    text += "std::span<const GemmTable> gemm_tables() { return kGemmTables; }\n"
    return text + "\n}  // namespace shardlens::planner\n"


def held_out_text(all_times):
    draw = random.Random(SEED)
    lines = ["gpu,m,n,k,microseconds"]
    for gpu, times in all_times.items():
        kept = sorted(shape for shape in times if shape[0] not in ROWS and shape[0] > 16 and
                      shape[1] not in SIDES and shape[2] not in SIDES)
        if len(kept) < HELD_OUT_PER_GPU:
            kept = sorted(shape for shape in times
                          if shape[1] not in SIDES and shape[2] not in SIDES)
        for shape in sorted(draw.sample(kept, min(HELD_OUT_PER_GPU, len(kept)))):
            lines.append(",".join([gpu, *map(str, shape), f"{times[shape] * 1e6:.2f}"]))
    return "\n".join(lines) + "\n"


NCCL_HEAD = """// Written by tests/evidence/reduce_times.py from measurements of
// ai-dynamo/aiconfigurator (095f58a5, systems/data, Apache-2.0) with NCCL 2.27 (A100) and 2.29,
// GPUs of one node: the microseconds of a collective of 1 KiB, 4 KiB, 16 KiB, ... 256 MiB.
#include "planner/time/nccl_tables.h"

namespace shardlens::planner {

namespace {

using enum profiler::CollectiveKind;

// clang-format off
constexpr NcclTable kNcclTables[] = {
"""
NCCL_TAIL = """};
// clang-format on

}  // namespace

std::span<const NcclTable> nccl_tables() { return kNcclTables; }

}  // namespace shardlens::planner
"""


def nccl_texts(folder):
    text, held_out = NCCL_HEAD, ["gpu,operation,gpus,bytes,microseconds"]
    for gpu, file in NCCL:
        table = pandas.read_parquet(folder / f"{file}.parquet")
        table = table[table.nccl_dtype == "half"]
        times = table.set_index(["op_name", "num_gpus", "message_size"]).latency.to_dict()
        for operation in OPERATIONS:
            name = operation.replace("alltoall", "all_to_all")
            for gpus in sorted(set(table.num_gpus)):
                found = [times[operation, gpus, numbers] * 1e3 for numbers in NUMBERS]
                row = ", ".join(f"{time:.3g}" for time in found[::2])
                text += f'    {{"{gpu}", {name}, {gpus}, {{{row}}}}},\n'
                held_out += [f"{gpu},{name},{gpus},{numbers * HALVES},{time:.4g}"
                             for numbers, time in list(zip(NUMBERS, found))[1:-1:2]]
    return text + NCCL_TAIL, "\n".join(held_out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("times", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    all_times = {gpu: times_of(arguments.times / f"{file}.parquet") for gpu, file in GPUS}
    files = {TABLES: tables_text(all_times), HELD_OUT: held_out_text(all_times)}
    files[NCCL_TABLES], files[NCCL_HELD_OUT] = nccl_texts(arguments.times)
    if arguments.check:
        sys.exit(any(file.read_text() != text for file, text in files.items()))
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()
