#include "profiler/null_device/libraries/dnn_graph.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/fault.h"
#include "profiler/null_device/driver/work_feed.h"
#include "profiler/null_device/libraries/dnn_device.h"

namespace shardlens::profiler {

namespace {

// These are from cudnn_graph.h, which no LibTorch wheel has.
constexpr int kNotSupported = 3000;         // CUDNN_STATUS_NOT_SUPPORTED
constexpr int kEngine = 2;                  // CUDNN_BACKEND_ENGINE_DESCRIPTOR
constexpr int kHeuristics = 4;              // CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
constexpr int kDeviceProperty = 38;         // CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR
constexpr int kHeuristicsDevice = 204;      // CUDNN_ATTR_ENGINEHEUR_DEVICEPROP
constexpr int kPlanHandle = 400;            // CUDNN_ATTR_EXECUTION_PLAN_HANDLE
constexpr int kPlanDevice = 407;            // CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP
constexpr int kOperationGraphHandle = 800;  // CUDNN_ATTR_OPERATIONGRAPH_HANDLE
constexpr int kEngineDevice = 1307;         // CUDNN_ATTR_ENGINE_DEVICEPROP
constexpr int kDeviceJson = 2702;           // CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION
constexpr int kDescriptorType = 15;         // CUDNN_TYPE_BACKEND_DESCRIPTOR
constexpr int kTextType = 24;               // CUDNN_TYPE_CHAR

/// Tells whether cuDNN gave up a kernel because of something that is missing here but not on a GPU:
/// a driver or a runtime that it can use, something that it loads, or an error worse than "not
/// supported", CUDNN_STATUS_INTERNAL_ERROR and higher.
constexpr bool is_of_this_place(int status) {
  return status == 3005 || status == 3006 || status == 3008 || status == 3009 || status >= 4000;
}

// cuDNN takes descriptions of a device from 9.8 on, but 9.19 was seen to miss functions of NVRTC
// here, and to take other kernels for that reason.
constexpr size_t kFirstVersion = 92600;

std::atomic<const DnnGraph*> the_graph{nullptr};

/// Remembers the types of descriptors, some of which get the device when they are finalised.
class Descriptors {
 public:
  void add(DnnDescriptor descriptor, int type) {
    const std::lock_guard lock(mutex_);
    types_[descriptor] = type;
  }
  void remove(DnnDescriptor descriptor) {
    const std::lock_guard lock(mutex_);
    types_.erase(descriptor);
  }
  int type(DnnDescriptor descriptor) {
    const std::lock_guard lock(mutex_);
    const auto found = types_.find(descriptor);
    return found == types_.end() ? -1 : found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<DnnDescriptor, int> types_;
};

Descriptors& descriptors() {
  static Descriptors all;
  return all;
}

/// Keeps the first error that puts cuDNN's choices in doubt.
class Fault {
 public:
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!text_.empty()) return;
    text_ = text;
    std::fprintf(stderr, "null device: %s\n", text.c_str());
  }
  /// The pointer stays valid, because the text is set only once.
  const char* text() {
    const std::lock_guard lock(mutex_);
    return text_.c_str();
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

Fault& fault() {
  static Fault first;
  return first;
}

std::string in_words(const DnnGraph& graph, int status) {
  std::array<char, 512> last{};
  graph.last_error_string(last.data(), last.size() - 1);
  std::string text = last.data();
  text = text.substr(0, text.find('\n'));
  const std::string name = std::to_string(status) + " " + graph.error_string(status);
  return text.empty() ? name : name + ": " + text;
}

// ---- finding it ---------------------------------------------------------------------------------

template <class Function>
void look_up(void* library, const char* name, Function*& function, std::string& lacking) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr && lacking.empty()) lacking = name;
}

/// Returns the first name that the library lacks, or "".
std::string look_up_all(void* library, DnnGraph& graph) {
  std::string lacking;
  look_up(library, "cudnnBackendCreateDescriptor", graph.create, lacking);
  look_up(library, "cudnnBackendDestroyDescriptor", graph.destroy, lacking);
  look_up(library, "cudnnBackendSetAttribute", graph.set, lacking);
  look_up(library, "cudnnBackendGetAttribute", graph.get, lacking);
  look_up(library, "cudnnBackendFinalize", graph.finalize, lacking);
  look_up(library, "cudnnGetVersion", graph.version, lacking);
  look_up(library, "cudnnGetErrorString", graph.error_string, lacking);
  look_up(library, "cudnnGetLastErrorString", graph.last_error_string, lacking);
  return lacking;
}

/// Describes the null device to cuDNN; returns its status.
int describe_device(DnnGraph& graph, const std::string& json) {
  int status = graph.create(kDeviceProperty, &graph.device);
  if (status != 0) return status;
  status = graph.set(graph.device, kDeviceJson, kTextType, static_cast<int64_t>(json.size()),
                     json.c_str());
  return status == 0 ? graph.finalize(graph.device) : status;
}

/// Loads cuDNN from the path into `the_graph`. Returns nothing, or why it cannot.
Problem take(const char* path) {
  const std::string json = device_properties_json();
  if (json.empty()) return "there is no device";
  // It is loaded into the program's namespace, because a second one would get a second C library.
  void* const library = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return ::dlerror();
  static DnnGraph graph;
  const std::string lacking = look_up_all(library, graph);
  if (!lacking.empty()) return std::string(path) + " has no " + lacking;
  if (graph.version() < kFirstVersion) {
    return "cuDNN " + std::to_string(graph.version()) + " was not seen to plan here as on a GPU; " +
           "use " + std::to_string(kFirstVersion) + " or newer";
  }
  const int status = describe_device(graph, json);
  if (status != 0) return "cuDNN rejects the description of the device: " + in_words(graph, status);
  the_graph = &graph;
  return std::nullopt;
}

// ---- what is forwarded --------------------------------------------------------------------------

std::optional<int> attribute_of_device(int type) {
  if (type == kHeuristics) return kHeuristicsDevice;
  if (type == kEngine) return kEngineDevice;
  return std::nullopt;
}

int set_device(const DnnGraph& graph, DnnDescriptor descriptor, int attribute) {
  return graph.set(descriptor, attribute, kDescriptorType, 1, &graph.device);
}

int finalize(const DnnGraph& graph, DnnDescriptor descriptor) {
  const int type = descriptors().type(descriptor);
  if (const std::optional<int> attribute = attribute_of_device(type)) {
    if (const int status = set_device(graph, descriptor, *attribute); status != 0) return status;
  }
  const int status = graph.finalize(descriptor);
  if (is_of_this_place(status)) {
    fault().note("cuDNN gave up a kernel: " + in_words(graph, status));
  }
  return status;
}

}  // namespace

const DnnGraph* dnn_graph() { return the_graph; }

}  // namespace shardlens::profiler

using shardlens::profiler::descriptors;
using shardlens::profiler::dnn_graph;
using shardlens::profiler::DnnDescriptor;
using shardlens::profiler::DnnGraph;
using shardlens::profiler::kNotSupported;

extern "C" {

const char* shardlens_null_cudnn(const char* path) {
  static const std::string why_not = shardlens::profiler::take(path).value_or("");
  return why_not.c_str();
}

const char* shardlens_null_cudnn_fault() { return shardlens::profiler::fault().text(); }

int cudnnBackendCreateDescriptor(int type, DnnDescriptor* descriptor) {
  *descriptor = nullptr;
  const DnnGraph* const graph = dnn_graph();
  if (graph == nullptr) return kNotSupported;
  const int status = graph->create(type, descriptor);
  if (status == 0) descriptors().add(*descriptor, type);
  return status;
}

int cudnnBackendDestroyDescriptor(DnnDescriptor descriptor) {
  const DnnGraph* const graph = dnn_graph();
  if (graph == nullptr) return kNotSupported;
  descriptors().remove(descriptor);  // first: its address is given out again at once
  return graph->destroy(descriptor);
}

int cudnnBackendSetAttribute(DnnDescriptor descriptor, int attribute, int type, int64_t count,
                             const void* values) {
  const DnnGraph* const graph = dnn_graph();
  if (graph == nullptr) return kNotSupported;
  if (attribute == shardlens::profiler::kOperationGraphHandle) return 0;
  if (attribute == shardlens::profiler::kPlanHandle) {
    return shardlens::profiler::set_device(*graph, descriptor, shardlens::profiler::kPlanDevice);
  }
  return graph->set(descriptor, attribute, type, count, values);
}

int cudnnBackendGetAttribute(DnnDescriptor descriptor, int attribute, int type, int64_t asked,
                             int64_t* count, void* values) {
  const DnnGraph* const graph = dnn_graph();
  return graph == nullptr ? kNotSupported
                          : graph->get(descriptor, attribute, type, asked, count, values);
}

int cudnnBackendFinalize(DnnDescriptor descriptor) {
  const DnnGraph* const graph = dnn_graph();
  return graph == nullptr ? kNotSupported : shardlens::profiler::finalize(*graph, descriptor);
}

/// Does nothing: a plan's kernels do nothing, like all kernels.
int cudnnBackendExecute(void*, DnnDescriptor, DnnDescriptor) {
  if (dnn_graph() == nullptr) return kNotSupported;
  shardlens::profiler::tell_library_call("cudnnBackendExecute");
  return 0;
}

}  // extern "C"
