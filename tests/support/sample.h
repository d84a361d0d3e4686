// A sanitizer slows a test down 5 to 20 times. It looks for memory errors, while the build without
// one looks for wrong answers in every case; so the longest loops over independent cases run a part
// of them under a sanitizer, another part with each seed.

#pragma once

#include <cstdint>

namespace shardlens::test {

/// One case of so many is run: 1 in a build without sanitizers (tests/CMakeLists.txt).
constexpr int64_t kCasesPerSample = SHARDLENS_CASES_PER_SAMPLE;

/// Picks the cases of a loop that are run.
///
///     Sample sample(Catch::getSeed());
///     for (const Case& it : cases) {
///       if (sample.has_next()) check(it);
///     }
class Sample {
 public:
  explicit Sample(uint64_t seed) : next_(static_cast<int64_t>(seed % kCasesPerSample)) {}

  /// Says whether the next case of the loop is run; to be asked once a case.
  bool has_next() { return next_++ % kCasesPerSample == 0; }

 private:
  int64_t next_;
};

}  // namespace shardlens::test
