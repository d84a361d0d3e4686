#include "runtime/doctor/gpus.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <string>

#include "runtime/doctor/child.h"

namespace shardlens::runtime {

namespace {

constexpr auto kDriverDeadline = std::chrono::seconds(60);  // the driver may have to be started
constexpr int kNoLibrary = 3;

void say(int fd, const std::string& text) {
  [[maybe_unused]] const auto written = ::write(fd, text.data(), text.size());
}

/// Calls `name`(int*), which returns a version.
LibraryFact ask_version(const char* library, const char* name) {
  const ChildOutput said = ask_child(kDriverDeadline, [&](int fd) {
    void* const loaded = ::dlopen(library, RTLD_NOW);
    if (loaded == nullptr) return say(fd, ::dlerror()), kNoLibrary;
    using Version = int (*)(int*);
    const auto version = reinterpret_cast<Version>(::dlsym(loaded, name));
    int number = 0;
    if (version == nullptr || version(&number) != 0)
      return say(fd, std::string(name) + " fails"), 1;
    return say(fd, std::to_string(number)), 0;
  });
  if (said.exit_code == 0) return {.version = std::stoi(said.text)};
  if (said.is_late) return {.fault = fmt::format("{} does not answer", library)};
  return {.fault = said.text.empty() ? fmt::format("{} crashes", library) : said.text};
}

/// Holds the driver's functions by exported name. CUdevice is an int, CUresult an enum.
struct Driver {
  int (*init)(unsigned);
  int (*count)(int*);
  int (*name)(char*, int, int);
  int (*uuid)(unsigned char*, int);
  int (*total)(size_t*, int);

  explicit Driver(void* library)
      : init(find<int (*)(unsigned)>(library, "cuInit")),
        count(find<int (*)(int*)>(library, "cuDeviceGetCount")),
        name(find<int (*)(char*, int, int)>(library, "cuDeviceGetName")),
        uuid(find<int (*)(unsigned char*, int)>(library, "cuDeviceGetUuid_v2")),
        total(find<int (*)(size_t*, int)>(library, "cuDeviceTotalMem_v2")) {}
  bool is_whole() const { return init && count && name && uuid && total; }

 private:
  template <class Call>
  static Call find(void* library, const char* name) {
    return reinterpret_cast<Call>(::dlsym(library, name));
  }
};

/// Returns the UUID in nvidia-smi's form.
std::string uuid_text(const std::array<unsigned char, 16>& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

/// Writes a line for each GPU: memory, UUID, name.
int list_gpus(int fd) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return kNoLibrary;
  const Driver driver(library);
  if (!driver.is_whole()) return say(fd, "libcuda.so.1 lacks functions"), 1;
  if (const int error = driver.init(0)) return say(fd, fmt::format("cuInit says {}", error)), 1;
  int count = 0;
  if (driver.count(&count) != 0 || count == 0) return say(fd, "no GPU is visible"), 1;
  for (int gpu = 0; gpu < count; ++gpu) {
    std::array<char, 128> name{};
    std::array<unsigned char, 16> uuid{};
    size_t bytes = 0;
    driver.name(name.data(), static_cast<int>(name.size()) - 1, gpu);
    driver.uuid(uuid.data(), gpu);
    driver.total(&bytes, gpu);
    say(fd, fmt::format("{} {} {}\n", bytes, uuid_text(uuid), name.data()));
  }
  return 0;
}

}  // namespace

void look_at_gpus(MachineFacts& facts) {
  facts.driver = ask_version("libcuda.so.1", "cuDriverGetVersion");
  if (!facts.driver.version) return;
  const ChildOutput said = ask_child(kDriverDeadline, list_gpus);
  if (said.exit_code != 0) {
    facts.driver_fault = said.text.empty() ? "it does not answer" : said.text;
    return;
  }
  std::istringstream lines(said.text);
  GpuFact gpu;
  while (lines >> gpu.memory_bytes >> gpu.uuid && std::getline(lines >> std::ws, gpu.name)) {
    facts.gpus.push_back(gpu);
  }
  facts.cuda = ask_version("libcudart.so.13", "cudaRuntimeGetVersion");
  facts.cupti = ask_version("libcupti.so.13", "cuptiGetVersion");
  facts.nccl = ask_version("libnccl.so.2", "ncclGetVersion");
}

}  // namespace shardlens::runtime
