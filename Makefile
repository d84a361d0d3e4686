# Shardlens is built by CMake (CMakePresets.json). This file is the front door: each command first
# installs what is missing, and is quick if nothing is. Start with make demo or make test.

# Where LibTorch is installed; clones may share one folder.
SHARDLENS_DEPS ?= $(CURDIR)/.deps
export SHARDLENS_DEPS
# The PyTorch to build with, one of those in .setup/pins: make TORCH=2.11.0 build.
export TORCH

.PHONY: help demo programs check test test-sanitized build benchmarks tools wheel tarball gpu bench
.PHONY: fuzz test-long test-wheels test-programs clean
.NOTPARALLEL:

help:
	@echo 'make demo        train the tutorial model, sharded over two ranks'
	@echo 'make test        build and run the tests'
	@echo 'make test-sanitized  run tests with the sanitizers of addresses and of threads'
	@echo 'make check       build what needs no LibTorch, and test what has changed'
	@echo 'make programs    build the programs into build/bin'
	@echo 'make build       build the tests, too'
	@echo 'make tools       build what needs no LibTorch into build/core/bin'
	@echo 'make wheel       make dist/*.whl, with recorders for PyTorch 2.9 to 2.15 (fetches 6 GB once)'
	@echo 'make tarball     make the wheel, and an archive for machines without Python'
	@echo 'make benchmarks  build what make bench runs'
	@echo 'make bench       measure, and compare steps with PyTorch (fetches 2.5 GB once)'
	@echo 'make test-long   run the tests that take too long for every change (fetches 2 GB once)'
	@echo 'make fuzz        feed hostile files to everything that reads files, for MINUTES=10'
	@echo 'make test-wheels compare the null device with and without NVIDIA'"'"'s wheels (fetches 2.5 GB once)'
	@echo 'make test-programs record third-party programs, unchanged (fetches 5 GB once)'
	@echo 'make gpu         fetch NVIDIA'"'"'s libraries for LibTorch (make build does so if there is a GPU)'
	@echo 'make clean       remove build/ (the installed .deps/ and your runs/ stay)'

demo:
	@.setup/build demo
	@.setup/demo

check:
	@.setup/check

programs:
	@.setup/build programs

test:
	@.setup/test

test-sanitized:
	@.setup/test sanitized

build:
	@.setup/build full

tools:
	@.setup/build core
	@echo 'shardlens: the programs are in build/core/bin'

wheel:
	@.setup/wheel

tarball:
	@.setup/wheel archive

benchmarks:
	@.setup/build benchmarks

bench: benchmarks
	@tests/bench/report_time
	@tests/bench/plan_time
	@tests/bench/frame_time
	@.setup/peers
	@"$(SHARDLENS_DEPS)/peers/bin/python" tests/bench/step_time
	@"$(SHARDLENS_DEPS)/peers/bin/python" tests/bench/host_cost
	@"$(SHARDLENS_DEPS)/peers/bin/python" tests/bench/null_table
	@"$(SHARDLENS_DEPS)/peers/bin/python" tests/bench/known_cost
	@"$(SHARDLENS_DEPS)/peers/bin/python" tests/bench/stack_cost
	@tests/bench/recorder_cost
	@tests/bench/checkpoint_cost
	@tests/bench/checkpoint_throughput
	@tests/bench/claims

gpu: build
	@.setup/gpu

test-wheels:
	@.setup/test-wheels

test-programs: programs
	@tests/programs/run

test-long:
	@.setup/test long

MINUTES ?= 10
fuzz:
	@.setup/fuzz "$(MINUTES)"

clean:
	@rm -rf build
