#include "runtime/comm/board/board.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdio>
#include <set>
#include <thread>
#include <vector>

#include "runtime/comm/board/shared_region.h"
#include "tests/runtime/comm/ranks.h"
#include "tests/support/sample.h"

using namespace shardlens;
using namespace shardlens::runtime;
using shardlens::tests::run_processes;
using shardlens::tests::run_threads;

namespace {

SharedRegion board_region(int world_size) { return SharedRegion::create(Board::bytes(world_size)); }

}  // namespace

TEST_CASE("a region is zero-filled and shared with a process that attaches by descriptor") {
  const size_t size_bytes = 10'000;
  const SharedRegion region = SharedRegion::create(size_bytes);
  CHECK(region.size_bytes() == size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) REQUIRE(region.data()[i] == std::byte{0});
  const auto texts = run_processes(1, [&](int) {
    const SharedRegion attached = SharedRegion::attach(dup(region.fd()), size_bytes);
    attached.data()[size_bytes - 1] = std::byte{42};
    return attached.data() != region.data() ? std::string("ok") : std::string("same mapping");
  });
  CHECK(texts[0] == "ok");
  CHECK(region.data()[size_bytes - 1] == std::byte{42});
}

TEST_CASE("a region survives exec and keeps its size") {
  const SharedRegion region = SharedRegion::create(4096);
  CHECK(fcntl(region.fd(), F_GETFD) == 0);
  CHECK(ftruncate(region.fd(), 0) != 0);
  CHECK(ftruncate(region.fd(), 8192) != 0);
}

TEST_CASE("attaching to anything but a region of the right size is refused") {
  using Catch::Matchers::ContainsSubstring;
  using Catch::Matchers::MessageMatches;
  const SharedRegion region = SharedRegion::create(4096);
  CHECK_THROWS_MATCHES(SharedRegion::attach(dup(region.fd()), 8192), std::runtime_error,
                       MessageMatches(ContainsSubstring("4096 bytes, not 8192")));
  CHECK_THROWS_AS(SharedRegion::attach(-1, 4096), std::runtime_error);
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  REQUIRE(ftruncate(fileno(file), 4096) == 0);
  CHECK_THROWS_AS(SharedRegion::attach(dup(fileno(file)), 4096), std::runtime_error);
  std::fclose(file);
}

TEST_CASE("moving a region hands over its mapping and descriptor") {
  SharedRegion first = SharedRegion::create(4096);
  first.data()[7] = std::byte{1};
  const int fd = first.fd();
  SharedRegion second = std::move(first);
  CHECK(second.fd() == fd);
  CHECK(second.data()[7] == std::byte{1});
  second = SharedRegion::create(64);
  CHECK(fcntl(fd, F_GETFD) == (second.fd() == fd ? 0 : -1));
}

TEST_CASE("other processes read a rank's entries") {
  const int world_size = 3;
  const SharedRegion region = board_region(world_size);
  const Board board = Board::initialise(region.data(), world_size);
  CHECK(board.read(2) == RankStatus{});
  run_processes(world_size, [&](int rank) {
    const Board mine(region.data(), world_size);
    mine.join(rank, 1000 + rank);
    for (int i = 0; i <= 50; ++i) mine.enter(rank, RankPhase::training, 1ll << 40, i);
    mine.enter(rank, RankPhase::evaluating, (1ll << 40) + rank, 7 * rank);
    if (rank == 1) mine.set_port(54321);
    return std::string();
  });
  for (int rank = 0; rank < world_size; ++rank) {
    CHECK(board.read(rank) ==
          RankStatus{1000 + rank, RankPhase::evaluating, (1ll << 40) + rank, 7 * rank});
  }
  CHECK(board.port() == 54321);
  CHECK_THROWS_AS(board.read(3), std::logic_error);
}

TEST_CASE("a missing board is refused, and so is one of another size or version") {
  using Catch::Matchers::ContainsSubstring;
  using Catch::Matchers::MessageMatches;
  const SharedRegion region = board_region(4);
  CHECK_THROWS_AS(Board(region.data(), 4), std::runtime_error);  // zero-filled
  Board::initialise(region.data(), 4);
  CHECK(Board(region.data(), 4).world_size() == 4);
  CHECK_THROWS_MATCHES(Board(region.data(), 3), std::runtime_error,
                       MessageMatches(ContainsSubstring("for 4 ranks")));
  region.data()[8] = std::byte{99};  // the version follows the magic word
  CHECK_THROWS_MATCHES(Board(region.data(), 4), std::runtime_error,
                       MessageMatches(ContainsSubstring("version 99")));
}

TEST_CASE("the ids of NCCL are read whole, and only once they are set", "[threads]") {
  constexpr int kRanks = 3;
  const auto byte_of = [](int teller, int number) {
    return static_cast<std::byte>(0x40 + 0x10 * teller + number);
  };
  for (int round = 0; round < 50; ++round) {
    const SharedRegion region = board_region(kRanks);
    const Board board = Board::initialise(region.data(), kRanks);
    const auto texts = run_threads(kRanks, [&](int rank) {
      std::array<std::byte, Board::kNcclIdBytes> id{};
      for (int number = 0; number < Board::kNcclIds; ++number) {
        id.fill(byte_of(rank, number));
        board.set_nccl_id(rank, number, id);
        for (int teller = 0; teller < kRanks; ++teller) {
          while (!board.nccl_id(teller, number, id)) std::this_thread::yield();
          for (const std::byte byte : id) {
            if (byte != byte_of(teller, number)) return std::string("torn, or another's");
          }
        }
      }
      return std::string("ok");
    });
    for (const std::string& text : texts) REQUIRE(text == "ok");
  }
}

TEST_CASE("an id of NCCL that was never set leaves the reader's bytes unchanged") {
  const SharedRegion region = board_region(2);
  const Board board = Board::initialise(region.data(), 2);
  std::array<std::byte, Board::kNcclIdBytes> id{};
  id.fill(std::byte{7});
  board.set_nccl_id(0, 1, id);
  CHECK_THROWS_AS(board.set_nccl_id(0, 1, id), std::logic_error);
  id.fill(std::byte{1});
  CHECK_FALSE(board.nccl_id(0, 0, id));
  CHECK_FALSE(board.nccl_id(1, 1, id));
  CHECK(id.back() == std::byte{1});
  CHECK(board.nccl_id(0, 1, id));
  CHECK(id.back() == std::byte{7});
  CHECK_THROWS_AS(board.nccl_id(0, Board::kNcclIds, id), std::logic_error);
  CHECK_THROWS_AS(board.nccl_id(2, 0, id), std::logic_error);
  CHECK_THROWS_AS(board.set_nccl_id(0, -1, id), std::logic_error);
}

TEST_CASE("of many abort reasons raised at once exactly one stays, whole") {
  for (int round = 0; round < 50; ++round) {
    AbortNote note;
    const auto seen = run_threads(4, [&](int rank) {
      note.raise(std::string(400, static_cast<char>('a' + rank)));
      return note.reason();
    });
    const std::set<std::string> reasons(seen.begin(), seen.end());
    REQUIRE(reasons.size() == 1);
    const std::string& reason = *reasons.begin();
    REQUIRE(reason == std::string(400, reason[0]));
  }
}

TEST_CASE("an abort note is empty at first and cuts texts that are too long") {
  AbortNote note;
  CHECK_FALSE(note.is_raised());
  CHECK(note.reason().empty());
  note.raise(std::string(5000, 'x'));
  CHECK(note.is_raised());
  CHECK(note.reason() == std::string(AbortNote::kTextBytes - 1, 'x'));
}

TEST_CASE("a rank's GPU is known once it is set") {
  const SharedRegion region = board_region(2);
  const Board board = Board::initialise(region.data(), 2);
  GpuUuid told{};
  CHECK_FALSE(board.gpu(1, told));
  GpuUuid own{};
  own.fill(std::byte{7});
  board.set_gpu(1, own);
  CHECK_THROWS_AS(board.set_gpu(1, own), std::logic_error);
  CHECK(board.gpu(1, told));
  CHECK(told == own);
  CHECK_FALSE(board.gpu(0, told));
  CHECK_THROWS_AS(board.gpu(2, told), std::logic_error);
}

TEST_CASE("the last actions of a rank are kept, the oldest first") {
  const SharedRegion region = board_region(2);
  const Board board = Board::initialise(region.data(), 2);
  CHECK(board.last_actions(1).empty());
  constexpr int kCount = 2 * static_cast<int>(Board::kActions) + 17;
  for (int i = 0; i < kCount; ++i) board.enter(1, RankPhase::training, 1ll << 40, i);
  const auto actions = board.last_actions(1);
  REQUIRE(actions.size() == Board::kActions);
  for (size_t i = 0; i < actions.size(); ++i) {
    const int expected = kCount - static_cast<int>(Board::kActions) + static_cast<int>(i);
    REQUIRE(actions[i].status == RankStatus{0, RankPhase::training, 1ll << 40, expected});
    if (i > 0) REQUIRE(actions[i].time_ns >= actions[i - 1].time_ns);
  }
  CHECK(board.last_actions(0).empty());
}

TEST_CASE("all ranks stop after the same step, whenever they are asked", "[threads]") {
  constexpr int kRanks = 4;
  tests::Sample sample;
  for (int round = 0; round < 200; ++round) {
    if (!sample.has_next()) continue;
    const SharedRegion region = board_region(kRanks);
    const Board board = Board::initialise(region.data(), kRanks);
    std::thread asker([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round * 5));
      board.ask_to_stop();
    });
    // Ranks do not meet within a step: they may be any number of steps apart.
    const auto stopped = run_threads(kRanks, [&](int rank) {
      int64_t step = 3;
      while (!board.must_stop(rank, step)) {
        ++step;
        if (rank == 0 && step % 8 == 0) std::this_thread::yield();
      }
      return std::to_string(step);
    });
    asker.join();
    REQUIRE(std::set<std::string>(stopped.begin(), stopped.end()).size() == 1);
  }
}
