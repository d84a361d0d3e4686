#include "profiler/record/known/experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "profiler/record/known/routing.h"
#include "profiler/record/known/tensors.h"
#include "profiler/record/known/unseen.h"

namespace shardlens::profiler {

namespace {

using std::string_view;

/// All is set before the program's first operator, except this rank's place, which groups tell.
struct RoutingChoice {
  std::mutex mutex;
  Routing routing;
  std::atomic<bool> was_placed = false;
  std::atomic<int64_t> exchanged_by = 0;  // ranks
};

RoutingChoice& routing_choice() {
  static auto& only = *new RoutingChoice;
  return only;
}

Routing routing() {
  const std::lock_guard lock(routing_choice().mutex);
  return routing_choice().routing;
}

/// A call of topk that may be a router's; 0 tokens: it is not one.
struct Question {
  int64_t tokens = 0;
  int64_t k = 0;
  int64_t experts = 0;
};

bool is_of_router(const at::Tensor& scores, int64_t dim, int64_t k) {
  if (!is_plain(scores) || scores.dim() < 2 || !at::isFloatingType(scores.scalar_type())) {
    return false;
  }
  const int64_t experts = scores.size(-1);
  return (dim == -1 || dim == scores.dim() - 1) && experts > 1 && experts <= kMostExperts &&
         k > 0 && k <= experts && scores.numel() > 0;
}

Question question_of(c10::ArrayRef<c10::IValue> arguments) {
  if (arguments.size() < 3 || !arguments[0].isTensor() || !arguments[1].isInt() ||
      !arguments[2].isInt()) {
    return {};
  }
  const at::Tensor& scores = arguments[0].toTensor();
  const int64_t k = arguments[1].toInt();
  if (!is_of_router(scores, arguments[2].toInt(), k)) return {};
  const int64_t experts = scores.size(-1);
  return {.tokens = scores.numel() / experts, .k = k, .experts = experts};
}

}  // namespace

bool places_by_values(string_view name) {
  constexpr std::array kNames = {string_view("bincount"), string_view("histc"),
                                 string_view("gather"),   string_view("scatter"),
                                 string_view("sort"),     string_view("argsort"),
                                 string_view("nonzero"),  string_view("index"),
                                 string_view("_index"),   string_view("_unique")};
  return std::ranges::any_of(kNames, [&](string_view one) { return name.starts_with(one); });
}

bool choose(KnownMemory& memory, c10::ArrayRef<c10::IValue> arguments, const at::Tensor& indices) {
  const Question question = question_of(arguments);
  if (question.tokens == 0 || !is_plain(indices)) return false;
  const auto [tokens, k, experts] = question;
  if (indices.numel() != tokens * k || indices.scalar_type() != at::kLong) return false;
  for (const int64_t elements : {tokens * k, tokens * experts, tokens * k * experts}) {
    allow_elements(elements);
  }
  if (!is_small(indices)) return false;
  const UnobservedSection unseen;
  const auto values = choose_experts(routing(), tokens, k, experts);
  make_known(memory, indices, at::tensor(values, at::kLong).reshape(indices.sizes()));
  return true;
}

void note_placed() { routing_choice().was_placed = true; }

void note_exchange(int64_t ranks) { routing_choice().exchanged_by = ranks; }

}  // namespace shardlens::profiler

using shardlens::profiler::Routing;
using shardlens::profiler::routing_choice;

void shardlens_set_routing(int32_t kind, double factor) {
  const std::lock_guard lock(routing_choice().mutex);
  routing_choice().routing.kind = static_cast<Routing::Kind>(kind);
  routing_choice().routing.factor = factor;
}

void shardlens_place_experts(int64_t rank, int64_t ranks) {
  const std::lock_guard lock(routing_choice().mutex);
  routing_choice().routing.rank = rank;
  routing_choice().routing.ranks = ranks;
}

int32_t shardlens_routing_used() {
  if (!routing_choice().was_placed) return 0;
  const int64_t by = routing_choice().exchanged_by;
  return by == 0 || by == shardlens::profiler::routing().ranks ? 1 : 2;
}
