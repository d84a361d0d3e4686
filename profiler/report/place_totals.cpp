#include "profiler/report/place_totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/units.h"

namespace shardlens::profiler {

namespace {

PlaceTotal first_of(const NamedAllocation& tensor) {
  return {.largest_bytes = tensor.given_bytes,
          .smallest_bytes = tensor.given_bytes,
          .category = tensor.category,
          .label = tensor.label,
          .action_id = tensor.action_id,
          .action = tensor.action,
          .youngest_steps = tensor.age_steps,
          .oldest_steps = tensor.age_steps};
}

void add(PlaceTotal& place, const NamedAllocation& tensor) {
  place.given_bytes += tensor.given_bytes;
  place.asked_bytes += tensor.asked_bytes;
  ++place.count;
  place.largest_bytes = std::max(place.largest_bytes, tensor.given_bytes);
  place.smallest_bytes = std::min(place.smallest_bytes, tensor.given_bytes);
  place.youngest_steps = std::min(place.youngest_steps, tensor.age_steps);
  place.oldest_steps = std::max(place.oldest_steps, tensor.age_steps);
}

}  // namespace

std::vector<PlaceTotal> place_totals(const std::vector<NamedAllocation>& tensors) {
  // Schedules of training and evaluation count their actions alike, so an action's words count,
  // too.
  using Key = std::tuple<Category, int32_t, std::string_view, std::string_view>;
  std::vector<PlaceTotal> places;
  std::map<Key, size_t> found;
  std::set<std::pair<size_t, std::string_view>> named;  // a place and a name in it
  for (const NamedAllocation& tensor : tensors) {
    const Key key{tensor.category, tensor.action_id, tensor.action, tensor.label};
    const auto [at, is_new] = found.emplace(key, places.size());
    if (is_new) places.push_back(first_of(tensor));
    add(places[at->second], tensor);
    const bool is_named = !tensor.name.empty() && named.emplace(at->second, tensor.name).second;
    if (is_named) places[at->second].names.push_back(tensor.name);
  }
  for (PlaceTotal& place : places) std::ranges::sort(place.names);
  std::ranges::stable_sort(places, std::greater(), &PlaceTotal::given_bytes);
  return places;
}

std::string count_text(const PlaceTotal& place) {
  if (place.count == 1) return {};
  return fmt::format("{} {} {}", place.count, place.is_of_one_size() ? "x" : "of up to",
                     bytes_text(place.largest_bytes));
}

}  // namespace shardlens::profiler
