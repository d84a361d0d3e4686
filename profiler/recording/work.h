// Defines the trace of work: what a program asked of its GPU, in the order in which it asked, and
// how long the host took between two requests. The null device makes it (`record --time`); it is a
// layer of a recording, of which predictions of a step's time are made; read_work() of
// profiler/file/work_layer.h reads it.
//
// A trace has distinct pieces of work (`Work`: a kernel with its grid, a matrix product with its
// sizes) and the items that ask for one of them. A step repeats those of the step before, so pieces
// are few and items are many.
//
// [Note: the host's time] The null device answers at once, so between two items there is only the
// host's own time: Python, dispatch, autograd, allocation. It lacks what NVIDIA's driver takes for
// the call itself (about 2 us for a launch), which a prediction adds for each item. What the
// recorder took is in the interval, too, and is told apart as `own_ns`.
//
// [Note: waits] Waiting calls return at once on the null device. The trace says where the host
// would wait: items of the kinds from stream_synchronize to device_synchronize wait for all that
// was asked for before; a copy waits if `Copy::blocks` says so.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/choice.h"

namespace shardlens::profiler {

enum class WorkKind : uint8_t {
  kernel,              // Work::launch
  product,             // of matrices, by cuBLAS or cuBLASLt: Work::product
  library_call,        // of a library whose sizes only the operator tells: cuDNN, cuFFT, cuSOLVER
  copy,                // Work::copy
  set,                 // Work::copy: cudaMemset
  collective,          // Work::collective: a call of NCCL, or of c10d in its place
  graph_launch,        // `about`: the CUDA graph, whose work the items with this `graph` are
  event_record,        //
  event_wait,          // a stream waits; `about`: the item that recorded the event
  event_synchronize,   // the host waits; `about`: the same
  event_query,         // the host asks whether it is done; `about`: the same. The null device
                       // always says yes, so a program that asks until it is done asks once
  stream_synchronize,  // the host waits for the item's stream
  device_synchronize,  // the host waits for all streams
  memory,              // Work::copy.bytes are given or taken back by the driver; Work::name says
                       // by which call. cudaFree waits for the device as device_synchronize does
  step,                // the program's step `about` begins, from 0
};
constexpr auto choice_words(WorkKind) {
  return words("kernel", "product", "library_call", "copy", "set", "collective", "graph_launch",
               "event_record", "event_wait", "event_synchronize", "event_query",
               "stream_synchronize", "device_synchronize", "memory", "step");
}

/// The type of a number; the last ones are ways to multiply, or no numbers.
enum class NumberType : uint8_t {
  unknown,
  fp64,
  fp32,
  fp16,
  bf16,
  fp8_e4m3,
  fp8_e5m2,
  fp4,
  int64,
  int32,
  int16,
  int8,
  uint8,
  boolean,
  complex64,
  complex128,
  tf32,  // how fp32 is multiplied
  text,  // an argument that is not a number, or none
};
constexpr auto choice_words(NumberType) {
  return words("unknown", "fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4", "int64",
               "int32", "int16", "int8", "uint8", "boolean", "complex64", "complex128", "tf32",
               "text");
}

constexpr bool is_fp8(NumberType type) {
  return type == NumberType::fp8_e4m3 || type == NumberType::fp8_e5m2;
}
constexpr bool is_half(NumberType type) {
  return type == NumberType::bf16 || type == NumberType::fp16;
}

/// A kernel's launch. All threads of a grid are grid[0] * grid[1] * grid[2] blocks.
struct Launch {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t shared_bytes = 0;  // asked for at the launch, beside what the kernel declares

  bool operator==(const Launch&) const = default;
};

enum class Epilogue : uint8_t { none, bias, relu, gelu, gradient, other };
constexpr auto choice_words(Epilogue) {
  return words("none", "bias", "relu", "gelu", "gradient", "other");
}

/// A product of matrices as cuBLAS gets it, which counts rows along columns: C(m x n) = A(m x k)
/// B(k x n). PyTorch's linear of `t` rows from `i` to `o` features is m = o, n = t, k = i, with A
/// transposed.
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;  // of products
  NumberType a{};
  NumberType b{};
  NumberType c{};        // of the result
  NumberType compute{};  // fp32, tf32, fp16, fp64, int32
  bool transposes_a = false;
  bool transposes_b = false;
  Epilogue epilogue{};  // relu and gelu also with a bias

  bool operator==(const Product&) const = default;
};

enum class CopyKind : uint8_t { host_to_device, device_to_host, on_device, on_host };
constexpr auto choice_words(CopyKind) {
  return words("host_to_device", "device_to_host", "on_device", "on_host");
}

struct Copy {
  int64_t bytes = 0;
  CopyKind kind = CopyKind::on_device;
  bool is_pageable = false;  // the memory on the host is not pinned
  bool blocks = false;       // the host goes on when the copy is done

  bool operator==(const Copy&) const = default;
};

enum class CollectiveKind : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  reduce,
  broadcast,
  all_to_all,
  send,
  receive,
};
constexpr auto choice_words(CollectiveKind) {
  return words("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all",
               "send", "receive");
}

struct Collective {
  CollectiveKind kind{};
  /// The larger of what a rank gives and what it gets: an all-gather's output, a reduce-scatter's
  /// input, an all-reduce's tensor. (The "size" that nccl-tests prints.)
  int64_t bytes = 0;
  NumberType type{};
  uint32_t communicator = 0;  // index into WorkTrace::communicators
  int32_t peer = -1;          // the root, or the other rank of send and receive; -1: none
  /// True if it starts together with the item before it, as ncclGroupEnd starts all of a group.
  bool joins_previous = false;

  bool operator==(const Collective&) const = default;
};

/// A distinct piece of work. Only the member that `kind` names has a meaning; the others are zero.
struct Work {
  WorkKind kind{};
  uint32_t name = 0;  // into WorkTrace::strings: the kernel, demangled; "cublasLtMatmul"; 0: none
  uint32_t call = 0;  // into WorkTrace::calls: PyTorch's operator around it; 0: none
  Launch launch{};
  Product product{};
  Copy copy{};
  Collective collective{};

  bool operator==(const Work&) const = default;
};

/// An argument of an operator.
struct OperatorInput {
  NumberType type = NumberType::text;
  uint32_t tensors = 0;  // 0: a number or a list of numbers, 1: a tensor, more: a list of them
  std::vector<int64_t> sizes;  // of the tensor; of several: {all their elements}; else the numbers

  bool operator==(const OperatorInput&) const = default;
};

/// The innermost operator of PyTorch that runs: "aten::addmm" with its arguments in order.
struct OperatorCall {
  uint32_t name = 0;         // into WorkTrace::strings
  bool in_backward = false;  // autograd calls it
  std::vector<OperatorInput> inputs;

  bool operator==(const OperatorCall&) const = default;
};

struct WorkCommunicator {
  int32_t size = 1;                  // its ranks
  int32_t rank = 0;                  // the recorded rank's number among them
  std::vector<int32_t> world_ranks;  // their numbers in the world; empty: not known

  bool operator==(const WorkCommunicator&) const = default;
};

struct WorkItem {
  int64_t time_ns = 0;  // when the host asked, since the recording began
  int64_t own_ns = 0;   // of the time since the item before, the recorder's own
  int64_t about = -1;   // as WorkKind says: an index into WorkTrace::items, or a number
  uint32_t work = 0;    // index into WorkTrace::work
  uint16_t stream = 0;  // the same number as Event::stream; 0 is the main stream
  uint16_t thread = 0;  // that asked, in order of first appearance
  uint32_t graph = 0;   // that captures it: it runs only when this graph is launched; 0: none

  bool operator==(const WorkItem&) const = default;
};

/// A whole trace in memory. The first string, call and communicator stand for none.
struct WorkTrace {
  std::vector<std::string> strings = {""};
  std::vector<OperatorCall> calls = {{}};
  std::vector<WorkCommunicator> communicators = {{}};
  std::vector<Work> work;
  std::vector<WorkItem> items;      // in order of time, of all threads
  std::vector<std::string> faults;  // what is missing after the last item, one line each

  /// True if the recording has no trace.
  bool empty() const { return items.empty(); }

  const Work& work_of(const WorkItem& item) const { return work[item.work]; }
  const std::string& name_of(const Work& piece) const { return strings[piece.name]; }
  /// Returns the piece's name, or the word for its kind if it has none.
  std::string title_of(const Work& piece) const {
    const std::string& name = name_of(piece);
    return name.empty() ? std::string(to_string(piece.kind)) : name;
  }

  /// Returns the host's own time before an item since the item before it, of any thread.
  int64_t host_ns(size_t item) const {
    if (item == 0) return 0;
    const int64_t interval = items[item].time_ns - items[item - 1].time_ns - items[item].own_ns;
    return interval > 0 ? interval : 0;
  }
};

}  // namespace shardlens::profiler
