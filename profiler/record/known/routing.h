// Chooses experts for tokens whose scores nobody knows, as `--routing` says. Standard library only.
//
// An expert gets so many of T tokens that choose k of E experts each:
//   balanced   T k / E, rounded up for the first and down for the others
//   skewed     expert 0 gets F times its share, T at most; the others alike what is left
//   worst      the experts of this rank get all, alike; where they are fewer than k each gets T,
//              and what is left goes to the others alike
//
// All ranks choose alike. Of R ranks rank r has the r-th of R equal ranges of experts.
#pragma once

#include <cstdint>
#include <vector>

namespace shardlens::profiler {

struct Routing {
  enum class Kind : uint8_t { balanced, skewed, worst };
  Kind kind = Kind::balanced;
  double factor = 1;  // of `skewed`: how many times its share the busiest gets
  int64_t ranks = 1;  // that share the experts
  int64_t rank = 0;   // this one
};

/// Returns for each token, one after the other, the experts that it chooses: `k` different ones,
/// with 0 < k <= experts. Where this rank has no equal range, `worst` is `balanced`.
std::vector<int64_t> choose_experts(const Routing& routing, int64_t tokens, int64_t k,
                                    int64_t experts);

}  // namespace shardlens::profiler
