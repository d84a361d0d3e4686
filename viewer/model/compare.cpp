#include "viewer/model/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "profiler/compare/origin.h"
#include "profiler/recording/profile.h"

namespace shardlens::viewer {

namespace {

std::string category_in_words(Category category, const Lane& lane) {
  return in_words(profiler::category_name(category, profiler::has_shards(lane.info().header)));
}

std::string name_of_block(const Lane& lane, const ActionNames& names, const Block& block,
                          int64_t age, Grouping grouping) {
  const std::string label(lane.label(block));
  switch (grouping) {
    case Grouping::category:
      return category_in_words(block.category, lane);
    case Grouping::label:
      return label.empty() ? "without a name" : label;
    case Grouping::age:
      if (block.step < 0) return "since before the first step";
      return age == 0 ? "from this step" : fmt::format("{} step{} old", age, age == 1 ? "" : "s");
    case Grouping::none:
      break;
  }
  const std::string action = names.name_of(block.phase, block.action).text;
  return label.empty() ? fmt::format("{} of {}", category_in_words(block.category, lane), action)
                       : label;
}

}  // namespace

int64_t step_of_change(const Lane& lane, int64_t change) {
  // The step is the last one that had begun, even if a later stretch is not a step.
  const Stretch* at = lane.stretch_of_change(change);
  const Stretch* const first = lane.arrays().stretches.data();
  for (; at != nullptr; --at) {
    if (at->number >= 0) return at->number;
    if (at == first) break;
  }
  return -1;
}

int64_t age_in_steps(const Block& block, int64_t step) {
  return block.step < 0 ? step + 1 : step - block.step;
}

std::string in_words(std::string_view name) {
  std::string words(name);
  std::ranges::replace(words, '_', ' ');
  return words;
}

CategoryBytes difference(const CategoryBytes& a, const CategoryBytes& b) {
  CategoryBytes growth{};
  for (size_t i = 0; i < growth.size(); ++i) growth[i] = b[i] - a[i];
  return growth;
}

std::vector<std::optional<CategoryBytes>> difference(const std::vector<std::optional<Extent>>& a,
                                                     const std::vector<std::optional<Extent>>& b) {
  std::vector<std::optional<CategoryBytes>> columns(std::min(a.size(), b.size()));
  for (size_t i = 0; i < columns.size(); ++i) {
    if (a[i] && b[i]) columns[i] = difference(a[i]->at_max, b[i]->at_max);
  }
  return columns;
}

std::string growth_in_words(int64_t growth_bytes) {
  return growth_bytes > 0 ? bytes_text(growth_bytes) + " more"
                          : bytes_text(-growth_bytes) + " less";
}

std::string change_in_words(int64_t a_bytes, int64_t b_bytes, int64_t noise_bytes) {
  const int64_t growth = b_bytes - a_bytes;
  if (growth == 0) return "the same";
  const int64_t size = growth < 0 ? -growth : growth;
  if (noise_bytes > 0 && size <= std::max(noise_bytes, a_bytes / 100)) return "about the same";
  const std::string amount = growth_in_words(growth);
  if (a_bytes == 0) return amount;
  const double percent = 100 * static_cast<double>(growth) / static_cast<double>(a_bytes);
  return fmt::format("{} ({:+.1f} %)", amount, percent);
}

std::vector<AliveRow> alive_rows(const Lane& lane, const ActionNames& names, int64_t change,
                                 Grouping grouping) {
  return rows_of(lane, names, change, grouping, lane.alive_after(change));
}

std::vector<AliveRow> rows_of(const Lane& lane, const ActionNames& names, int64_t change,
                              Grouping grouping, const std::vector<uint32_t>& alive) {
  const int64_t step = step_of_change(lane, change);
  std::map<std::pair<std::string, std::optional<Category>>, AliveRow> groups;
  std::vector<AliveRow> rows;
  for (const uint32_t index : alive) {
    const Block& block = lane.arrays().blocks[index];
    const int64_t age = age_in_steps(block, step);
    AliveRow own{.name = name_of_block(lane, names, block, age, grouping),
                 .category = block.category,
                 .bytes = block.given_bytes,
                 .count = 1,
                 .oldest_steps = age,
                 .block = index};
    if (const std::string_view name = lane.name(index); !name.empty()) {
      own.names.emplace_back(name);
    }
    if (grouping == Grouping::none) {
      rows.push_back(std::move(own));
      continue;
    }
    // Rows of one age hold all categories; a place has a row for each.
    const auto category = grouping == Grouping::age ? std::nullopt : std::optional(own.category);
    const auto [at, is_new] = groups.try_emplace({own.name, category}, own);
    if (is_new) continue;
    AliveRow& row = at->second;
    if (own.bytes > lane.arrays().blocks[row.block].given_bytes) {
      row.block = index;
      row.category = own.category;
    }
    row.bytes += own.bytes;
    row.count += 1;
    row.names.insert(row.names.end(), own.names.begin(), own.names.end());
    row.oldest_steps = std::max(row.oldest_steps, age);
  }
  for (auto& [key, row] : groups) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, [](const AliveRow& a, const AliveRow& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : profiler::is_naturally_less(a.name, b.name);
  });
  return rows;
}

namespace {

/// Returns the blocks that are alive at a moment, by label, action and category.
std::vector<profiler::Holding> holdings_of(const LaneMoment& moment) {
  const Lane& lane = *moment.lane;
  std::map<std::tuple<Category, uint32_t, profiler::Phase, int32_t>, size_t> places;
  std::vector<profiler::Holding> holdings;
  const auto bytes_of = [&](uint32_t index) { return lane.arrays().blocks[index].given_bytes; };
  for (const uint32_t index : lane.alive_after(moment.change)) {
    const Block& block = lane.arrays().blocks[index];
    const std::tuple key{block.category, block.label, block.phase, block.action};
    const auto [place, is_new] = places.try_emplace(key, holdings.size());
    if (is_new) {
      const bool is_in_pass = block.action >= 0;
      holdings.push_back(
          {.category = block.category,
           .label = std::string(lane.label(block)),
           .action = is_in_pass ? moment.names->name_of(block.phase, block.action).text : "",
           .sizes = {},
           .largest = index});
    }
    profiler::Holding& holding = holdings[place->second];
    if (block.given_bytes > bytes_of(holding.largest)) holding.largest = index;
    holding.sizes.push_back(block.given_bytes);
  }
  return holdings;
}

profiler::ProgramLines program_of(const LaneMoment& moment) {
  const LaneInfo& info = moment.lane->info();
  profiler::ProgramLines program = profiler::program_lines(info.strings, info.stacks);
  if (moment.notes != nullptr) program.fingerprints = moment.notes->fingerprints;
  return program;
}

}  // namespace

profiler::Matching match(const LaneMoment& a, const LaneMoment& b) {
  return profiler::match(holdings_of(a), holdings_of(b), program_of(a), program_of(b));
}

std::set<std::string> unchanged_files(const LaneMoment& a, const LaneMoment& b) {
  return profiler::unchanged_files(program_of(a), program_of(b));
}

profiler::Matching places_of(const LaneMoment& moment) {
  return profiler::match({}, holdings_of(moment));
}

}  // namespace shardlens::viewer
