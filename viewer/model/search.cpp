#include "viewer/model/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <sstream>
#include <stdexcept>

#include "base/units.h"
#include "profiler/report/alive_tree.h"

namespace shardlens::viewer {

namespace {

int64_t number_of(std::string_view text, std::string_view part) {
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size() || number < 0) {
    throw std::invalid_argument(fmt::format("{}: not a number; write rank:3 or life>2steps", part));
  }
  return number;
}

std::string_view strip_suffix(std::string_view text, std::string_view suffix) {
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return text;
}

void add_part(Query& query, std::string_view part) {
  if (part == "alive@peak") {
    query.alive_at_peak = true;
  } else if (part.starts_with("rank:")) {
    query.rank =
        static_cast<int32_t>(std::min<int64_t>(number_of(part.substr(5), part), INT32_MAX));
  } else if (part.starts_with("life>")) {
    query.more_than_steps =
        number_of(strip_suffix(strip_suffix(part.substr(5), "s"), "step"), part);
  } else if (part.starts_with('>')) {
    query.more_than_bytes = parse_bytes(part.substr(1));
  } else if (part.starts_with('<')) {
    query.less_than_bytes = parse_bytes(part.substr(1));
  } else {
    query.words.push_back(in_lower_case(part));
  }
}

int64_t life_steps(const Lane& lane, const Block& block) {
  const int64_t end =
      block.died == kNeverFreed ? lane.changes() - 1 : static_cast<int64_t>(block.died);
  const Stretch* const last = lane.stretch_of_change(end);
  if (last == nullptr) return 0;
  const auto& stretches = lane.arrays().stretches;
  int64_t steps = 0;
  for (const Stretch* at = last; at->first_change > static_cast<int64_t>(block.born); --at) {
    steps += at->number >= 0 ? 1 : 0;
    if (at == stretches.data()) break;
  }
  return steps;
}

/// Matches the words of a query with the texts of blocks, in lower case. Results are remembered by
/// everything that a text depends on: recordings have millions of blocks and thousands of such
/// texts.
class Texts {
 public:
  Texts(const Lane& lane, const ActionNames& names)
      : lane_(lane),
        names_(names),
        paths_(lane.info().header, lane.info().strings, lane.info().stacks) {}

  bool holds(const Block& block, const std::vector<std::string>& words) {
    if (words.empty()) return true;
    const Key key{block.label, block.action, block.category, block.phase};
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    std::string text = fmt::format("{} {} {}", lane_.label(block), to_string(block.category),
                                   names_.name_of(block.phase, block.action).text);
    for (const profiler::TreePlace& call : paths_.stack(block.label)) {
      text += " " + profiler::place_text(call);
    }
    text = in_lower_case(text);
    const bool all = std::ranges::all_of(
        words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
    return known_[key] = all;
  }

 private:
  struct Key {
    uint32_t label;
    int32_t action;
    Category category;
    profiler::Phase phase;
    auto operator<=>(const Key&) const = default;
  };

  const Lane& lane_;
  const ActionNames& names_;
  profiler::TreePaths paths_;
  std::map<Key, bool> known_;
};

bool fits_query(const Lane& lane, const Block& block, const Query& query) {
  if (query.more_than_bytes && block.given_bytes <= *query.more_than_bytes) return false;
  if (query.less_than_bytes && block.given_bytes >= *query.less_than_bytes) return false;
  if (query.alive_at_peak && !block.is_alive_after(lane.peak().max_change)) return false;
  return !query.more_than_steps || life_steps(lane, block) > *query.more_than_steps;
}

}  // namespace

std::string in_lower_case(std::string_view text) {
  std::string low(text);
  std::ranges::transform(low, low.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return low;
}

bool Query::is_empty() const {
  return words.empty() && !more_than_bytes && !less_than_bytes && !rank && !more_than_steps &&
         !alive_at_peak;
}

Query parse_query(std::string_view text) {
  Query query;
  std::istringstream parts{std::string(text)};
  for (std::string part; parts >> part;) add_part(query, part);
  return query;
}

Query query_of_session(std::string_view text) {
  try {
    return parse_query(text);
  } catch (const std::invalid_argument&) {
    return {};
  }
}

std::vector<Hit> search(const Lane& lane, const ActionNames& names, const Query& query) {
  std::vector<Hit> hits;
  if (query.is_empty() || (query.rank && *query.rank != lane.rank())) return hits;
  Texts texts(lane, names);
  const auto& blocks = lane.arrays().blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!fits_query(lane, blocks[i], query)) continue;
    const auto index = static_cast<uint32_t>(i);
    const std::string name = in_lower_case(lane.name(index));
    const auto is_in_name = [&](const std::string& word) { return name.find(word) != name.npos; };
    const bool is_named = !name.empty() && std::ranges::all_of(query.words, is_in_name);
    if (is_named || texts.holds(blocks[i], query.words)) {
      hits.push_back({index, blocks[i].given_bytes});
    }
  }
  return hits;
}

}  // namespace shardlens::viewer
