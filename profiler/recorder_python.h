// Records a Python program that knows nothing of it: the calls that `shardlens record`'s hooks in
// Python (runtime/record/python) make of libshardlens_python.so. The library is loaded into the
// user's process once PyTorch has initialised CUDA, and there uses the PyTorch that is loaded.
//
// Allocations are classed by python_rules.h when they are made. What only Python knows (which
// storage is a parameter, a gradient, optimizer state) is said later by recategorise.
//
// Python's lock is held by whoever calls. No call throws; calls while nothing is recorded do
// nothing.
#pragma once

#include <cstdint>

extern "C" {

struct ShardlensRecordStart {
  const char* path;       // of the recording
  const char* device;     // "null:h100", "cuda"
  const char* notice;     // what a reader must be told
  const char* libraries;  // versions, one a line
  const char* config;     // the command, as JSON
  int32_t rank;
  int32_t world_size;
  int32_t gpu;          // that the process is expected to use, from 0
  int32_t is_attached;  // to a program on a real GPU: the driver and the device are asked, too
};

/// At the end of a recording.
struct ShardlensRecordEnd {
  int64_t events;
  int64_t lost_events;
  // As PyTorch's own counters say, since the program has reset them:
  int64_t retries;          // allocations that were served after cached memory was given back
  int64_t allocations;      // that were served
  int64_t allocated_bytes;  // now
  int64_t reserved_bytes;
  int64_t peak_allocated_bytes;
  int64_t peak_reserved_bytes;
};

/// Null, or why there is no recording; valid until the next call. Makes no context on any device:
/// the program has not chosen its own yet.
const char* shardlens_record_begin(const ShardlensRecordStart* start);
/// Null, or why a recording that is attached has no layer of the driver; valid until the next call.
const char* shardlens_record_driver_fault();
/// Somebody else wants CUPTI, which serves one.
void shardlens_record_leave_driver();
/// The first optimizer was made, or a step is over: step `step` begins, from 0.
void shardlens_record_step(int64_t step);
/// The live block at `address` is of this Category, and was from the start.
void shardlens_record_recategorise(uint64_t address, int32_t category);
/// The blocks that cuBLAS works in are not what they were first taken for.
void shardlens_record_workspaces();
/// The program has asked PyTorch for a memory history of its own, with these arguments: it gets
/// that, and the recording its stacks.
void shardlens_record_share_history(int32_t context, int64_t entries, int32_t with_cpp);
/// Where there was a recording. False: nothing was being recorded.
bool shardlens_record_end(ShardlensRecordEnd* end);
}
