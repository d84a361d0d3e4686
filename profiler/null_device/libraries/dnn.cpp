// Answers cuDNN's calls on versions, errors, handles and their streams. dnn_graph.cpp answers those
// on graphs. Other calls that would tell how much workspace is needed are errors: cuDNN only
// answers them if it has a handle.
#include <cstddef>
#include <string_view>

#include "profiler/null_device/handle.h"
#include "profiler/null_device/libraries/dnn_graph.h"

using shardlens::profiler::dnn_graph;
using shardlens::profiler::DnnGraph;
using shardlens::profiler::kLibrarySuccess;

namespace {

constexpr size_t kVersion = 91900;  // if NVIDIA's cuDNN is not loaded
constexpr size_t kCudartVersion = 13000;
constexpr int kBadParameter = 2000;  // CUDNN_STATUS_BAD_PARAM

struct DnnHandle {
  void* stream = nullptr;
};

}  // namespace

extern "C" {

size_t cudnnGetVersion() {
  const DnnGraph* const graph = dnn_graph();
  return graph == nullptr ? kVersion : graph->version();
}

size_t cudnnGetCudartVersion() { return kCudartVersion; }

/// Splits 92600: the properties are MAJOR_VERSION, MINOR_VERSION and PATCH_LEVEL.
int cudnnGetProperty(int property, int* value) {
  const auto version = static_cast<int>(cudnnGetVersion());
  switch (property) {
    case 0:
      *value = version / 10000;
      return kLibrarySuccess;
    case 1:
      *value = version / 100 % 100;
      return kLibrarySuccess;
    case 2:
      *value = version % 100;
      return kLibrarySuccess;
    default:
      return kBadParameter;
  }
}

const char* cudnnGetErrorString(int status) {
  const DnnGraph* const graph = dnn_graph();
  return graph == nullptr ? "null device" : graph->error_string(status);
}

void cudnnGetLastErrorString(char* text, size_t size) {
  if (text == nullptr || size == 0) return;
  if (const DnnGraph* const graph = dnn_graph()) return graph->last_error_string(text, size);
  constexpr std::string_view kText = "null device";
  text[kText.copy(text, size - 1)] = '\0';
}

int cudnnCreate(void** handle) {
  *handle = new DnnHandle;
  return kLibrarySuccess;
}

int cudnnDestroy(void* handle) {
  delete static_cast<DnnHandle*>(handle);
  return kLibrarySuccess;
}

int cudnnSetStream(void* handle, void* stream) {
  static_cast<DnnHandle*>(handle)->stream = stream;
  return kLibrarySuccess;
}

int cudnnGetStream(void* handle, void** stream) {
  *stream = static_cast<DnnHandle*>(handle)->stream;
  return kLibrarySuccess;
}

}  // extern "C"
