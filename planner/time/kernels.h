// The time of kernels other than products of matrices: those of PyTorch's operators, by the bytes
// that they read and write, fused attention and convolutions by their operations.
//
// Bytes follow from an operator's arguments (planner/time/operators.h). A kernel whose bytes fit
// into half of the L2 is served by it, one whose bytes do not fit into it by the memory. A
// kernel outside any operator (Triton's, one of CUDA C) is taken to read and write 16 bytes a
// thread, which is a guess, so it has a class of its own.
#pragma once

#include <cstddef>

#include "base/choice.h"
#include "base/gpus.h"
#include "profiler/recording/work.h"

namespace shardlens::planner {

/// The parts of a step that have a cost of their own.
enum class WorkClass : uint8_t {
  products,
  attention,
  convolutions,
  kernels,        // that move memory
  other_kernels,  // of which only the grid is known
  collectives,
  copies,
};
constexpr auto choice_words(WorkClass) {
  return words("products", "attention", "convolutions", "kernels", "other_kernels", "collectives",
               "copies");
}
constexpr size_t kWorkClasses = kWords<WorkClass>.size();

struct Cost {
  double seconds = 0;
  double flops = 0;
  WorkClass work_class = WorkClass::kernels;
};

/// Returns the cost of a kernel, or of a call of a library whose operator tells the sizes. `share`
/// is the part that it has in an operator of several kernels.
Cost kernel_cost(const Gpu& gpu, const profiler::WorkTrace& trace, const profiler::Work& work,
                 double share = 1);

/// Returns the seconds in which a kernel streams `bytes` through a GPU.
double streaming_seconds(const Gpu& gpu, double bytes);

struct Attention;
/// Returns the seconds of one call of fused attention.
double attention_seconds(const Gpu& gpu, const Attention& attention);

/// Returns the seconds of a copy between a GPU and its host, or on a GPU.
double copy_seconds(const Gpu& gpu, const profiler::Copy& copy);

}  // namespace shardlens::planner
