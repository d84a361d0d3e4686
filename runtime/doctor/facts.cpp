#include "runtime/doctor/facts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/durable_files.h"
#include "base/process/host_limits.h"
#include "models/data/dataset.h"
#include "models/data/image_folder.h"
#include "runtime/doctor/child.h"
#include "runtime/doctor/collective.h"
#include "runtime/doctor/gpus.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr auto kTrialDeadline = std::chrono::seconds(60);

void look_at_interfaces(MachineFacts& facts) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    facts.interfaces.push_back({each->ifa_name, text, (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  ::freeifaddrs(all);
}

/// Looks up the host's name in a child, because a name server may take long to say that it does not
/// know it.
void look_at_host_name(MachineFacts& facts) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  facts.host = name.data();
  const ChildOutput said = ask_child(std::chrono::seconds(10), [&](int fd) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    addrinfo* found = nullptr;
    if (::getaddrinfo(name.data(), nullptr, &hints, &found) != 0) return 1;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
    return ::write(fd, text, std::strlen(text)) > 0 ? 0 : 1;
  });
  if (said.exit_code == 0) facts.host_address = said.text;
}

/// Returns the kind of the file system that `path` is in: among all mounts that the kernel lists,
/// that with the longest folder around `path`. The kernel lists no mounts outside a chroot.
std::string file_system_of(const fs::path& path) {
  std::ifstream mounts("/proc/self/mounts");
  std::string line;
  std::string kind = "unknown file system";
  size_t longest = 0;
  while (std::getline(mounts, line)) {
    std::istringstream words(line);
    std::string device, place, type;
    words >> device >> place >> type;
    const bool is_above = place == "/" || path == place || path.string().starts_with(place + "/");
    if (!is_above || place.size() < longest) continue;
    longest = place.size();
    kind = type;
  }
  return kind;
}

/// Writes, syncs, renames and locks a file there, as a run does. Throws if one of these fails.
void try_files(const fs::path& folder) {
  const fs::path file = folder / fmt::format(".doctor-{}", ::getpid());
  const fs::path renamed = file.string() + "-renamed";
  std::error_code ignored;
  try {
    write_file(file, "tried\n");
    rename_durably(file, renamed);
    const int lock = ::open(renamed.c_str(), O_RDWR | O_CLOEXEC);
    const bool is_locked = lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) == 0;
    const int error = errno;
    if (lock >= 0) ::close(lock);
    if (!is_locked) {
      throw std::runtime_error(fmt::format("files cannot be locked ({})", std::strerror(error)));
    }
  } catch (...) {
    fs::remove(file, ignored);
    fs::remove(renamed, ignored);
    throw;
  }
  fs::remove(renamed, ignored);
}

void look_at_storage(MachineFacts& facts) {
  const fs::path folder = nearest_folder(facts.storage);
  try {
    facts.storage_kind = file_system_of(fs::canonical(folder));
    facts.storage_free_bytes = static_cast<int64_t>(fs::space(folder).available);
    try_files(folder);
  } catch (const std::exception& fault) {
    facts.storage_fault = fault.what();
  }
}

void look_at_memory(MachineFacts& facts) {
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    facts.shm_total_bytes = static_cast<int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free_bytes = static_cast<int64_t>(shm.f_bavail * shm.f_frsize);
  }
  rlimit locked{};
  if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY) {
    facts.memlock_bytes = static_cast<int64_t>(locked.rlim_cur);
  }
  facts.host_bytes = available_host_bytes();
}

void look_at_data(MachineFacts& facts) {
  facts.data_found.is_done = true;
  try {
    models::is_image_folder(facts.data) ? static_cast<void>(models::list_image_folder(facts.data))
                                        : static_cast<void>(models::load_dataset(facts.data));
  } catch (const std::exception& error) {
    facts.data_found.fault = error.what();
  }
}

/// Runs one step, in its own storage folder. If it fails, the last line of its output is the fault.
TrialFact try_step(const std::string& trainer, const std::string& device) {
  std::string storage = (fs::temp_directory_path() / "shardlens-doctor-XXXXXX").string();
  if (::mkdtemp(storage.data()) == nullptr) {
    return {.is_done = true, .fault = fmt::format("{}: cannot be created", storage)};
  }
  const ChildOutput said = ask_child(kTrialDeadline, [&](int fd) {
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execl(trainer.c_str(), trainer.c_str(), "--device", device.c_str(), "--model", "simple-model",
            "--data", "synthetic", "--steps", "1", "--batch", "2", "--storage", storage.c_str(),
            "--name", "trial", nullptr);
    return 127;
  });
  std::error_code ignored;
  fs::remove_all(storage, ignored);
  if (said.exit_code == 0) return {.is_done = true};
  if (said.is_late) return {.is_done = true, .fault = "a step did not finish within a minute"};
  if (said.exit_code == 127 && said.text.empty()) {
    return {.is_done = true, .fault = fmt::format("{} cannot be started", trainer)};
  }
  std::istringstream lines(said.text);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line.empty() ? last : line;
  return {.is_done = true, .fault = last.empty() ? "a signal ended the step" : last};
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

MachineFacts collect_facts(const DoctorOptions& options) {
  MachineFacts facts;
  facts.torch_version = options.torch_version;
  facts.expected_cuda = options.expected_cuda;
  facts.expected_nccl = options.expected_nccl;
  facts.asked_interface = environment("GLOO_SOCKET_IFNAME");
  facts.storage = options.storage;
  facts.data = options.data;
  look_at_gpus(facts);
  look_at_interfaces(facts);
  look_at_host_name(facts);
  look_at_storage(facts);
  look_at_memory(facts);
  look_at_data(facts);
  if (!options.trainer.empty()) {
    facts.cpu_step = try_step(options.trainer, "cpu");
    facts.null_step = try_step(options.trainer, "null:h200");
  }
  if (options.workers > 1) facts.collective = try_collective(options.workers, options.collective_s);
  return facts;
}

}  // namespace shardlens::runtime
