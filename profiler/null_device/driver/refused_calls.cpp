// Answers calls of NVIDIA's libraries that have no stub, because PyTorch does not make them.
// Libraries that make such calls get functions that end here (profiler/record/python,
// missing_calls.py).
#include <array>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace {

/// Returns the error "not supported" of the library that has the call; for an unknown library that
/// of the runtime and the driver.
int not_supported(std::string_view call) {
  constexpr int kCudaNotSupported = 801;
  constexpr std::array<std::pair<std::string_view, int>, 8> kErrors = {{{"cublas", 15},
                                                                        {"cudnn", 3000},
                                                                        {"cufft", 16},
                                                                        {"curand", 201},
                                                                        {"cusolver", 9},
                                                                        {"cusparse", 10},
                                                                        {"nccl", 5},
                                                                        {"nvml", 3}}};
  for (const auto& [library, error] : kErrors) {
    if (call.starts_with(library)) return error;
  }
  return kCudaNotSupported;
}

bool is_first(const char* call) {
  static std::mutex mutex;
  static std::set<std::string>& said = *new std::set<std::string>;  // outlives static destructors
  const std::scoped_lock lock(mutex);
  return said.insert(call).second;
}

}  // namespace

extern "C" int shardlens_refuse_call(const char* call) {
  if (is_first(call)) std::fprintf(stderr, "null device: %s is not supported\n", call);
  return not_supported(call);
}
