#include "runtime/comm/device/nccl_api.h"

#include <dlfcn.h>

#include <stdexcept>

namespace shardlens::runtime {
namespace {

constexpr const char* kRemedy =
    "; install the NVIDIA libraries that LibTorch's wheel names, or give --communicator gloo";

class Library {
 public:
  /// Loads the library and never unloads it, since its threads may live as long as the process.
  explicit Library(const char* name) : name_(name), handle_(::dlopen(name, RTLD_NOW)) {
    if (handle_ != nullptr) return;
    const char* why = ::dlerror();
    throw std::runtime_error(std::string("NCCL could not be loaded: ") +
                             (why != nullptr ? why : name) + kRemedy);
  }

  template <class Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(::dlsym(handle_, symbol));
    if (function != nullptr) return;
    throw std::runtime_error("NCCL could not be used: " + std::string(name_) + " has no " + symbol +
                             kRemedy);
  }

 private:
  const char* name_;
  void* handle_;
};

}  // namespace

NcclApi load_nccl(const char* library) {
  const Library nccl(library);
  NcclApi api{};
  nccl.find(api.get_version, "ncclGetVersion");
  nccl.find(api.get_unique_id, "ncclGetUniqueId");
  nccl.find(api.comm_init_rank_config, "ncclCommInitRankConfig");
  nccl.find(api.comm_get_async_error, "ncclCommGetAsyncError");
  nccl.find(api.comm_finalize, "ncclCommFinalize");
  nccl.find(api.comm_destroy, "ncclCommDestroy");
  nccl.find(api.comm_abort, "ncclCommAbort");
  nccl.find(api.all_gather, "ncclAllGather");
  nccl.find(api.reduce_scatter, "ncclReduceScatter");
  nccl.find(api.all_reduce, "ncclAllReduce");
  nccl.find(api.group_start, "ncclGroupStart");
  nccl.find(api.group_end, "ncclGroupEnd");
  nccl.find(api.get_error_string, "ncclGetErrorString");
  nccl.find(api.get_last_error, "ncclGetLastError");
  return api;
}

const NcclApi& nccl_api() {
  static const NcclApi api = load_nccl();
  return api;
}

std::string to_text(const NcclApi& api, NcclResult result) {
  const char* what = api.get_error_string(result);
  const char* more = api.get_last_error(nullptr);  // the last error of any communicator
  std::string text = "NCCL: " + std::string(what != nullptr ? what : "unknown error");
  if (more != nullptr && *more != '\0') text += ": " + std::string(more);
  return text.substr(0, text.find('\n'));
}

NcclUniqueId new_nccl_id(const NcclApi& api) {
  NcclUniqueId id;
  const NcclResult result = api.get_unique_id(&id);
  if (result != NcclResult::success) {
    throw std::runtime_error("no id for a communicator: " + to_text(api, result));
  }
  return id;
}

}  // namespace shardlens::runtime
