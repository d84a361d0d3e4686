// The longest loops over independent cases run a part of them, another part with each seed:
//
//     - `make test` and `make test-long` run one case in kQuickCases. SHARDLENS_CASES=all, as in
//       continuous integration, runs all.
//     - A sanitizer slows a test down 5 to 20 times. It looks for memory errors, while the build
//       without one looks for wrong answers, so it runs fewer cases (tests/CMakeLists.txt).
#pragma once

#include <catch2/catch_get_random_seed.hpp>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace shardlens::tests {

constexpr int64_t kQuickCases = 4;

/// Returns N where a loop runs one case in N.
inline int64_t cases_per_sample() {
  const char* asked = std::getenv("SHARDLENS_CASES");
  const bool wants_all = asked != nullptr && std::string_view(asked) == "all";
  return SHARDLENS_CASES_PER_SAMPLE * (wants_all ? 1 : kQuickCases);
}

/// Returns how many of `cases` a sample has at least.
inline int64_t sampled(int64_t cases) { return cases / cases_per_sample(); }

/// Picks the cases of a loop to run: one in `cases_per_sample`, starting at one that Catch's seed
/// says.
///
///     Sample sample;
///     for (const Case& it : cases) {
///       if (sample.has_next()) check(it);
///     }
class Sample {
 public:
  explicit Sample(int64_t cases_per_sample = tests::cases_per_sample())
      : cases_per_sample_(cases_per_sample),
        next_(static_cast<int64_t>(Catch::getSeed()) % cases_per_sample) {}

  /// Says whether the next case of the loop is run; call it once a case.
  bool has_next() { return next_++ % cases_per_sample_ == 0; }

 private:
  int64_t cases_per_sample_;
  int64_t next_;
};

}  // namespace shardlens::tests
