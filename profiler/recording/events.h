// These functions help code that walks over the events of a recording, whole or damaged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// No event is this large; one that claims to be is damaged.
constexpr int64_t kMostEventBytes = int64_t{1} << 48;

/// Returns "2.15.0" of "PyTorch 2.15.0+cu130" among the versions; "" for a program without PyTorch.
std::string pytorch_version(const Header& header);

/// Returns the part of the program that an action stands for; nothing in a recording with a
/// schedule, or for an unknown number.
std::optional<ProgramPart> program_part(const Header& header, int32_t action);

/// True for an allocation or a free.
bool is_memory(const Event& event);

/// True if the fields can be used. Damage leaves events that name no kind, space, category, phase
/// or counter, or have impossible sizes.
bool is_usable(const Event& event);

/// The actions of a schedule's text, parsed. Each line lacks its id and has single blanks:
/// "BACKWARD unit=mlp3 group=block3 bucket=0 stream=main ...".
class ActionLines {
 public:
  explicit ActionLines(const std::string& schedule);

  /// Returns the lines in the order of the text.
  const std::vector<std::string>& lines() const { return lines_; }
  /// Returns the index in lines() of the action with this id. A line that the schedule repeats has
  /// many ids, one for each round. Returns nothing if the schedule has no such id.
  std::optional<size_t> index_of(int32_t id) const;
  /// Returns that line, with the microbatch that the id means; an empty text if there is no such
  /// id.
  std::string line(int32_t id) const;
  /// Returns what the action does and to what: that line up to its stream.
  std::string words(int32_t id) const;

 private:
  int64_t id_of(size_t index) const;
  void read_repetition(const std::string& field);

  std::vector<std::string> lines_;
  int64_t begin_ = 0;  // of the repeated lines, as are `length_` and `times_`
  int64_t length_ = 0;
  int64_t times_ = 1;
  int64_t microbatches_ = 0;  // in a round
};

}  // namespace shardlens::profiler
