// The longest loops over independent cases run a part of them, another part with each seed. A test
// does so for one of two reasons:
//
//     - It runs under a sanitizer, which slows it down 5 to 20 times. A sanitizer looks for memory
//       errors, while the build without one looks for wrong answers in every case.
//     - A test with the label `long` runs all of the cases.

#pragma once

#include <cstdint>

namespace shardlens::tests {

/// Runs one case in N: every case in a build without sanitizers (tests/CMakeLists.txt).
constexpr int64_t kCasesPerSample = SHARDLENS_CASES_PER_SAMPLE;

/// Picks the cases of a loop to run: one in `cases_per_sample`, starting at a random one.
///
///     Sample sample(Catch::getSeed());
///     for (const Case& it : cases) {
///       if (sample.has_next()) check(it);
///     }
class Sample {
 public:
  explicit Sample(uint64_t seed, int64_t cases_per_sample = kCasesPerSample)
      : cases_per_sample_(cases_per_sample),
        next_(static_cast<int64_t>(seed % static_cast<uint64_t>(cases_per_sample))) {}

  /// Says whether the next case of the loop is run; call it once a case.
  bool has_next() { return next_++ % cases_per_sample_ == 0; }

 private:
  int64_t cases_per_sample_;
  int64_t next_;
};

}  // namespace shardlens::tests
