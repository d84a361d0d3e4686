#include "profiler/report/kept_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>

#include "profiler/report/report.h"

namespace shardlens::profiler {

bool is_kept_by_design(Category category) {
  switch (category) {
    case Category::parameter_shard:
    case Category::parameter_copy:
    case Category::unsharded_parameter:
    case Category::gradient_shard:
    case Category::gradient:
    case Category::optimizer_state:
    case Category::reduce_buffer:
    case Category::workspace:
    case Category::communication:
    case Category::checkpoint_staging:
      return true;
    case Category::activation:
    case Category::input:
    case Category::other:
      return false;
  }
  return false;
}

std::vector<KeptPlace> kept_places(const std::vector<NamedAllocation>& alive) {
  using Key = std::tuple<Category, std::string_view, std::string_view>;
  std::map<Key, KeptPlace> places;
  for (const NamedAllocation& one : alive) {
    if (one.age_steps == 0 || !one.is_of_step || is_kept_by_design(one.category)) continue;
    KeptPlace& place = places[{one.category, one.label, one.caller}];
    if (place.count++ == 0) {
      place = {.label = one.label,
               .caller = one.caller,
               .category = one.category,
               .given_bytes = 0,
               .count = 1,
               .youngest_steps = one.age_steps,
               .oldest_steps = one.age_steps};
    }
    place.given_bytes += one.given_bytes;
    place.youngest_steps = std::min(place.youngest_steps, one.age_steps);
    place.oldest_steps = std::max(place.oldest_steps, one.age_steps);
  }
  std::vector<KeptPlace> list;
  for (auto& [key, place] : places) list.push_back(std::move(place));
  std::ranges::stable_sort(list, std::greater(), &KeptPlace::given_bytes);
  return list;
}

std::string age_text(int64_t youngest_steps, int64_t oldest_steps) {
  if (oldest_steps == 0) return {};
  const std::string from =
      youngest_steps == oldest_steps ? "" : fmt::format("{} to ", youngest_steps);
  return fmt::format("{}{} {} old", from, oldest_steps, oldest_steps == 1 ? "step" : "steps");
}

}  // namespace shardlens::profiler
