#include "profiler/record/known/routing.h"

#include <algorithm>
#include <cmath>

namespace shardlens::profiler {

namespace {

/// Hands out a range of experts in turn.
class Turn {
 public:
  Turn(int64_t first, int64_t count) : first_(first), count_(count) {}

  int64_t next() {
    const int64_t expert = first_ + next_;
    next_ = next_ + 1 == count_ ? 0 : next_ + 1;
    return expert;
  }

 private:
  int64_t first_;
  int64_t count_;
  int64_t next_ = 0;
};

std::vector<int64_t> balanced(int64_t choices, int64_t experts) {
  std::vector<int64_t> chosen(static_cast<size_t>(choices));
  Turn all(0, experts);
  for (int64_t& one : chosen) one = all.next();
  return chosen;
}

/// Expert 0 gets `busy` tokens, spread evenly over all.
std::vector<int64_t> skewed(int64_t tokens, int64_t k, int64_t experts, int64_t busy) {
  std::vector<int64_t> chosen;
  chosen.reserve(static_cast<size_t>(tokens * k));
  Turn others(1, experts - 1);
  for (int64_t token = 0; token < tokens; ++token) {
    const bool is_busy = (token + 1) * busy / tokens > token * busy / tokens;
    if (is_busy) chosen.push_back(0);
    for (int64_t i = is_busy ? 1 : 0; i < k; ++i) chosen.push_back(others.next());
  }
  return chosen;
}

/// The experts from `first` on, `own` of them, get as many as they can.
std::vector<int64_t> worst(int64_t tokens, int64_t k, int64_t experts, int64_t first, int64_t own) {
  std::vector<int64_t> chosen;
  chosen.reserve(static_cast<size_t>(tokens * k));
  Turn of_rank(first, own), of_others(0, std::max<int64_t>(experts - own, 1));
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t i = 0; i < std::min(k, own); ++i) chosen.push_back(of_rank.next());
    for (int64_t i = own; i < k; ++i) {
      const int64_t other = of_others.next();
      chosen.push_back(other < first ? other : other + own);
    }
  }
  return chosen;
}

}  // namespace

std::vector<int64_t> choose_experts(const Routing& routing, int64_t tokens, int64_t k,
                                    int64_t experts) {
  const int64_t choices = tokens * k;
  if (routing.kind == Routing::Kind::skewed && k < experts) {
    const double share = static_cast<double>(choices) / static_cast<double>(experts);
    const int64_t busy = std::llround(std::min(routing.factor * share, double(tokens)));
    return skewed(tokens, k, experts, busy);
  }
  if (routing.kind == Routing::Kind::worst && experts % routing.ranks == 0) {
    const int64_t own = experts / routing.ranks;
    return worst(tokens, k, experts, routing.rank * own, own);
  }
  return balanced(choices, experts);
}

}  // namespace shardlens::profiler
