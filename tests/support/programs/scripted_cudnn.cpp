// A libcudnn_graph that plans nothing: it takes no handle, like one that gets a device instead, and
// reports what it was asked. SCRIPTED_CUDNN_VERSION is its version, SCRIPTED_CUDNN_PLAN the status
// with which it finalises plans.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

struct Descriptor {
  int type = 0;
};

std::string calls;
std::string json;

constexpr int kBadParameter = 2000;

int number_of(const char* variable, int fallback) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? fallback : std::atoi(text);
}

template <class Function>
Function* stub(const char* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(::dlopen(library, RTLD_LAZY | RTLD_NOLOAD), name));
}

}  // namespace

extern "C" {

const char* scripted_cudnn_calls() { return calls.c_str(); }
const char* scripted_cudnn_device() { return json.c_str(); }

/// Returns what the driver says to cuDNN. The call is not the last thing that happens here: it has
/// to return to this library.
int scripted_cudnn_init() {
  const volatile int result = stub<int(unsigned)>("libcuda.so.1", "cuInit")(0);
  return result;
}

int scripted_cudnn_compile(const char* nvrtc) {
  using CompileFunction = int(void*, int, const char* const*);
  const volatile int result =
      stub<CompileFunction>(nvrtc, "nvrtcCompileProgram")(nullptr, 0, nullptr);
  return result;
}

size_t cudnnGetVersion() { return static_cast<size_t>(number_of("SCRIPTED_CUDNN_VERSION", 92600)); }

const char* cudnnGetErrorString(int) { return "SCRIPTED_STATUS"; }

void cudnnGetLastErrorString(char* text, size_t size) {
  text[std::string("a reason\nand more").copy(text, size - 1)] = '\0';
}

int cudnnBackendCreateDescriptor(int type, void** descriptor) {
  *descriptor = new Descriptor{type};
  return 0;
}

int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return 0;
}

int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count,
                             const void* values) {
  constexpr int kHandleType = 0;
  constexpr int kDescriptorType = 15;
  constexpr int kDeviceJson = 2702;
  if (type == kHandleType) return kBadParameter;
  if (attribute == kDeviceJson) {
    json.assign(static_cast<const char*>(values), static_cast<size_t>(count));
  }
  calls +=
      std::to_string(static_cast<Descriptor*>(descriptor)->type) + "." + std::to_string(attribute);
  if (type == kDescriptorType) {
    const auto* const given = *static_cast<Descriptor* const*>(values);
    calls += "=" + std::to_string(given->type);
  }
  calls += " ";
  return 0;
}

int cudnnBackendGetAttribute(void*, int attribute, int, int64_t, int64_t* count, void* values) {
  *count = 1;
  *static_cast<int64_t*>(values) = attribute;
  return 0;
}

int cudnnBackendFinalize(void* descriptor) {
  constexpr int kPlan = 5;
  const int type = static_cast<Descriptor*>(descriptor)->type;
  calls += std::to_string(type) + "! ";
  return type == kPlan ? number_of("SCRIPTED_CUDNN_PLAN", 0) : 0;
}

}  // extern "C"
