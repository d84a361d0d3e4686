#include "runtime/comm/board/board.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

#include "base/check.h"

namespace shardlens::runtime {
namespace {

constexpr uint64_t kMagic = 0x44524f42'4c485331;  // "1SHLBORD" in memory
constexpr int32_t kVersion = 5;

constexpr int64_t kNoStop = 0;
constexpr int64_t kBeingChosen = -1;

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename T>
void store(T& field, T value) noexcept {
  std::atomic_ref<T>(field).store(value, std::memory_order_relaxed);
}

template <typename T>
T load(T& field) noexcept {
  return std::atomic_ref<T>(field).load(std::memory_order_relaxed);
}

void check_place(const void* memory, int world_size) {
  check(world_size >= 1, "board: world size below 1");
  check(reinterpret_cast<uintptr_t>(memory) % 64 == 0, "board: memory is not aligned to 64 bytes");
}

}  // namespace

struct alignas(64) Board::NcclId {
  uint32_t is_set;  // released after the bytes, acquired before them
  std::byte bytes[kNcclIdBytes];
};

struct alignas(64) Board::Header {
  uint64_t magic;
  int32_t version;
  int32_t world_size;
  uint32_t port;
  int64_t stop_step;  // kNoStop, kBeingChosen, or how many steps to do
  AbortNote note;
};

// Has a cache line of its own, so that one rank's writes do not slow another's.
struct alignas(64) Board::Line {
  int64_t step;
  int32_t pid;
  int32_t phase;
  int32_t action;
  int64_t boundary;  // steps done at the last call of must_stop
  uint32_t has_gpu;  // released after the GPU, acquired before it
  GpuUuid gpu;
};

struct alignas(64) Board::Ring {
  struct Entry {
    int64_t time_ns;
    int64_t step;
    int32_t action;
    int32_t phase;
  };

  uint64_t count;  // entries ever written, released after the entry
  Entry entries[kActions];
};

// Processes share the board's memory, and each finds every part by these sizes.
template <class Part>
constexpr bool kIsShared = std::is_trivially_copyable_v<Part>&& std::is_standard_layout_v<Part>;
static_assert(kIsShared<GpuUuid> && sizeof(GpuUuid) == 16);
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free &&
                  std::atomic_ref<uint32_t>::is_always_lock_free,
              "a lock must hold between processes");

size_t Board::bytes(int world_size) {
  static_assert(kIsShared<Header> && sizeof(Header) == 64 + sizeof(AbortNote));
  static_assert(kIsShared<Line> && sizeof(Line) == 64, "a cache line of its own");
  static_assert(kIsShared<NcclId> && sizeof(NcclId) == 64 + kNcclIdBytes);
  static_assert(kIsShared<Ring> && kIsShared<Ring::Entry> && sizeof(Ring::Entry) == 24);
  static_assert(sizeof(Ring) % 64 == 0, "the board is a multiple of 64 bytes");
  check(world_size >= 1, "board: world size below 1");
  return sizeof(Header) + static_cast<size_t>(world_size) *
                              (sizeof(Line) + kNcclIds * sizeof(NcclId) + sizeof(Ring));
}

Board Board::initialise(void* memory, int world_size) {
  check_place(memory, world_size);
  auto* header = static_cast<Header*>(memory);
  header->version = kVersion;
  header->world_size = world_size;
  std::atomic_ref<uint64_t>(header->magic).store(kMagic, std::memory_order_release);
  return Board(memory, world_size);
}

Board::Board(void* memory, int world_size)
    : header_(static_cast<Header*>(memory)), world_size_(world_size) {
  check_place(memory, world_size);
  lines_ = reinterpret_cast<Line*>(static_cast<std::byte*>(memory) + sizeof(Header));
  nccl_ids_ = reinterpret_cast<NcclId*>(lines_ + world_size);
  rings_ = reinterpret_cast<Ring*>(nccl_ids_ + world_size * kNcclIds);
  if (std::atomic_ref<uint64_t>(header_->magic).load(std::memory_order_acquire) != kMagic) {
    throw std::runtime_error("this shared memory does not hold a board of ranks");
  }
  if (header_->version != kVersion || header_->world_size != world_size) {
    throw std::runtime_error("the board in shared memory is of version " +
                             std::to_string(header_->version) + " for " +
                             std::to_string(header_->world_size) + " ranks; expected version " +
                             std::to_string(kVersion) + " for " + std::to_string(world_size) +
                             ": the launcher and this program are from different builds");
  }
}

Board::Line& Board::line(int rank) const {
  check(rank >= 0 && rank < world_size_, "board: no such rank");
  return lines_[rank];
}

void Board::join(int rank, int32_t pid) const {
  check(pid > 0, "board: a rank joins without a process id");
  store(line(rank).pid, pid);
}

void Board::enter(int rank, RankPhase phase, int64_t step, int32_t action) const noexcept {
  Line& mine = lines_[rank];
  store(mine.phase, static_cast<int32_t>(phase));
  store(mine.step, step);
  store(mine.action, action);
  Ring& ring = rings_[rank];
  const uint64_t count = load(ring.count);
  Ring::Entry& entry = ring.entries[count % kActions];
  store(entry.time_ns, now_ns());
  store(entry.step, step);
  store(entry.action, action);
  store(entry.phase, static_cast<int32_t>(phase));
  std::atomic_ref<uint64_t>(ring.count).store(count + 1, std::memory_order_release);
}

RankStatus Board::read(int rank) const {
  Line& theirs = line(rank);
  return {.pid = load(theirs.pid),
          .phase = static_cast<RankPhase>(load(theirs.phase)),
          .step = load(theirs.step),
          .action = load(theirs.action)};
}

std::vector<RankAction> Board::last_actions(int rank) const {
  const int32_t pid = load(line(rank).pid);
  Ring& ring = rings_[rank];
  const uint64_t count = std::atomic_ref<uint64_t>(ring.count).load(std::memory_order_acquire);
  std::vector<RankAction> actions;
  for (uint64_t i = count - std::min<uint64_t>(count, kActions); i < count; ++i) {
    Ring::Entry& entry = ring.entries[i % kActions];
    actions.push_back({.time_ns = load(entry.time_ns),
                       .status = {.pid = pid,
                                  .phase = static_cast<RankPhase>(load(entry.phase)),
                                  .step = load(entry.step),
                                  .action = load(entry.action)}});
  }
  return actions;
}

// [Note: one step for all]
// Ranks reach the end of a step at different times, and all must stop after the same one. A rank
// says how far it is, then reads whether to stop; the launcher says that it is choosing, then reads
// how far all ranks are. All four accesses are sequentially consistent. So if a rank did not see
// that the launcher is choosing, the launcher sees that rank's step, and chooses a later one. A
// rank that sees the launcher choosing waits only for the two loops below.
void Board::ask_to_stop() const noexcept {
  std::atomic_ref<int64_t> stop(header_->stop_step);
  stop.store(kBeingChosen, std::memory_order_seq_cst);
  int64_t furthest = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::atomic_ref<int64_t> boundary(lines_[rank].boundary);
    furthest = std::max(furthest, boundary.load(std::memory_order_seq_cst));
  }
  stop.store(furthest + 1, std::memory_order_seq_cst);
}

bool Board::must_stop(int rank, int64_t step) const noexcept {
  const std::atomic_ref<int64_t> boundary(lines_[rank].boundary);
  boundary.store(step, std::memory_order_seq_cst);
  const std::atomic_ref<int64_t> stop(header_->stop_step);
  int64_t last = stop.load(std::memory_order_seq_cst);
  while (last == kBeingChosen) {
    std::this_thread::yield();
    last = stop.load(std::memory_order_seq_cst);
  }
  return last != kNoStop && step >= last;
}

void Board::set_port(uint16_t port) const noexcept { store(header_->port, uint32_t{port}); }
uint16_t Board::port() const noexcept { return static_cast<uint16_t>(load(header_->port)); }

Board::NcclId& Board::nccl_id_of(int rank, int number) const {
  check(rank >= 0 && rank < world_size_, "board: no such rank");
  check(number >= 0 && number < kNcclIds, "board: no such id");
  return nccl_ids_[rank * kNcclIds + number];
}

void Board::set_nccl_id(int rank, int number, std::span<const std::byte, kNcclIdBytes> id) const {
  NcclId& mine = nccl_id_of(rank, number);
  check(std::atomic_ref<uint32_t>(mine.is_set).load(std::memory_order_relaxed) == 0,
        "board: the id of a communicator is set twice");
  std::ranges::copy(id, mine.bytes);
  std::atomic_ref<uint32_t>(mine.is_set).store(1, std::memory_order_release);
}

bool Board::nccl_id(int rank, int number, std::span<std::byte, kNcclIdBytes> id) const {
  NcclId& theirs = nccl_id_of(rank, number);
  if (std::atomic_ref<uint32_t>(theirs.is_set).load(std::memory_order_acquire) == 0) return false;
  std::ranges::copy(theirs.bytes, id.begin());
  return true;
}

void Board::set_gpu(int rank, const GpuUuid& gpu) const {
  Line& mine = line(rank);
  check(std::atomic_ref<uint32_t>(mine.has_gpu).load(std::memory_order_relaxed) == 0,
        "board: the GPU of a rank is set twice");
  mine.gpu = gpu;
  std::atomic_ref<uint32_t>(mine.has_gpu).store(1, std::memory_order_release);
}

bool Board::gpu(int rank, GpuUuid& gpu) const {
  Line& theirs = line(rank);
  if (std::atomic_ref<uint32_t>(theirs.has_gpu).load(std::memory_order_acquire) == 0) return false;
  gpu = theirs.gpu;
  return true;
}

AbortNote& Board::abort_note() const noexcept { return header_->note; }

}  // namespace shardlens::runtime
