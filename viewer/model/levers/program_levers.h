// The levers of a recorded Python program, with the peaks that are known, for the what-if panel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fault.h"
#include "profiler/record/search/recorded_program.h"

namespace shardlens::viewer {

enum class LeverState : uint8_t {
  unknown,
  waiting,  // until the one before it has ended
  running,
  measured,  // the program was recorded with them to its end
  full,      // memory ran out
  failed,    // the program failed with them, or could not be started
  idle       // one of them does not apply
};

/// A set of levers, which has a line in the panel.
struct LeverRow {
  std::vector<profiler::Lever> levers{};  // none: the program as it is, to find out which apply
  LeverState state = LeverState::unknown;
  std::string why = {};                // full, failed or idle, in one line
  std::string folder = {};             // of the recording, if there is one
  profiler::KeptVerdict verdict = {};  // of that
  double seconds = 0;                  // that it runs
  double expected_seconds = 0;         // 0: unknown

  /// Returns "recompute=full,optimizer=fused", or "which apply".
  std::string name() const;
};

/// All that the panel says about a program.
struct ProgramLevers {
  profiler::RecordedProgram program{};
  Problem obstacle{};                          // why nothing can be run; nothing: it can
  std::optional<profiler::KeptVerdict> now{};  // of the program as it was recorded
  int64_t capacity_bytes = 0;                  // of its GPU; 0: unknown
  std::vector<LeverRow> rows{};

  /// Returns the row of a set, whatever the order of its levers; null if it has none.
  const LeverRow* find(const std::vector<profiler::Lever>& levers) const;
  /// Puts a row in the place of that of the same set, in whose order it names them; a new one goes
  /// before those that do not apply.
  void put(LeverRow row);
  /// Returns true if the recorded program, changed as in a row, fits its GPU.
  bool fits(const LeverRow& row) const;
  /// Returns how much more of the GPU it takes than as recorded; nothing if either is unknown.
  std::optional<int64_t> change_bytes(const LeverRow& row) const;
  /// Returns what a row says beside its peaks: what a lever does and costs, or how it ended.
  std::string details(const LeverRow& row) const;
};

/// Reads what a recording and the folder of its variants say. Levers that do not apply come last;
/// if it is unknown which apply, a row comes first that finds out. Throws as
/// profiler::read_recorded_program does.
ProgramLevers levers_of(const std::string& recording);

/// Sorts out how a program that recorded a row has ended: `text` is what it printed.
LeverRow ended_row(const ProgramLevers& levers, const LeverRow& row, int exit_code,
                   const std::string& text);

}  // namespace shardlens::viewer
