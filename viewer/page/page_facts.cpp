#include "viewer/page/page_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "profiler/compare/matching_json.h"
#include "profiler/recording/profile.h"
#include "profiler/report/judgement_json.h"
#include "viewer/model/compare.h"
#include "viewer/paint/theme.h"
#include "viewer/scene/scene.h"

namespace shardlens::viewer {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kPageAlignments = {Alignment::step, Alignment::time, Alignment::event,
                                        Alignment::normalised};

double in_us(int64_t time_ns) {
  return static_cast<double>(time_ns) / static_cast<double>(kNsPerUs);
}

/// Gives every text or path a number, starting from 0.
template <class Value>
class NumberedValues {
 public:
  size_t number_of(const Value& value) {
    const auto [known, is_new] = known_.try_emplace(value, values_.size());
    if (is_new) values_.push_back(value);
    return known->second;
  }
  const std::vector<Value>& values() const { return values_; }

 private:
  std::map<Value, size_t> known_;
  std::vector<Value> values_;
};

/// Numbers the ends of paths: nodes of a tree whose root is 0.
class PathNumbers {
 public:
  size_t end_of(const profiler::TreePath& path) {
    size_t at = 0;
    for (const profiler::TreePlace& place : path) {
      const size_t number = places_.number_of({place.name, place.file, place.line});
      at = 1 + nodes_.number_of({at, number});
    }
    return at;
  }
  Json places() const {
    Json all = Json::array();
    for (const auto& [name, file, line] : places_.values()) all.push_back({name, file, line});
    return all;
  }
  Json nodes() const {
    Json all = Json::array();
    for (const auto& [parent, place] : nodes_.values()) all.push_back({parent, place});
    return all;
  }

 private:
  NumberedValues<std::tuple<std::string, std::string, uint32_t>> places_;
  NumberedValues<std::pair<size_t, size_t>> nodes_;
};

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool lanes_have_shards(const std::vector<PageLane>& lanes) {
  return std::ranges::any_of(lanes, [](const PageLane& one) {
    return profiler::has_shards(one.rank->lane.info().header);
  });
}

Json categories_of_page(bool has_shards) {
  Json all = Json::array();
  for (const Category category : stacking_order()) {
    const Color color = color_of(category);
    all.push_back({{"id", static_cast<int>(category)},
                   {"word", to_string(category)},
                   {"name", words_of(category, has_shards)},
                   {"color", {color.r, color.g, color.b}}});
  }
  return all;
}

/// Returns the x and the microseconds, or changes, of the ends of each piece.
Json warp_json(const Warp& warp) {
  const double unit = warp.is_by_change() ? 1 : static_cast<double>(kNsPerUs);
  Json pieces = Json::array();
  for (const Warp::Piece& piece : warp.pieces()) {
    pieces.push_back(
        {piece.x.begin, piece.x.end, piece.position.begin / unit, piece.position.end / unit});
  }
  return {{"by_change", warp.is_by_change()}, {"pieces", std::move(pieces)}};
}

Json warps_json(const PageLane& lane, const PageLane& baseline) {
  Json warps = Json::object();
  for (const Alignment alignment : kPageAlignments) {
    const NamedLane here{&lane.rank->lane, &lane.rank->names};
    const NamedLane there{&baseline.rank->lane, &baseline.rank->names};
    warps[std::string(to_string(alignment))] = warp_json(warp_of(alignment, here, there));
  }
  return warps;
}

Json peak_json(const PageLane& lane) {
  const Extent& peak = lane.rank->lane.peak();
  Json categories = Json::object();
  for (size_t i = 0; i < peak.at_max.size(); ++i) {
    categories[std::string(kWords<profiler::Category>[i])] = peak.at_max[i];
  }
  return {{"bytes", peak.max_bytes},
          {"change", peak.max_change},
          {"place", moment_text(*lane.rank, peak.max_change)},
          {"categories", std::move(categories)}};
}

/// Returns the moment, and the bytes asked, of each request that failed.
Json failed_requests_json(const PageLane& lane) {
  Json all = Json::array();
  for (const FailedRequest& failure : lane.rank->lane.arrays().failures) {
    all.push_back({{"us", in_us(failure.time_ns)},
                   {"change", failure.change},
                   {"text", failure_text(*lane.rank, failure)}});
  }
  return all;
}

Json lane_json(const PageLane& lane, const PageLane& baseline) {
  const LaneInfo& info = lane.rank->lane.info();
  const bool is_baseline = &lane == &baseline;
  const auto moment = [](const PageLane& one) {
    return LaneMoment{&one.rank->lane, &one.rank->names, one.rank->lane.peak().max_change,
                      &one.rank->notes};
  };
  const Stretch* const first = lane.rank->lane.first_step();
  const bool is_comparable = !is_baseline && info.space == baseline.rank->lane.info().space;
  return {
      {"name", lane.name},
      {"is_folded", lane.is_folded},
      {"strategy", lane.run->strategy},
      {"rank", info.header.rank},
      {"ranks", info.header.world_size},
      {"space", to_string(info.space)},
      {"device", info.header.device},
      {"notice", info.header.notice},
      {"capacity_bytes", info.header.capacity_bytes},
      {"end_us", in_us(info.end_ns)},
      {"zero_us", first == nullptr ? 0 : in_us(first->begin_ns)},
      {"first_step", first == nullptr ? Json(nullptr) : Json(first->number)},
      {"reserved_peak_bytes", lane.rank->lane.reserved_peak()},
      {"failures", failed_requests_json(lane)},
      {"doubt", doubt_of_lane(lane)},
      {"bound", profiler::bound_prefix(info.judgement)},
      {"judgement", profiler::judgement_json(info.judgement)},
      {"steps", std::ranges::count_if(lane.rank->lane.arrays().stretches,
                                      [](const Stretch& stretch) { return stretch.number >= 0; })},
      {"peak", peak_json(lane)},
      {"warps", warps_json(lane, baseline)},
      {"unchanged_files", unchanged_files(moment(baseline), moment(lane))},
      {"comparison", is_comparable
                         ? profiler::matching_json(match(moment(baseline), moment(lane)), "a", "b")
                         : Json(nullptr)}};
}

Json stretches_json(const Lane& lane) {
  Json all = Json::array();
  for (const Stretch& stretch : lane.arrays().stretches) {
    all.push_back({stretch.number, static_cast<int>(stretch.phase), in_us(stretch.begin_ns),
                   stretch.first_change});
  }
  return all;
}

}  // namespace

std::string page_title(const std::vector<PageLane>& lanes) {
  std::set<const Run*> runs;
  for (const PageLane& lane : lanes) runs.insert(lane.run);
  if (runs.size() > 1) return fmt::format("Memory of {} runs", runs.size());
  return "Memory of " + (lanes.size() > 1 ? lanes.front().run->name : lanes.front().name);
}

std::string doubt_of_lane(const PageLane& lane) {
  const profiler::Judgement& judgement = lane.rank->lane.info().judgement;
  if (profiler::is_whole(judgement)) return "";
  return "This recording: " + profiler::judgement_text(judgement);
}

std::string page_facts(const std::vector<PageLane>& lanes, size_t baseline,
                       const ViewState& state) {
  Json all = Json::array();
  for (const PageLane& lane : lanes) all.push_back(lane_json(lane, lanes[baseline]));
  const bool knows = std::ranges::find(kPageAlignments, state.alignment) != kPageAlignments.end();
  const Alignment alignment = knows ? state.alignment : Alignment::step;
  Json facts = {{"schema", "shardlens.page/1"},
                {"title", page_title(lanes)},
                {"baseline", baseline},
                {"alignment", to_string(alignment)},
                {"order", to_string(state.lanes.sort)},
                {"theme", to_string(state.theme)},
                {"phases", kWords<profiler::Phase>},
                {"categories", categories_of_page(lanes_have_shards(lanes))},
                {"lanes", std::move(all)}};
  if (state.view && knows) facts["view"] = {state.view->begin, state.view->end};
  return text_of(facts);
}

std::string lane_names(const PageLane& lane, const LaneKinds& kinds) {
  const LaneInfo& info = lane.rank->lane.info();
  const profiler::TreePaths paths(info.header, info.strings, lane.stacks);
  NumberedValues<std::string> texts;
  PathNumbers numbers;
  Json groups = Json::array();
  for (const profiler::AliveGroup& group : kinds.groups) {
    const auto end = [&](profiler::TreeGrouping by) {
      return numbers.end_of(paths.path(group, by, profiler::TreeStart::top));
    };
    const bool has_label = group.label < info.strings.size();
    const std::string action = lane.rank->names.name_of(group.phase, group.action).text;
    groups.push_back({texts.number_of(has_label ? info.strings[group.label] : ""),
                      texts.number_of(group.action < 0 ? "" : action),
                      static_cast<int>(group.category), end(profiler::TreeGrouping::stack),
                      end(profiler::TreeGrouping::module)});
  }
  return text_of({{"texts", texts.values()},
                  {"places", numbers.places()},
                  {"nodes", numbers.nodes()},
                  {"groups", std::move(groups)},
                  {"stretches", stretches_json(lane.rank->lane)}});
}

}  // namespace shardlens::viewer
