// Chooses experts for tokens whose scores are unknown, as `--routing` says. Standard library only.
//
// These are the tokens that each expert gets when every one of T tokens picks k of E experts:
//   balanced   T k / E, rounded up for the first and down for the others
//   skewed     expert 0 gets F times its share, T at most; the rest is split evenly
//   worst      this rank's experts get all, split evenly; if they are fewer than k, each gets T,
//              and the rest is split evenly over the other experts
//
// All ranks choose the same way. Of R ranks rank r has the r-th of R equal ranges of experts.
#pragma once

#include <cstdint>
#include <vector>

namespace shardlens::profiler {

struct Routing {
  enum class Kind : uint8_t { balanced, skewed, worst };
  Kind kind = Kind::balanced;
  double factor = 1;  // for `skewed`: how many times its share the busiest expert gets
  int64_t ranks = 1;  // that share the experts
  int64_t rank = 0;   // this process's
};

/// Returns the experts that each token chooses, one token after the other: `k` different ones, with
/// 0 < k <= experts. If this rank has no equal range, `worst` is `balanced`.
std::vector<int64_t> choose_experts(const Routing& routing, int64_t tokens, int64_t k,
                                    int64_t experts);

}  // namespace shardlens::profiler
