// Moves the values of small tensors between the null device's table of known memory
// (profiler/null_device/driver/known_memory.h) and tensors on the CPU. Nothing here allocates on
// the GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>

#include "profiler/null_device/driver/known_memory.h"

namespace shardlens::profiler {

/// Tensors of more elements are never computed on the CPU instead of the GPU: 8 MiB at most, if
/// they are expanded from less memory, and a millisecond of a CPU.
inline constexpr int64_t kMostElements = int64_t{1} << 20;

/// The same limit for tensors that have exactly a number of elements that allow_elements() allowed.
inline constexpr int64_t kMostAllowedElements = int64_t{1} << 23;

/// The memory that holds a tensor's elements, from the first byte to the last, with the gaps that
/// its strides leave.
struct MemorySpan {
  uint64_t address = 0;
  size_t bytes = 0;
};

/// True for a subclass or a tensor that a transform has wrapped: operators are called again on the
/// tensors in it.
bool is_wrapper(const at::Tensor& tensor);

/// True if the tensor is a plain strided tensor with its own memory on the GPU: not a subclass, a
/// wrapper of a transform, a fake tensor, or a conjugate or negative view.
bool is_plain(const at::Tensor& tensor);

/// Allows tensors of exactly this many elements to be computed, up to kMostAllowedElements.
void allow_elements(int64_t elements);

/// True if the tensor's values may be computed on the CPU instead of the GPU.
bool is_small(const at::Tensor& tensor);

/// Returns nothing for a tensor without elements.
std::optional<MemorySpan> span_of(const at::Tensor& tensor);

/// True if a plain tensor spans more memory than make_known() makes known.
bool has_too_many_bytes(const at::Tensor& tensor);

/// Returns a contiguous copy of a plain tensor on the CPU, with its sizes; nothing if one of its
/// values is unknown or there are too many.
std::optional<at::Tensor> known_values(KnownMemory& memory, const at::Tensor& tensor);

/// Makes the plain tensor's values known: those of `values`, which has its sizes and type. If there
/// is unknown memory between its elements, the whole tensor becomes unknown.
void make_known(KnownMemory& memory, const at::Tensor& tensor, const at::Tensor& values);

void make_unknown(KnownMemory& memory, const at::Tensor& tensor);

/// Returns a tensor on the CPU of the same sizes and type, with any values.
at::Tensor empty_like_on_cpu(const at::Tensor& tensor);
at::Tensor zeros_like_on_cpu(const at::Tensor& tensor);

/// Calls `look` with each tensor of an argument, which may be a tensor or a list of tensors.
template <class Look>
void each_tensor(const c10::IValue& argument, Look look) {
  if (argument.isTensor()) {
    if (argument.toTensor().defined()) look(argument.toTensor());
  } else if (argument.isList()) {
    for (const c10::IValue& element : argument.toListRef()) each_tensor(element, look);
  }
}

}  // namespace shardlens::profiler
