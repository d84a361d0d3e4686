#include "runtime/comm/device/nccl_api.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("a missing NCCL is one line that says how to fix it") {
  CHECK_THROWS_MATCHES(
      load_nccl("libshardlens_has_none.so.2"), std::runtime_error,
      MessageMatches(ContainsSubstring("libshardlens_has_none.so.2") &&
                     ContainsSubstring("--communicator gloo") && !ContainsSubstring("\n")));
}

TEST_CASE("a library that is not NCCL is refused by its first missing call") {
  CHECK_THROWS_MATCHES(load_nccl("libm.so.6"), std::runtime_error,
                       MessageMatches(ContainsSubstring("libm.so.6 has no ncclGetVersion")));
}
