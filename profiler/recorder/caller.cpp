#include "profiler/recorder/caller.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>

namespace shardlens::profiler {

namespace {

/// The caller is near the top of the stack: a few frames each of CUPTI, the driver and the runtime
/// come before it.
constexpr int kMaxFrames = 64;

/// The names of libraries that are skipped, without the version, which follows a '.' or a '-'.
constexpr std::array<std::string_view, 7> kPassedThrough = {
    "libcupti", "libcuda", "libcudart", "libc", "libpthread", "libstdc++", "ld-linux"};

bool is_passed_through(std::string_view file) {
  return std::ranges::any_of(kPassedThrough, [&](std::string_view stem) {
    return file.starts_with(stem) && file.size() > stem.size() &&
           (file[stem.size()] == '.' || file[stem.size()] == '-');
  });
}

struct Module {
  const void* base = nullptr;
  std::string_view file;  // without folders
};

Module module_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view path = info.dli_fname;
  return {info.dli_fbase, path.substr(path.rfind('/') + 1)};
}

/// Returns the module of the call that will return to this address. The byte before it is looked
/// up, since a call may be the last instruction of its function.
Module module_of_call(const void* returns_to) {
  return module_of(static_cast<const char*>(returns_to) - 1);
}

}  // namespace

void prepare_caller() {
  std::array<void*, 1> frame{};
  backtrace(frame.data(), frame.size());
}

std::string_view caller_of_driver() {
  std::array<void*, kMaxFrames> frames{};
  const int depth = backtrace(frames.data(), kMaxFrames);
  const void* const ours = module_of(reinterpret_cast<const void*>(&caller_of_driver)).base;
  // This code may be linked into the very program that asked, so only its frames at the top are
  // skipped.
  bool in_callback = true;
  for (int i = 0; i < depth; ++i) {
    const Module module = module_of_call(frames[static_cast<size_t>(i)]);
    in_callback = in_callback && module.base == ours;
    if (in_callback || module.file.empty() || is_passed_through(module.file)) continue;
    return module.file;
  }
  return {};
}

}  // namespace shardlens::profiler
