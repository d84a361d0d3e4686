// Holds what every rank is doing, so that a hang can be explained: in shared memory, one line per
// rank and its last actions, one abort note for all, and what ranks must tell each other to meet:
// the port of the rendezvous store, the ids of NCCL communicators, and each rank's GPU. Through the
// board the launcher also asks all ranks to stop after the same step.
//
// The launcher initialises it over zero-filled memory; ranks and launcher then attach. A Board is a
// view: copy it freely, the memory must outlive it. A rank writes only its own line, before every
// action, with relaxed stores (a few ns, plus 20 for the clock); any process may read at any time.
// The fields of a line are not read atomically: a reader may see the step of one action and the id
// of the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "runtime/comm/board/abort_note.h"

namespace shardlens::runtime {

enum class RankPhase : int32_t { starting, training, evaluating, saving, finished, failed };
constexpr auto choice_words(RankPhase) {
  return words("starting", "training", "evaluating", "saving", "finished", "failed");
}

struct RankStatus {
  int32_t pid = 0;  // 0: has not joined
  RankPhase phase = RankPhase::starting;
  int64_t step = 0;
  int32_t action = 0;  // index into Schedule::actions

  bool operator==(const RankStatus&) const = default;
};

/// Records an action that a rank began, and when.
struct RankAction {
  int64_t time_ns = 0;  // of std::chrono::steady_clock
  RankStatus status;
};

/// Holds CUDA's UUID of a GPU, which is the same in every process.
using GpuUuid = std::array<std::byte, 16>;

class Board {
 public:
  /// Returns how much memory a board needs, a multiple of 64. The memory must also start at a
  /// multiple of 64.
  static size_t bytes(int world_size);
  /// Makes a board in zero-filled memory. Its creator calls it once.
  static Board initialise(void* memory, int world_size);
  /// Attaches to a board. Throws std::runtime_error if the memory has no board of this version and
  /// world size.
  Board(void* memory, int world_size);

  int world_size() const { return world_size_; }

  void join(int rank, int32_t pid) const;
  void enter(int rank, RankPhase phase, int64_t step, int32_t action) const noexcept;
  RankStatus read(int rank) const;

  static constexpr size_t kActions = 2000;
  /// Returns the last kActions that the rank has entered, the oldest first. While the rank keeps
  /// running, the first entries may be newer than they should be.
  std::vector<RankAction> last_actions(int rank) const;

  /// Asks all ranks to stop after the same step, which no rank has passed. Only the launcher calls
  /// it; see [Note: one step for all].
  void ask_to_stop() const noexcept;
  /// Returns true if the step just done was the last one. A rank calls it at the end of each step,
  /// and before the first. `step` counts the steps done.
  bool must_stop(int rank, int64_t step) const noexcept;

  /// Sets the store's port, which is 0 until the rank that serves the store sets it.
  void set_port(uint16_t port) const noexcept;
  uint16_t port() const noexcept;

  static constexpr size_t kNcclIdBytes = 128;
  static constexpr int kNcclIds = 4;
  /// Sets the id of a communicator, once. `rank` is the first of the ranks that it joins, and sets
  /// the id; `number` says which of that rank's communicators it is. Both functions throw
  /// std::logic_error for a number of kNcclIds or more.
  void set_nccl_id(int rank, int number, std::span<const std::byte, kNcclIdBytes> id) const;
  /// Returns true if the id has been set; only then `id` is written.
  bool nccl_id(int rank, int number, std::span<std::byte, kNcclIdBytes> id) const;

  /// Sets the GPU of a rank, once. The rank itself calls it.
  void set_gpu(int rank, const GpuUuid& gpu) const;
  /// Returns true if the rank has set its GPU; only then `gpu` is written.
  bool gpu(int rank, GpuUuid& gpu) const;

  AbortNote& abort_note() const noexcept;

 private:
  struct Header;
  struct Line;
  struct Ring;
  struct NcclId;

  Line& line(int rank) const;
  NcclId& nccl_id_of(int rank, int number) const;

  Header* header_;
  Line* lines_;       // [world_size]
  Ring* rings_;       // [world_size]
  NcclId* nccl_ids_;  // [world_size][kNcclIds]
  int world_size_;
};

}  // namespace shardlens::runtime
