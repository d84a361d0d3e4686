// Distinguishes calls by NVIDIA's own cuDNN, which plans without a device (dnn_graph.cpp), from all
// others. cuDNN's libraries find no device, and what they compile is really compiled.
#pragma once

#include <dlfcn.h>

#include <string_view>

namespace shardlens::profiler {

/// True if this address, which a call returns to, is in one of cuDNN's libraries, such as
/// libcudnn_graph.so.9. The stub is libcudnn.so.9, without an underscore.
inline bool is_in_cudnn(const void* return_address) {
  Dl_info found{};
  if (::dladdr(return_address, &found) == 0 || found.dli_fname == nullptr) return false;
  const std::string_view path = found.dli_fname;
  return path.substr(path.rfind('/') + 1).starts_with("libcudnn_");
}

}  // namespace shardlens::profiler
