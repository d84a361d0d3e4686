#include "runtime/doctor/collective.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <exception>
#include <vector>

#include "runtime/comm/board/shared_region.h"
#include "runtime/comm/local.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kNumel = int64_t{4} << 20;  // fp32
constexpr int64_t kFloatBytes = 4;
constexpr auto kCollectiveDeadline = std::chrono::seconds(20);

/// Is shared by all ranks; lies behind the board and the staging areas.
struct alignas(64) Measurement {
  int64_t count = 0;
  double seconds = 0;
};

size_t board_bytes(int ranks) { return Board::bytes(ranks); }

LocalLayout layout_of(int ranks) {
  return {.ranks = {.size = ranks}, .max_reduce_bytes = kNumel * kFloatBytes};
}

/// Rank r contributes r + 1 everywhere, so the mean is known. A sum tells all when rank 0 ends.
void sum_for(LocalCommunicator& communicator, double seconds, Measurement& measured) {
  const int ranks = communicator.world_size();
  const float mean = static_cast<float>(ranks + 1) / 2;
  std::vector<float> values(kNumel);
  const auto start = Clock::now();
  int64_t count = 0;
  for (double goes_on = 1; goes_on > 0; ++count) {
    std::fill(values.begin(), values.end(), static_cast<float>(communicator.rank() + 1));
    const Operation operation{.step = count, .kind = "ALL_REDUCE", .group = "doctor"};
    communicator.wait(communicator.all_reduce(operation, values.data(), kNumel, DType::fp32));
    if (std::abs(values.front() - mean) > 1e-3F || std::abs(values.back() - mean) > 1e-3F) {
      throw std::runtime_error(fmt::format("rank {}: a sum is wrong", communicator.rank()));
    }
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    goes_on = communicator.rank() == 0 && elapsed.count() < seconds ? 1 : 0;
    communicator.sum({.step = count, .kind = "SUM", .group = "doctor"}, {&goes_on, 1});
  }
  if (communicator.rank() != 0) return;
  measured.count = count;
  measured.seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void be_rank(std::byte* region, int ranks, int rank, double seconds) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Board board(region, ranks);
  const LocalLayout layout = layout_of(ranks);
  std::byte* const areas = region + board_bytes(ranks);
  auto& measured = *reinterpret_cast<Measurement*>(areas + LocalCommunicator::bytes(layout));
  try {
    LocalCommunicator communicator(areas, {.layout = layout,
                                           .rank = rank,
                                           .deadline = kCollectiveDeadline,
                                           .describe = {},
                                           .board = board});
    sum_for(communicator, seconds, measured);
    ::_exit(0);
  } catch (const std::exception& error) {
    board.abort_note().raise(error.what());
    ::_exit(1);
  }
}

/// Returns why not all ranks have ended well; nothing if they have.
Problem wait_for(const std::vector<pid_t>& ranks, const Board& board) {
  Problem fault;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    int status = 0;
    if (ranks[rank] < 0) {
      fault = fmt::format("rank {} could not be started", rank);
      board.abort_note().raise(*fault);
    } else if (::waitpid(ranks[rank], &status, 0) > 0 && status != 0 && !fault) {
      fault = board.abort_note().is_raised() ? board.abort_note().reason()
                                             : fmt::format("rank {} was killed", rank);
    }
  }
  return fault;
}

}  // namespace

CollectiveFact try_collective(int ranks, double seconds) {
  CollectiveFact fact{.ranks = ranks, .bytes = kNumel * kFloatBytes};
  try {
    const LocalLayout layout = layout_of(ranks);
    const size_t measured_at = board_bytes(ranks) + LocalCommunicator::bytes(layout);
    const SharedRegion region = SharedRegion::create(measured_at + sizeof(Measurement));
    const Board board = Board::initialise(region.data(), ranks);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) be_rank(region.data(), ranks, rank, seconds);
      pids.push_back(pid);
    }
    fact.fault = wait_for(pids, board);
    const auto& measured = *reinterpret_cast<const Measurement*>(region.data() + measured_at);
    fact.count = measured.count;
    fact.seconds = measured.seconds;
  } catch (const std::exception& error) {
    fact.fault = error.what();
  }
  return fact;
}

}  // namespace shardlens::runtime
