// Makes opaque handles for the libraries that are built on CUDA: mere addresses. The wheel has no
// headers of these libraries, so their calls are declared where they are defined.
#pragma once

namespace shardlens::profiler {

struct Handle {};

/// The status of a successful call in each of these libraries.
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
