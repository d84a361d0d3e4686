// Makes opaque handles of the libraries that stand on CUDA: mere addresses. The wheel has no
// headers of these libraries, so their calls are declared where they are defined.
#pragma once

namespace shardlens::profiler {

struct Handle {};

/// The status of a call that succeeded, in each of these libraries.
inline constexpr int kLibrarySuccess = 0;

inline int create(void** handle) {
  *handle = new Handle;
  return kLibrarySuccess;
}

inline int destroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return kLibrarySuccess;
}

}  // namespace shardlens::profiler
