// Records a Python program without its knowledge: these are the calls that the Python hooks of
// `shardlens record` (profiler/record/python) make into libshardlens_python.so. The library is
// loaded into the user's process once PyTorch has initialised CUDA, and uses the PyTorch that is
// loaded there.
//
// Allocations are classed by python_rules.h when they are made. Facts that only Python knows (which
// storage is a parameter, a gradient or optimizer state) come later, through recategorise.
//
// The caller holds Python's lock. No call throws; a call does nothing while nothing is recorded.
#pragma once

#include <cstdint>

namespace shardlens::profiler {

/// If it is 0 when a recording begins, each allocation is recorded with only its label, without the
/// stack on which it was made: tests/bench/stack_cost measures what stacks cost.
inline constexpr const char* kRecordStacksVariable = "SHARDLENS_RECORD_STACKS";

}  // namespace shardlens::profiler

extern "C" {

struct ShardlensRecordStart {
  const char* path;         // of the recording
  const char* device;       // "null:h100", "cuda"
  const char* notice;       // what a reader must know
  const char* libraries;    // versions, one a line
  const char* config;       // the command, as JSON
  const char* event_times;  // libshardlens_event_times.so; "": no trace of work is made
  const char* calibration;  // for it; "": none
  int32_t rank;
  int32_t world_size;
  int32_t gpu;           // that the process should use, from 0
  int32_t is_attached;   // to a program on a real GPU: driver and device are watched, too
  int32_t recorded_gpu;  // whose memory is recorded, from 0; -1: the first that allocates
  int32_t has_work;      // a trace of work is made (recording/work.h)
};

/// The counts of a recording when it ends.
struct ShardlensRecordEnd {
  int64_t events;
  int64_t lost_events;
  // The fields below are PyTorch's own counters, since the program last reset them.
  int64_t retries;          // allocations served after cached memory was given back
  int64_t allocations;      // that were served
  int64_t allocated_bytes;  // now
  int64_t reserved_bytes;
  int64_t peak_allocated_bytes;
  int64_t peak_reserved_bytes;
  int64_t gpu;              // whose memory was recorded
  int64_t predicted_times;  // between events, that the program has read
};

/// Begins a recording. Returns null, or why it cannot begin, as a text that is valid until the next
/// call. Makes no context on any device, since the program has not chosen its own yet.
const char* shardlens_record_begin(const ShardlensRecordStart* start);
/// Returns null, or why an attached recording lacks the driver's layer, as a text that is valid
/// until the next call.
const char* shardlens_record_driver_fault();
/// Returns null, or why times between events cannot be predicted, as a text that is valid until the
/// process ends.
const char* shardlens_record_event_fault();
/// Ends the driver's layer, since another tool wants CUPTI, which serves one subscriber.
void shardlens_record_leave_driver();
/// Begins step `step`, from 0. Call it when the first optimizer has been made and after every step.
void shardlens_record_step(int64_t step);
/// Says which ranks of the world a process group has, by PyTorch's name for it, also before a
/// recording begins.
void shardlens_record_group(const char* name, const int32_t* ranks, int32_t count);
/// Adds an asynchronous all-reduce to the trace of work, for which no operator is called. `type` is
/// a word of NumberType.
void shardlens_record_all_reduce(const char* group, int32_t ranks, int32_t rank, int64_t bytes,
                                 const char* type);
/// Call it when the program has waited for asynchronous collectives.
void shardlens_record_await_collectives();
/// Returns the number of a name, for the calls below.
uint32_t shardlens_record_name(const char* text);
/// Names what the calling thread's allocations hold until the next call; 0: no name.
void shardlens_record_name_next(uint32_t name);
/// Sets the Category of the live block at `address`, from its allocation on, and its name unless
/// that is 0.
void shardlens_record_recategorise(uint64_t address, int32_t category, uint32_t name);
/// Sets both if the block has no category yet.
void shardlens_record_classify(uint64_t address, int32_t category, uint32_t name);
/// The program is in a part of a step (ProgramPart) between these.
void shardlens_record_begin_part(int32_t part);
void shardlens_record_end_part(int32_t part);
/// The calling thread calls backward between these, which is that part, too. What autograd's
/// threads allocate for it gets the caller's line.
void shardlens_record_begin_backward();
void shardlens_record_end_backward();
/// Calls `look` once, on Python's main thread, soon after the next forward has allocated.
void shardlens_record_await_forward(void (*look)());
/// Says where in its model the module at an address is ("layers.11.mlp"; empty: it is the model),
/// and its class, until it is forgotten. What it allocates, and backward for it, gets that name.
void shardlens_record_name_module(uint64_t module, const char* path, const char* class_name);
void shardlens_record_forget_module(uint64_t module);
/// Says which code of the program a node of a compiled graph stands for: compiled_code.h.
void shardlens_record_compiled(const char* graph, const char* node, const char* place,
                               const char* module, int32_t is_backward);
/// Changes the category of the blocks that cuBLAS works in to `workspace`, which was unknown when
/// they were allocated.
void shardlens_record_workspaces();
/// Sets the function that says what the calling thread's next allocation is an upper bound for ("a
/// workspace of cuFFT"), or returns null if it is as large as on a GPU. It is called once per
/// allocation, and its texts live as long as the process.
void shardlens_record_name_bounds(const char* (*bound_of_next)());
/// Passes on the arguments with which the program has asked PyTorch for its own memory history. The
/// program gets that history, and the recording still gets its stacks.
void shardlens_record_share_history(int32_t context, int64_t entries, int32_t with_cpp);
/// Ends the recording and fills `end`. Returns false, and leaves `end` alone, if nothing was being
/// recorded.
bool shardlens_record_end(ShardlensRecordEnd* end);
}
