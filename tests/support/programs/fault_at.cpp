// Strikes a program at one of its operations on files under a folder: kills it (SIGKILL) before the
// operation or after half of a write, stops it (SIGSTOP), or reports that the disk is full. Linked
// into a program, or preloaded.
//
//   SHARDLENS_FAULT_UNDER  the folder; without it nothing is watched
//   SHARDLENS_FAULT_LOG    gets a line before and after each operation: "begin 0 rename step-3"
//   SHARDLENS_FAULT_AT     "RANK COUNT kill|torn|full|stop NAME PATH": the COUNT-th of that name
//                          and path in that process, counted from 1; PATH is under the folder
//   SHARDLENS_FAULT_WORLD  how many ranks an attempt has: then each attempt has its own rank 0
//
//   SHARDLENS_FAULT_FULL   a file; while it exists the disk is full for all processes
//   SHARDLENS_FAULT_HOLD   a file; while it has a text, any rank that appends a text containing it
//                          waits, and a file of the same name with ".met" says that one waits
//   SHARDLENS_FAULT_NEXT   a file; once it exists, with the word
//                            full    the next write of any rank finds the disk full,
//                            refuse  the next rank that connects to a peer can reach no peer;
//                          the rank that is struck removes the file
//
// The rank of a process is its number among its parent's children; the first process is -1. The
// functions of the C library are replaced by system calls, so that layers below (a sanitizer) are
// not asked for the originals.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int rank = -1;
std::atomic<bool> reaches_nobody = false;
int forks = 0;
std::atomic<int> matches = 0;

/// Without SHARDLENS_FAULT_WORLD the numbering of ranks continues in later attempts.
int rank_of_fork() {
  const char* const world = std::getenv("SHARDLENS_FAULT_WORLD");
  return world == nullptr ? forks : forks % std::atoi(world);
}

void count_fork() { ++forks; }
void be_child() {
  rank = rank_of_fork();
  forks = 0;
  matches = 0;
  reaches_nobody = false;
}

[[gnu::constructor]] void watch_forks() { ::pthread_atfork(nullptr, count_fork, be_child); }

struct Fault {
  int rank = -2;
  int count = 0;
  char kind[8] = "";
  char name[16] = "";
  char path[512] = "";

  bool is(const char* operation, const char* at) const {
    return rank == ::rank && std::strcmp(name, operation) == 0 && std::strcmp(path, at) == 0;
  }
};

Fault fault() {
  Fault fault;
  const char* const text = std::getenv("SHARDLENS_FAULT_AT");
  if (text != nullptr) {
    std::sscanf(text, "%d %d %7s %15s %511s", &fault.rank, &fault.count, fault.kind, fault.name,
                fault.path);
  }
  return fault;
}

/// True if the file that names the next fault has this word; then it is removed. If several ranks
/// come at once, one is struck.
bool is_next(const char* word) {
  const char* const file = std::getenv("SHARDLENS_FAULT_NEXT");
  if (file == nullptr || rank < 0) return false;
  char text[16] = "";
  const long opened = ::syscall(SYS_openat, AT_FDCWD, file, O_RDONLY);
  if (opened < 0) return false;
  ::syscall(SYS_read, opened, text, sizeof text - 1);
  ::syscall(SYS_close, opened);
  return std::strcmp(text, word) == 0 && ::syscall(SYS_unlinkat, AT_FDCWD, file, 0) == 0;
}

/// The part of a path below the folder; "." for the folder itself, null for other paths.
const char* below_folder(const char* path) {
  const char* const folder = std::getenv("SHARDLENS_FAULT_UNDER");
  if (folder == nullptr || std::strncmp(path, folder, std::strlen(folder)) != 0) return nullptr;
  path += std::strlen(folder);
  if (*path == '\0') return ".";
  return *path == '/' ? path + 1 : nullptr;
}

void log_line(const char* when, const char* operation, const char* path) {
  const char* const log = std::getenv("SHARDLENS_FAULT_LOG");
  if (log == nullptr) return;
  char line[1024];
  const int length = std::snprintf(line, sizeof line, "%s %d %s %s\n", when, rank, operation, path);
  const long file = ::syscall(SYS_openat, AT_FDCWD, log, O_CREAT | O_APPEND | O_WRONLY, 0644);
  ::syscall(SYS_write, file, line, length);
  ::syscall(SYS_close, file);
}

bool is_there(const char* path) {
  return path != nullptr && ::syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

/// True for operations that need room: those that write, or that create something.
bool is_refused_by_full_disk(const char* operation, const char* path) {
  const auto is = [&](const char* name) { return std::strcmp(operation, name) == 0; };
  const bool needs_room =
      is("write") || is("append") || ((is("create") || is("mkdir")) && !is_there(path));
  return needs_room && is_there(std::getenv("SHARDLENS_FAULT_FULL"));
}

/// True if SHARDLENS_FAULT_HOLD names a text that `data` contains.
bool is_held(const void* data, size_t bytes) {
  const char* const file = std::getenv("SHARDLENS_FAULT_HOLD");
  if (file == nullptr) return false;
  char text[64] = "";
  const long opened = ::syscall(SYS_openat, AT_FDCWD, file, O_RDONLY);
  if (opened < 0) return false;
  const long length = ::syscall(SYS_read, opened, text, sizeof text);
  ::syscall(SYS_close, opened);
  return length > 0 && ::memmem(data, bytes, text, static_cast<size_t>(length)) != nullptr;
}

void hold(const void* data, size_t bytes) {
  if (rank < 0 || !is_held(data, bytes)) return;
  char met[512];
  std::snprintf(met, sizeof met, "%s.met", std::getenv("SHARDLENS_FAULT_HOLD"));
  ::syscall(SYS_close, ::syscall(SYS_openat, AT_FDCWD, met, O_CREAT | O_WRONLY, 0644));
  while (is_held(data, bytes)) ::usleep(1000);
}

enum class Verdict { go_on, half, fail };

void die() {
  ::kill(::getpid(), SIGKILL);
  ::pause();
}

/// One watched operation, from its beginning to its end.
class Operation {
 public:
  Operation(const char* name, const char* path) : name_(name) {
    const char* const below = below_folder(path);
    if (below == nullptr) return;
    std::snprintf(path_, sizeof path_, "%s", below);
    log_line("begin", name_, path_);
    if (is_refused_by_full_disk(name_, path)) {
      verdict_ = Verdict::fail;
      return;
    }
    if (std::strcmp(name_, "write") == 0 && is_next("full")) {
      verdict_ = Verdict::fail;
      return;
    }
    const Fault planned = fault();
    if (!planned.is(name_, path_) || ++matches != planned.count) return;
    if (std::strcmp(planned.kind, "kill") == 0) die();
    if (std::strcmp(planned.kind, "stop") == 0) {
      ::kill(::getpid(), SIGSTOP);
      return;
    }
    verdict_ = std::strcmp(planned.kind, "torn") == 0 ? Verdict::half : Verdict::fail;
  }
  ~Operation() {
    const int before = errno;
    const char* const when = verdict_ == Verdict::go_on ? "end" : "refused";
    if (path_[0] != '\0') log_line(when, name_, path_);
    errno = before;
  }
  Verdict verdict() const { return verdict_; }
  /// The result of an operation for which the disk has no room.
  static int refuse() { return errno = ENOSPC, -1; }

 private:
  const char* name_;
  char path_[512] = "";
  Verdict verdict_ = Verdict::go_on;
};

const char* path_of(int file, char (&path)[512]) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = '\0';
  return path;
}

/// Makes relative paths absolute.
const char* path_at(int folder, const char* name, char (&path)[512]) {
  if (name[0] == '/') return name;
  char parent[512];
  if (folder == AT_FDCWD) {
    if (::getcwd(parent, sizeof parent) == nullptr) parent[0] = '\0';
  } else {
    path_of(folder, parent);
  }
  const int length = std::snprintf(path, sizeof path, "%s/%s", parent, name);
  if (length >= static_cast<int>(sizeof path)) path[0] = '\0';  // no name is that long
  return path;
}

ssize_t write_at(const char* name, int file, const void* data, size_t bytes, off_t offset) {
  char path[512];
  const Operation operation(name, path_of(file, path));
  const auto call = [&](size_t count) {
    return offset < 0 ? ::syscall(SYS_write, file, data, count)
                      : ::syscall(SYS_pwrite64, file, data, count, offset);
  };
  if (operation.verdict() == Verdict::fail) return Operation::refuse();
  if (operation.verdict() == Verdict::half) {
    call(bytes / 2);
    die();
  }
  return call(bytes);
}

int open_at(int folder, const char* name, int flags, mode_t mode) {
  char path[512];
  if ((flags & O_CREAT) == 0) {
    return static_cast<int>(::syscall(SYS_openat, folder, name, flags, mode));
  }
  const Operation operation("create", path_at(folder, name, path));
  if (operation.verdict() != Verdict::go_on) return Operation::refuse();
  return static_cast<int>(::syscall(SYS_openat, folder, name, flags, mode));
}

mode_t mode_in(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

int remove_at(int folder, const char* name, int flags) {
  char path[512];
  const Operation operation("remove", path_at(folder, name, path));
  if (operation.verdict() != Verdict::go_on) return Operation::refuse();
  return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
}

}  // namespace

extern "C" {

int open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, name, flags, mode);
}

int open64(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, name, flags, mode);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return write_at("write", file, data, bytes, offset);
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  return write_at("write", file, data, bytes, offset);
}

ssize_t write(int file, const void* data, size_t bytes) {
  hold(data, bytes);
  return write_at("append", file, data, bytes, -1);
}

int fsync(int file) {
  char path[512];
  const Operation operation("sync", path_of(file, path));
  if (operation.verdict() != Verdict::go_on) return Operation::refuse();
  return static_cast<int>(::syscall(SYS_fsync, file));
}

int connect(int socket, const sockaddr* address, socklen_t bytes) {
  if (address->sa_family == AF_INET && !reaches_nobody) reaches_nobody = is_next("refuse");
  if (reaches_nobody) return errno = ECONNREFUSED, -1;
  return static_cast<int>(::syscall(SYS_connect, socket, address, bytes));
}

int rename(const char* from, const char* to) noexcept {
  char path[512];
  const Operation operation("rename", path_at(AT_FDCWD, to, path));
  if (operation.verdict() != Verdict::go_on) return Operation::refuse();
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

int mkdir(const char* name, mode_t mode) noexcept {
  char path[512];
  const Operation operation("mkdir", path_at(AT_FDCWD, name, path));
  if (operation.verdict() != Verdict::go_on) return Operation::refuse();
  return static_cast<int>(::syscall(SYS_mkdir, name, mode));
}

int unlink(const char* name) noexcept { return remove_at(AT_FDCWD, name, 0); }
int rmdir(const char* name) noexcept { return remove_at(AT_FDCWD, name, AT_REMOVEDIR); }
int unlinkat(int folder, const char* name, int flags) noexcept {
  return remove_at(folder, name, flags);
}

int remove(const char* name) noexcept {
  struct stat found {};
  const bool is_folder = ::lstat(name, &found) == 0 && S_ISDIR(found.st_mode);
  return remove_at(AT_FDCWD, name, is_folder ? AT_REMOVEDIR : 0);
}
}
