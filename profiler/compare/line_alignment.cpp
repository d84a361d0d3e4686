#include "profiler/compare/line_alignment.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

namespace shardlens::profiler {

namespace {

constexpr size_t kMostCells = 1'000'000;
constexpr double kSameFunction = 1;       // for a pair of lines in functions of the same name
constexpr double kRenamedFunction = 0.5;  // and in functions of different names
constexpr double kSameBlocks = 0.5;       // added if all their blocks have the same sizes
constexpr double kShift = 0.25;           // subtracted if the distance differs from the last pair's
constexpr double kMostlyTheSame = 0.5;    // of the bytes

using Lines = std::vector<const ProgramLine*>;
using LinePairs = std::map<const ProgramLine*, const ProgramLine*>;

/// Returns the bytes of the blocks that both lists have; both are in descending order.
int64_t common_bytes(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  int64_t bytes = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) bytes += a[i];
    const bool takes_a = a[i] >= b[j];
    const bool takes_b = b[j] >= a[i];
    i += takes_a ? 1 : 0;
    j += takes_b ? 1 : 0;
  }
  return bytes;
}

bool share_a_category(const ProgramLine& a, const ProgramLine& b) {
  return std::ranges::any_of(a.sizes, [&](const auto& one) { return b.sizes.contains(one.first); });
}

/// Returns the share, 0 to 1, of two lines' bytes in blocks of the same category and size.
double likeness(const ProgramLine& a, const ProgramLine& b) {
  int64_t common = 0;
  for (const auto& [category, sizes] : a.sizes) {
    const auto other = b.sizes.find(category);
    if (other != b.sizes.end()) common += common_bytes(sizes, other->second);
  }
  const int64_t most = std::max({a.bytes(), b.bytes(), int64_t{1}});
  return static_cast<double>(common) / static_cast<double>(most);
}

std::set<std::string> functions_of(const Lines& lines) {
  std::set<std::string> functions;
  for (const ProgramLine* line : lines) functions.insert(line->function);
  return functions;
}

/// Aligns the lines of one file in two versions, each in order of their numbers.
class FileAlignment {
 public:
  FileAlignment(const Lines& a, const Lines& b)
      : a_(a), b_(b), functions_a_(functions_of(a)), functions_b_(functions_of(b)) {}

  void add_to(LinePairs& found) {
    const bool is_unedited = std::ranges::equal(a_, b_, {}, place_of, place_of);
    if (is_unedited || a_.size() * b_.size() > kMostCells) return add_equal_lines(found);
    cells_.resize(a_.size() * b_.size());
    best_.resize((a_.size() + 1) * (b_.size() + 1), kNone);
    for (size_t i = 0; i < a_.size(); ++i) {
      for (size_t j = 0; j < b_.size(); ++j) fill(i, j);
    }
    for (size_t cell = best_.back(); cell != kNone; cell = cells_[cell].before) {
      found[a_[cell / b_.size()]] = b_[cell % b_.size()];
    }
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  /// The best alignment that ends with a pair; `score` is 0 if the pair cannot be one.
  struct Cell {
    double score = 0;
    size_t before = kNone;
  };

  static std::pair<int64_t, std::string> place_of(const ProgramLine* line) {
    return {line->line, line->function};
  }

  void add_equal_lines(LinePairs& found) const {
    std::map<std::pair<int64_t, std::string>, const ProgramLine*> lines;
    for (const ProgramLine* line : b_) lines[place_of(line)] = line;
    for (const ProgramLine* line : a_) {
      const auto same = lines.find(place_of(line));
      if (same != lines.end()) found[line] = same->second;
    }
  }

  /// Returns the score of a pair of lines; 0 if they cannot be the same line.
  double worth(const ProgramLine& a, const ProgramLine& b) const {
    if (a.function == b.function) {
      return share_a_category(a, b) ? kSameFunction + kSameBlocks * likeness(a, b) : 0;
    }
    const bool is_known = functions_b_.contains(a.function) || functions_a_.contains(b.function);
    const double alike = is_known ? 0 : likeness(a, b);
    return alike < kMostlyTheSame ? 0 : kRenamedFunction + kSameBlocks * alike;
  }

  size_t& best(size_t i, size_t j) { return best_[i * (b_.size() + 1) + j]; }
  double score_of(size_t cell) const { return cell == kNone ? 0 : cells_[cell].score; }

  /// Appends a pair to the best alignment before it, and notes the best one up to this cell.
  void fill(size_t i, size_t j) {
    const double own = worth(*a_[i], *b_[j]);
    const size_t index = i * b_.size() + j;
    size_t most =
        score_of(best(i, j + 1)) >= score_of(best(i + 1, j)) ? best(i, j + 1) : best(i + 1, j);
    if (own > 0) {
      cells_[index] = joined(own, i, j);
      last_at_[distance(i, j)] = index;
      if (cells_[index].score > score_of(most)) most = index;
    }
    best(i + 1, j + 1) = most;
  }

  int64_t distance(size_t i, size_t j) const { return b_[j]->line - a_[i]->line; }

  Cell joined(double own, size_t i, size_t j) {
    const size_t before = best(i, j);
    const bool is_first_unmoved = before == kNone && distance(i, j) == 0;
    const Cell shifted{own + score_of(before) - (is_first_unmoved ? 0 : kShift), before};
    // The last pair at this distance is before this one, unless two functions share a line.
    const auto same = last_at_.find(distance(i, j));
    if (same == last_at_.end()) return shifted;
    const size_t last = same->second;
    if (last / b_.size() >= i || last % b_.size() >= j) return shifted;
    const Cell unshifted{own + cells_[last].score, last};
    return unshifted.score >= shifted.score ? unshifted : shifted;
  }

  const Lines& a_;
  const Lines& b_;
  std::set<std::string> functions_a_;
  std::set<std::string> functions_b_;
  std::vector<Cell> cells_;            // a row for each line of a
  std::vector<size_t> best_;           // the last cell of the best alignment of i and j lines
  std::map<int64_t, size_t> last_at_;  // cells by distance
};

using Files = std::map<std::string, Lines>;

Files files_of(const std::vector<ProgramLine>& lines) {
  Files files;
  for (const ProgramLine& line : lines) files[line.file].push_back(&line);
  for (auto& [name, of_file] : files) {
    std::ranges::stable_sort(of_file, {}, [](const ProgramLine* line) { return line->line; });
  }
  return files;
}

std::map<std::pair<std::string, Category>, int64_t> bytes_by_function(const Lines& lines) {
  std::map<std::pair<std::string, Category>, int64_t> bytes;
  for (const ProgramLine* line : lines) {
    for (const auto& [category, sizes] : line->sizes) {
      bytes[{line->function, category}] += std::reduce(sizes.begin(), sizes.end());
    }
  }
  return bytes;
}

/// Returns the bytes of functions that both files have, if these are at least half of the smaller
/// file's bytes; else 0.
int64_t likeness_of_files(const Lines& a, const Lines& b) {
  const auto in_a = bytes_by_function(a);
  const auto in_b = bytes_by_function(b);
  const auto sum = [](const auto& functions) {
    int64_t bytes = 0;
    for (const auto& [function, own] : functions) bytes += own;
    return bytes;
  };
  int64_t common = 0;
  for (const auto& [function, bytes] : in_a) {
    const auto other = in_b.find(function);
    if (other != in_b.end()) common += std::min(bytes, other->second);
  }
  return 2 * common >= std::min(sum(in_a), sum(in_b)) ? common : 0;
}

/// Pairs the files that only one side has, the most alike first.
std::vector<std::pair<std::string, std::string>> renamed_files(const Files& a, const Files& b) {
  struct Candidate {
    int64_t bytes = 0;
    std::string a;
    std::string b;
  };
  std::vector<Candidate> candidates;
  for (const auto& [name_a, lines_a] : a) {
    if (b.contains(name_a)) continue;
    for (const auto& [name_b, lines_b] : b) {
      const int64_t bytes = a.contains(name_b) ? 0 : likeness_of_files(lines_a, lines_b);
      if (bytes > 0) candidates.push_back({bytes, name_a, name_b});
    }
  }
  std::ranges::stable_sort(candidates, std::greater(), &Candidate::bytes);
  std::set<std::string> taken_a, taken_b;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Candidate& one : candidates) {
    if (taken_a.contains(one.a) || taken_b.contains(one.b)) continue;
    taken_a.insert(one.a);
    taken_b.insert(one.b);
    pairs.emplace_back(one.a, one.b);
  }
  return pairs;
}

}  // namespace

int64_t ProgramLine::bytes() const {
  int64_t bytes = 0;
  for (const auto& [category, own] : sizes) bytes += std::reduce(own.begin(), own.end());
  return bytes;
}

std::set<std::string> files_in_place(const std::vector<ProgramLine>& a,
                                     const std::vector<ProgramLine>& b) {
  const Files in_a = files_of(a);
  const Files in_b = files_of(b);
  std::set<std::string> found;
  for (const auto& [name, lines] : in_a) {
    const auto same = in_b.find(name);
    if (same == in_b.end()) continue;
    LinePairs pairs;
    FileAlignment(lines, same->second).add_to(pairs);
    const auto last = std::ranges::max_element(
        pairs, {}, [](const auto& pair) { return std::pair(pair.first->line, pair.second->line); });
    if (last != pairs.end() && last->first->line == last->second->line) found.insert(name);
  }
  return found;
}

std::vector<std::optional<size_t>> align_lines(const std::vector<ProgramLine>& a,
                                               const std::vector<ProgramLine>& b) {
  const Files in_a = files_of(a);
  const Files in_b = files_of(b);
  LinePairs found;
  for (const auto& [name, lines] : in_a) {
    const auto same = in_b.find(name);
    if (same != in_b.end()) FileAlignment(lines, same->second).add_to(found);
  }
  for (const auto& [name_a, name_b] : renamed_files(in_a, in_b)) {
    FileAlignment(in_a.at(name_a), in_b.at(name_b)).add_to(found);
  }
  std::vector<std::optional<size_t>> partners;
  for (const ProgramLine& line : a) {
    const auto partner = found.find(&line);
    partners.push_back(partner == found.end() ? std::nullopt
                                              : std::optional<size_t>(partner->second - b.data()));
  }
  return partners;
}

}  // namespace shardlens::profiler
