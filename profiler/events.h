// What everybody needs who walks over the events of a recording, whole or damaged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/profile.h"

namespace shardlens::profiler {

/// No event has as many; what says so is damaged.
constexpr int64_t kMostEventBytes = int64_t{1} << 48;

/// An allocation or a free.
bool is_memory(const Event& event);

/// Whether the fields can be used: damage leaves events that name no kind, space, category, phase
/// or counter, or have impossible sizes.
bool is_usable(const Event& event);

/// The actions of a schedule's text, each line without the id and with single blanks:
/// "BACKWARD unit=mlp3 group=block3 bucket=0 stream=main ...".
class ActionLines {
 public:
  explicit ActionLines(const std::string& schedule);

  /// As they stand in the text.
  const std::vector<std::string>& lines() const { return lines_; }
  /// The line of the action with this id: one that is done again has many ids. Nothing where the
  /// schedule has none.
  std::optional<size_t> index_of(int32_t id) const;
  /// That line, with the microbatch that the id means; empty where there is none.
  std::string line(int32_t id) const;

 private:
  int64_t id_of(size_t index) const;
  void read_repetition(const std::string& field);

  std::vector<std::string> lines_;
  int64_t begin_ = 0;  // of the lines that are done again, as `length_` and `times_` say
  int64_t length_ = 0;
  int64_t times_ = 1;
  int64_t microbatches_ = 0;  // in a round
};

}  // namespace shardlens::profiler
