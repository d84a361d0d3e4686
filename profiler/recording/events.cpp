#include "profiler/recording/events.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

namespace shardlens::profiler {

std::string pytorch_version(const Header& header) {
  constexpr std::string_view kName = "PyTorch ";
  const size_t name = header.libraries.find(kName);
  if (name == std::string::npos) return {};
  const size_t begin = name + kName.size();
  const size_t end = header.libraries.find_first_not_of("0123456789.", begin);
  return header.libraries.substr(begin, end - begin);
}

std::optional<ProgramPart> program_part(const Header& header, int32_t action) {
  const bool has_schedule = !header.train.empty() || !header.evaluate.empty();
  if (has_schedule || action < 0 || action >= kProgramParts) return std::nullopt;
  return static_cast<ProgramPart>(action);
}

bool is_memory(const Event& event) {
  return event.kind == EventKind::alloc || event.kind == EventKind::free;
}

bool is_usable(const Event& event) {
  if (static_cast<int>(event.kind) >= kEventKinds || static_cast<int>(event.space) >= kSpaces ||
      static_cast<int>(event.category) >= kCategories) {
    return false;
  }
  const auto is_below = [&](int64_t limit) { return event.value >= 0 && event.value < limit; };
  switch (event.kind) {
    case EventKind::alloc:
    case EventKind::free:
    case EventKind::out_of_memory:
    case EventKind::hold:
      return is_below(kMostEventBytes);
    case EventKind::phase:
      return is_below(kPhases);
    case EventKind::counter:
      return event.address < kCounters;
    case EventKind::recategorise:
    case EventKind::step:
    case EventKind::action_begin:
    case EventKind::action_end:
    case EventKind::release:
    case EventKind::module:
      return true;
  }
  return false;
}

ActionLines::ActionLines(const std::string& schedule) {
  std::istringstream text(schedule);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "schedule") {
      for (std::string field; words >> field;) read_repetition(field);
    }
    if (first != std::to_string(id_of(lines_.size()))) continue;
    std::string rest;
    for (std::string word; words >> word;) rest += (rest.empty() ? "" : " ") + word;
    const auto index = static_cast<int64_t>(lines_.size());
    const bool is_in_round = index >= begin_ && index < begin_ + length_;
    if (is_in_round && rest.starts_with("LOAD_INPUT")) ++microbatches_;
    lines_.push_back(std::move(rest));
  }
}

/// Reads the field "repeat=BEGIN+LENGTH*TIMES"; any other field changes nothing.
void ActionLines::read_repetition(const std::string& field) {
  std::istringstream text(field);
  std::string key(std::string_view("repeat=").size(), ' ');
  text.read(key.data(), static_cast<std::streamsize>(key.size()));
  if (key != "repeat=") return;
  int32_t begin = 0, length = 0, times = 0;
  char plus = 0, star = 0;
  if (!(text >> begin >> plus >> length >> star >> times)) return;
  if (plus != '+' || star != '*' || begin < 0 || length < 1 || times < 2) return;
  begin_ = begin;
  length_ = length;
  times_ = times;
}

int64_t ActionLines::id_of(size_t index) const {
  const auto at = static_cast<int64_t>(index);
  return at < begin_ + length_ ? at : at + (times_ - 1) * length_;
}

std::optional<size_t> ActionLines::index_of(int32_t id) const {
  if (id < 0) return std::nullopt;
  const int64_t end = begin_ + times_ * length_;  // of the last round
  int64_t index = id;
  if (id >= end) index = id - (times_ - 1) * length_;
  if (id >= begin_ && id < end) index = begin_ + (id - begin_) % length_;
  if (index >= static_cast<int64_t>(lines_.size())) return std::nullopt;
  return static_cast<size_t>(index);
}

std::string ActionLines::line(int32_t id) const {
  const std::optional<size_t> index = index_of(id);
  if (!index) return {};
  const std::string& line = lines_[*index];
  const int64_t later = id - id_of(*index);
  constexpr std::string_view kKey = " microbatch=";
  const size_t at = line.find(kKey);
  if (later == 0 || at == std::string::npos) return line;
  const size_t number = at + kKey.size();
  const size_t end = std::min(line.find(' ', number), line.size());
  const int64_t first = std::atoll(line.substr(number, end - number).c_str());
  return line.substr(0, number) + std::to_string(first + later / length_ * microbatches_) +
         line.substr(end);
}

std::string ActionLines::words(int32_t id) const {
  std::string words = line(id);
  words.resize(std::min(words.find(" stream="), words.size()));
  return words;
}

}  // namespace shardlens::profiler
