#include "planner/config/choices.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

#include "base/check.h"
#include "base/shown.h"

namespace shardlens::planner {

int64_t count_named(std::string_view text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && count > 0 ? count : 0;
}

int small_count(std::string_view option, int64_t count) {
  constexpr int64_t kMostSmallCount = int64_t{1} << 20;
  if (count <= kMostSmallCount) return static_cast<int>(count);
  throw std::invalid_argument(
      fmt::format("--{} {}: at most {}; give a smaller number", option, count, kMostSmallCount));
}

std::string text_of(const ReshardChoice& reshard) {
  switch (reshard.mode) {
    case Reshard::automatic:
      return "auto";
    case Reshard::yes:
      return "true";
    case Reshard::no:
      return "false";
    case Reshard::partly:
      return fmt::format("{}", reshard.kept);
  }
  unreachable("reshard mode out of range");
}

ReshardChoice reshard_named(std::string_view word) {
  if (word == "auto") return {.mode = Reshard::automatic};
  if (word == "true") return {.mode = Reshard::yes};
  if (word == "false") return {.mode = Reshard::no};
  const int64_t kept = count_named(word);
  if (kept > 0) {
    return {.mode = Reshard::partly, .kept = small_count("reshard-after-forward", kept)};
  }
  throw std::invalid_argument(
      fmt::format("--reshard-after-forward {}: not a valid value; give auto, true, false or a "
                  "number of ranks",
                  shown(word)));
}

std::string text_of(const Recompute& recompute) {
  if (recompute.every == 0) return "none";
  return recompute.every == 1 ? "full" : fmt::format("every:{}", recompute.every);
}

Recompute recompute_named(std::string_view word) {
  constexpr std::string_view kEvery = "every:";
  if (word == "none") return {.every = 0};
  if (word == "full") return {.every = 1};
  const int64_t every = word.starts_with(kEvery) ? count_named(word.substr(kEvery.size())) : 0;
  if (every > 0) return {.every = small_count("recompute", every)};
  throw std::invalid_argument(
      fmt::format("--recompute {}: not a valid value; give none, full or every:K", shown(word)));
}

}  // namespace shardlens::planner
