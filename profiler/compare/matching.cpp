#include "profiler/compare/matching.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "profiler/compare/line_alignment.h"
#include "profiler/compare/origin.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostRanges = 4;  // of layers, in a name

/// The blocks of one place on one side.
struct PlaceBlocks {
  std::string name;
  std::vector<int64_t> sizes;  // of the blocks without a partner, in descending order
  int64_t bytes = 0;           // of all
  int64_t count = 0;
  int64_t most = -1;                // bytes of the largest block
  uint32_t largest = kNoHeldBlock;  // the caller's number of that block
};

struct PlaceKey {
  Category category{};
  Origin origin;
  bool is_gone = false;  // a line of A that B does not have

  auto operator<=>(const PlaceKey&) const = default;
};

using SideBlocks = std::map<PlaceKey, PlaceBlocks>;

SideBlocks blocks_of(const std::vector<Holding>& holdings) {
  SideBlocks places;
  for (const Holding& one : holdings) {
    PlaceBlocks& place = places[{one.category, origin_of(one.label, one.action)}];
    place.name = name_of_origin(one.label, one.action);
    const int64_t most = one.sizes.empty() ? -1 : std::ranges::max(one.sizes);
    if (most > place.most) {
      place.most = most;
      place.largest = one.largest;
    }
    place.sizes.insert(place.sizes.end(), one.sizes.begin(), one.sizes.end());
  }
  for (auto& [key, place] : places) {
    std::ranges::sort(place.sizes, std::greater());
    place.bytes = std::reduce(place.sizes.begin(), place.sizes.end());
    place.count = std::ssize(place.sizes);
  }
  return places;
}

std::vector<ProgramLine> lines_of(const SideBlocks& places) {
  std::map<Origin, ProgramLine> lines;
  for (const auto& [key, place] : places) {
    if (!key.origin.is_line()) continue;
    ProgramLine& line = lines[key.origin];
    line.file = key.origin.file;
    line.line = key.origin.line;
    line.function = key.origin.function;
    line.sizes[key.category] = place.sizes;
  }
  std::vector<ProgramLine> list;
  for (auto& [origin, line] : lines) list.push_back(std::move(line));
  return list;
}

using FileNames = std::set<std::string>;

/// Returns the lines that a recording names, as if two thirds of the memory of each were of a size
/// that only lines with its number have. So an alignment prefers equal numbers a little.
std::vector<ProgramLine> alike_lines(const ProgramLines& program) {
  constexpr int64_t kUnit = int64_t{1} << 40;
  std::vector<ProgramLine> lines;
  for (const std::string& label : program.lines) {
    const Origin origin = origin_of(label, "");
    if (!origin.is_line()) continue;
    lines.push_back({.file = origin.file,
                     .line = origin.line,
                     .function = origin.function,
                     .sizes = {{Category::other, {2 * kUnit + origin.line, kUnit}}}});
  }
  return lines;
}

/// Gives A's lines the places that they have in B.
SideBlocks moved_to(const SideBlocks& a, const SideBlocks& b, const FileNames& unchanged) {
  const std::vector<ProgramLine> lines_a = lines_of(a);
  const std::vector<ProgramLine> lines_b = lines_of(b);
  const auto partners = align_lines(lines_a, lines_b);
  const auto origin_of_line = [](const ProgramLine& line) {
    return Origin{line.file, line.line, line.function, ""};
  };
  std::map<Origin, Origin> now;
  for (size_t i = 0; i < lines_a.size(); ++i) {
    if (partners[i]) now[origin_of_line(lines_a[i])] = origin_of_line(lines_b[*partners[i]]);
  }
  SideBlocks moved;
  for (const auto& [key, place] : a) {
    const auto found = now.find(key.origin);
    PlaceKey own = key;
    if (unchanged.contains(key.origin.file)) {
      moved[own] = place;
      continue;
    }
    own.is_gone = key.origin.is_line() && found == now.end();
    if (found != now.end()) own.origin = found->second;
    moved[own] = place;
  }
  return moved;
}

/// A place with the blocks of both sides.
struct JointPlace {
  PlaceKey key;
  PlaceBlocks a;
  PlaceBlocks b;
  int64_t in_both_bytes = 0;

  bool is_on_one_side() const { return a.count == 0 || b.count == 0; }
};

std::vector<JointPlace> joints_of(const SideBlocks& a, const SideBlocks& b) {
  std::map<PlaceKey, JointPlace> joints;
  for (const auto& [key, place] : a) joints[key].a = place;
  for (const auto& [key, place] : b) joints[key].b = place;
  std::vector<JointPlace> list;
  for (auto& [key, joint] : joints) {
    joint.key = key;
    list.push_back(std::move(joint));
  }
  return list;
}

/// Pairs equal sizes of one place.
void pair_equal_blocks(JointPlace& joint) {
  std::vector<int64_t> common, left_a, left_b;
  const auto larger = std::greater();
  std::ranges::set_intersection(joint.a.sizes, joint.b.sizes, std::back_inserter(common), larger);
  std::ranges::set_difference(joint.a.sizes, common, std::back_inserter(left_a), larger);
  std::ranges::set_difference(joint.b.sizes, common, std::back_inserter(left_b), larger);
  joint.in_both_bytes += std::reduce(common.begin(), common.end());
  joint.a.sizes = std::move(left_a);
  joint.b.sizes = std::move(left_b);
}

/// Pairs the remaining blocks of one place, the largest with the largest.
void pair_resized_blocks(JointPlace& joint) {
  const size_t pairs = std::min(joint.a.sizes.size(), joint.b.sizes.size());
  for (size_t i = 0; i < pairs; ++i) {
    joint.in_both_bytes += std::min(joint.a.sizes[i], joint.b.sizes[i]);
  }
}

/// A block of a place that only one side has.
struct UnmatchedBlock {
  int64_t bytes = 0;
  JointPlace* place = nullptr;
};

/// The blocks of a function or a module in places that only one side has.
struct Family {
  std::vector<UnmatchedBlock> a;
  std::vector<UnmatchedBlock> b;
};

/// Moves a block of A into the place of its partner in B.
void pair_astray(const UnmatchedBlock& a, const UnmatchedBlock& b) {
  a.place->a.bytes -= a.bytes;
  a.place->a.count -= 1;
  b.place->a.bytes += a.bytes;
  b.place->a.count += 1;
  if (b.place->a.largest == kNoHeldBlock) b.place->a.largest = a.place->a.largest;
  b.place->in_both_bytes += std::min(a.bytes, b.bytes);
}

/// Pairs the blocks of equal sizes. Both lists are in descending order, and stay so.
void pair_equal_blocks(Family& family) {
  Family left;
  size_t i = 0, j = 0;
  while (i < family.a.size() && j < family.b.size()) {
    const int64_t a = family.a[i].bytes;
    const int64_t b = family.b[j].bytes;
    if (a == b) {
      pair_astray(family.a[i++], family.b[j++]);
    } else if (a > b) {
      left.a.push_back(family.a[i++]);
    } else {
      left.b.push_back(family.b[j++]);
    }
  }
  left.a.insert(left.a.end(), family.a.begin() + static_cast<std::ptrdiff_t>(i), family.a.end());
  left.b.insert(left.b.end(), family.b.begin() + static_cast<std::ptrdiff_t>(j), family.b.end());
  family = std::move(left);
}

void pair_resized_blocks(const Family& family) {
  const size_t pairs = std::min(family.a.size(), family.b.size());
  for (size_t i = 0; i < pairs; ++i) pair_astray(family.a[i], family.b[i]);
}

using FamilyKey = std::tuple<Category, std::string, std::string>;  // with function and module

FamilyKey family_of(const PlaceKey& place, const FileNames& unchanged) {
  // A library keeps its workspace from the first call on, no matter where that call is.
  if (place.category == Category::workspace) return {place.category, "", ""};
  const Origin& origin = place.origin;
  if (!origin.is_line()) return {place.category, "", origin.module};
  // The lines of a function are one family, unless they are known to be different lines.
  const bool is_fixed = unchanged.contains(origin.file);
  const std::string line = is_fixed ? fmt::format("{}:{} ", origin.file, origin.line) : "";
  return {place.category, line + origin.function, ""};
}

void pair_places_of_one_side(std::vector<JointPlace>& joints, const FileNames& unchanged) {
  std::map<FamilyKey, Family> families;
  for (JointPlace& joint : joints) {
    if (!joint.is_on_one_side()) continue;
    Family& family = families[family_of(joint.key, unchanged)];
    for (const int64_t bytes : joint.a.sizes) family.a.push_back({bytes, &joint});
    for (const int64_t bytes : joint.b.sizes) family.b.push_back({bytes, &joint});
  }
  for (auto& [key, family] : families) {
    std::ranges::stable_sort(family.a, std::greater(), &UnmatchedBlock::bytes);
    std::ranges::stable_sort(family.b, std::greater(), &UnmatchedBlock::bytes);
    pair_equal_blocks(family);
    const bool is_module = !std::get<2>(key).empty();
    if (is_module) pair_resized_blocks(family);
  }
}

/// A name cut at its first number: "block", 3, " master".
struct NumberedName {
  std::string before;
  int64_t number = 0;
  std::string after;
};

/// Cuts a name; returns nothing if it has no number, or one that is not an index.
std::optional<NumberedName> split_number(const std::string& name) {
  constexpr size_t kMostDigits = 9;
  const size_t begin = name.find_first_of("0123456789");
  if (begin == std::string::npos) return std::nullopt;
  const size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
  const bool is_padded = name[begin] == '0' && end - begin > 1;
  if (is_padded || end - begin > kMostDigits) return std::nullopt;
  return NumberedName{name.substr(0, begin), std::stoll(name.substr(begin, end - begin)),
                      name.substr(end)};
}

/// Returns "0-23", "0-3,7", or the least and the greatest, "0..23", if there are many gaps.
/// `numbers` are in ascending order.
std::string ranges_text(const std::vector<int64_t>& numbers) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    ranges.push_back(last == i ? std::to_string(numbers[i])
                               : fmt::format("{}-{}", numbers[i], numbers[last]));
    i = last + 1;
  }
  if (ranges.size() > kMostRanges) return fmt::format("{}..{}", numbers.front(), numbers.back());
  return fmt::format("{}", fmt::join(ranges, ","));
}

void add_row(MatchedPlace& to, const MatchedPlace& row) {
  to.a_bytes += row.a_bytes;
  to.b_bytes += row.b_bytes;
  to.in_both_bytes += row.in_both_bytes;
  to.a_count += row.a_count;
  to.b_count += row.b_count;
  if (to.a_block == kNoHeldBlock) to.a_block = row.a_block;
  if (to.b_block == kNoHeldBlock) to.b_block = row.b_block;
}

/// Rows whose names differ only in a number, and that changed in the same direction.
struct Layers {
  NumberedName name;  // of the first
  std::vector<std::pair<int64_t, MatchedPlace>> rows;

  MatchedPlace folded() {
    std::ranges::sort(rows, {}, [](const auto& row) { return row.first; });
    MatchedPlace one = rows.front().second;
    std::vector<int64_t> numbers = {rows.front().first};
    for (size_t i = 1; i < rows.size(); ++i) {
      add_row(one, rows[i].second);
      numbers.push_back(rows[i].first);
    }
    one.layers = std::ssize(rows);
    if (one.layers > 1) one.name = name.before + ranges_text(numbers) + name.after;
    return one;
  }
};

/// Folds the rows of repeated layers.
std::vector<MatchedPlace> folded_rows(const std::vector<MatchedPlace>& rows) {
  using Key = std::tuple<Category, std::string, std::string, bool, bool, int>;
  std::map<Key, Layers> layers;
  std::vector<MatchedPlace> folded;
  for (const MatchedPlace& row : rows) {
    const auto name = split_number(row.name);
    if (!name) {
      folded.push_back(row);
      continue;
    }
    const int64_t growth = row.growth_bytes();
    const int direction = growth > 0 ? 1 : growth < 0 ? -1 : 0;
    Layers& alike = layers[{row.category, name->before, name->after, row.a_count > 0,
                            row.b_count > 0, direction}];
    if (alike.rows.empty()) alike.name = *name;
    alike.rows.emplace_back(name->number, row);
  }
  for (auto& [key, alike] : layers) folded.push_back(alike.folded());
  return folded;
}

std::vector<MatchedPlace> rows_of_joints(const std::vector<JointPlace>& joints) {
  // A module's work in several actions is one row; the number of a line that is gone may be another
  // line's now.
  std::map<std::tuple<bool, Category, std::string>, MatchedPlace> modules, lines;
  for (const JointPlace& joint : joints) {
    if (joint.a.count == 0 && joint.b.count == 0) continue;
    const std::string& name = joint.b.count > 0 ? joint.b.name : joint.a.name;
    auto& rows = joint.key.origin.is_line() ? lines : modules;
    MatchedPlace& row = rows[{joint.key.is_gone, joint.key.category, name}];
    row.name = name;
    row.category = joint.key.category;
    add_row(row, {.name = "",
                  .category = {},
                  .a_bytes = joint.a.bytes,
                  .b_bytes = joint.b.bytes,
                  .in_both_bytes = joint.in_both_bytes,
                  .a_count = joint.a.count,
                  .b_count = joint.b.count,
                  .a_block = joint.a.count > 0 ? joint.a.largest : kNoHeldBlock,
                  .b_block = joint.b.count > 0 ? joint.b.largest : kNoHeldBlock});
  }
  std::vector<MatchedPlace> named;
  for (auto& [key, row] : modules) named.push_back(std::move(row));
  std::vector<MatchedPlace> list = folded_rows(named);
  for (auto& [key, row] : lines) list.push_back(std::move(row));
  return list;
}

bool comes_before(const MatchedPlace& a, const MatchedPlace& b) {
  if (a.changed_bytes() != b.changed_bytes()) return a.changed_bytes() > b.changed_bytes();
  if (a.in_both_bytes != b.in_both_bytes) return a.in_both_bytes > b.in_both_bytes;
  if (a.name != b.name) return is_naturally_less(a.name, b.name);
  return a.category < b.category;
}

}  // namespace

std::string blocks_text(int64_t count, int64_t bytes) {
  return fmt::format("{} block{}, {}", count, count == 1 ? "" : "s", bytes_text(bytes));
}

std::string holding_text(const MatchedPlace& place) {
  const std::string in_a = blocks_text(place.a_count, place.a_bytes);
  const std::string in_b = blocks_text(place.b_count, place.b_bytes);
  if (place.a_count == 0) return "new, " + in_b;
  if (place.b_count == 0) return "gone, " + in_a;
  return in_a + " -> " + in_b;
}

FileNames unchanged_files(const ProgramLines& a, const ProgramLines& b) {
  FileNames files = files_in_place(alike_lines(a), alike_lines(b));
  for (const auto& [name, fingerprint] : a.fingerprints) {
    const auto other = b.fingerprints.find(name);
    if (other == b.fingerprints.end()) continue;
    if (fingerprint == other->second) files.insert(name);
    if (fingerprint != other->second) files.erase(name);
  }
  return files;
}

namespace {

bool knows_categories(const std::vector<Holding>& holdings) {
  const auto is_known = [](const Holding& one) { return one.category != Category::other; };
  return std::ranges::any_of(holdings, is_known);
}

std::vector<Holding> without_categories(std::vector<Holding> holdings) {
  for (Holding& one : holdings) one.category = Category::other;
  return holdings;
}

/// Gives each row the category of most of its bytes in the run that knows categories.
void give_categories(std::vector<MatchedPlace>& rows, const std::vector<Holding>& known) {
  std::map<Origin, std::map<Category, int64_t>> bytes;
  for (const Holding& one : known) {
    bytes[origin_of(one.label, "")][one.category] +=
        std::reduce(one.sizes.begin(), one.sizes.end());
  }
  for (MatchedPlace& row : rows) {
    const auto found = bytes.find(origin_of(row.name, ""));
    if (found == bytes.end()) continue;
    row.category = std::ranges::max_element(found->second, {}, [](const auto& one) {
                     return one.second;
                   })->first;
  }
}

}  // namespace

Matching match(const std::vector<Holding>& a, const std::vector<Holding>& b,
               const ProgramLines& program_a, const ProgramLines& program_b) {
  const bool a_knows = knows_categories(a);
  if (!a.empty() && !b.empty() && a_knows != knows_categories(b)) {
    Matching matching = match(without_categories(a), without_categories(b), program_a, program_b);
    give_categories(matching.rows, a_knows ? a : b);
    return matching;
  }
  const FileNames unchanged = unchanged_files(program_a, program_b);
  const SideBlocks in_b = blocks_of(b);
  std::vector<JointPlace> joints = joints_of(moved_to(blocks_of(a), in_b, unchanged), in_b);
  for (JointPlace& joint : joints) {
    if (joint.is_on_one_side()) continue;
    pair_equal_blocks(joint);
    pair_resized_blocks(joint);
  }
  pair_places_of_one_side(joints, unchanged);
  Matching matching{.rows = rows_of_joints(joints)};
  std::ranges::stable_sort(matching.rows, comes_before);
  for (const MatchedPlace& row : matching.rows) {
    matching.in_both_bytes += row.in_both_bytes;
    matching.only_a_bytes += row.only_a_bytes();
    matching.only_b_bytes += row.only_b_bytes();
  }
  return matching;
}

}  // namespace shardlens::profiler
