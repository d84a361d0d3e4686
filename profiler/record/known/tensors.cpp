#include "profiler/record/known/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "profiler/record/known/unseen.h"

namespace shardlens::profiler {

namespace {

constexpr c10::DispatchKeySet kWrappers =
    c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchGradWrapper,
                         c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Functionalize,
                         c10::DispatchKey::Batched});

/// The numbers of elements that are allowed; a new one replaces the oldest, since a program has
/// few. 0: none.
std::array<std::atomic<int64_t>, 32> allowed{};
std::atomic<size_t> next_allowed = 0;

bool is_allowed(int64_t elements) {
  if (elements > kMostAllowedElements) return false;
  return std::ranges::any_of(allowed, [&](const auto& one) { return one == elements; });
}

size_t most_bytes_of(const at::Tensor& tensor) {
  return is_allowed(tensor.numel()) ? kMostBytesOfWideRange : kMostBytesOfRange;
}

size_t bytes_of_element(const at::Tensor& tensor) { return tensor.dtype().itemsize(); }

/// Makes a tensor on the CPU with the layout of `tensor` over the memory `from`, which has its
/// span.
at::Tensor view_of(std::vector<char>& from, const at::Tensor& tensor) {
  return at::from_blob(from.data(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

bool has_gaps(const at::Tensor& tensor, const MemorySpan& span) {
  return span.bytes != static_cast<size_t>(tensor.numel()) * bytes_of_element(tensor);
}

}  // namespace

bool is_wrapper(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kWrappers);
}

void allow_elements(int64_t elements) {
  if (elements <= 0 || is_allowed(elements)) return;
  allowed[next_allowed++ % allowed.size()] = elements;
}

bool is_small(const at::Tensor& tensor) {
  return tensor.numel() <= kMostElements || is_allowed(tensor.numel());
}

bool is_plain(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.layout() != at::kStrided) return false;
  if (is_wrapper(tensor)) return false;
  return tensor.has_storage() && tensor.storage().device_type() == at::kCUDA && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor.is_quantized();
}

std::optional<MemorySpan> span_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return std::nullopt;
  const auto memory = reinterpret_cast<uint64_t>(tensor.storage().data());
  if (memory == 0) return std::nullopt;
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const size_t element = bytes_of_element(tensor);
  return MemorySpan{.address = memory + static_cast<uint64_t>(tensor.storage_offset()) * element,
                    .bytes = (static_cast<size_t>(last) + 1) * element};
}

bool has_too_many_bytes(const at::Tensor& tensor) {
  const auto span = span_of(tensor);
  return span && span->bytes > most_bytes_of(tensor);
}

std::optional<at::Tensor> known_values(KnownMemory& memory, const at::Tensor& tensor) {
  if (!is_small(tensor)) return std::nullopt;
  if (tensor.numel() == 0) return empty_like_on_cpu(tensor);
  const auto span = span_of(tensor);
  if (!span || span->bytes > most_bytes_of(tensor)) return std::nullopt;
  if (!memory.knows(span->address, span->bytes)) return std::nullopt;
  const UnobservedSection unseen;
  std::vector<char> bytes(span->bytes);
  if (!memory.read(bytes.data(), span->address, span->bytes)) return std::nullopt;
  return view_of(bytes, tensor).clone(at::MemoryFormat::Contiguous);
}

void make_unknown(KnownMemory& memory, const at::Tensor& tensor) {
  if (!is_plain(tensor)) return;
  if (const auto span = span_of(tensor)) memory.forget(span->address, span->bytes);
}

void make_known(KnownMemory& memory, const at::Tensor& tensor, const at::Tensor& values) {
  const auto span = span_of(tensor);
  if (!span) return;
  if (span->bytes > most_bytes_of(tensor)) return make_unknown(memory, tensor);
  const UnobservedSection unseen;
  std::vector<char> bytes(span->bytes);
  if (has_gaps(tensor, *span) && !memory.read(bytes.data(), span->address, span->bytes)) {
    return make_unknown(memory, tensor);
  }
  view_of(bytes, tensor).copy_(values);
  memory.know(span->address, bytes.data(), span->bytes);
}

at::Tensor empty_like_on_cpu(const at::Tensor& tensor) {
  const UnobservedSection unseen;
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
}

at::Tensor zeros_like_on_cpu(const at::Tensor& tensor) {
  const UnobservedSection unseen;
  return at::zeros(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
}

}  // namespace shardlens::profiler
