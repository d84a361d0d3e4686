#include "base/process/line_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>

using shardlens::LineSocket;
using namespace std::chrono_literals;

namespace {

struct Ends {
  Ends() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()) == 0); }
  std::array<int, 2> both{};
};

}  // namespace

TEST_CASE("lines come whole and in order, however they were cut") {
  const Ends ends;
  LineSocket lines(ends.both[0]);
  for (const std::string part : {"one\ntw", "o", "\n", "\nlast"}) {
    REQUIRE(::write(ends.both[1], part.data(), part.size()) == static_cast<ssize_t>(part.size()));
  }
  CHECK(lines.receive(1s) == "one");
  CHECK(lines.receive(1s) == "two");
  CHECK(lines.receive(1s) == "");
  CHECK_FALSE(lines.receive(0ms));
  CHECK(lines.is_open());
  REQUIRE(::write(ends.both[1], "\n", 1) == 1);
  CHECK(lines.receive(1s) == "last");
  ::close(ends.both[1]);
  CHECK_FALSE(lines.receive(1s));
  CHECK_FALSE(lines.is_open());
}

TEST_CASE("a long line is sent whole, and none to a closed end") {
  const Ends ends;
  LineSocket one(ends.both[0]), other(ends.both[1]);
  const std::string text(50'000, 'x');
  CHECK(one.send(text));
  CHECK(other.receive(1s) == text);
  { const LineSocket closed = std::move(other); }
  CHECK_FALSE(one.send(text));
  CHECK_FALSE(one.is_open());
}
