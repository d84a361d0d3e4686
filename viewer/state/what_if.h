// Turns a run into another one that was not run: a configuration, and the controls that change it.
// These are plain values; other code plans and draws them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "viewer/model/planned_run.h"

namespace shardlens::viewer {

struct WhatIfEdit {
  std::string of;      // the run that it began with
  std::string base;    // that run's config.json
  std::string config;  // the changed one
  std::string gpu;     // as in PlanRequest

  // These belong to a recorded Python program.
  std::string recording{};            // rankR.slp; empty: there are no levers
  std::vector<std::string> levers{};  // that are marked, as "recompute=full"
  size_t lever_row = 0;               // the chosen one of the panel's rows

  bool operator==(const WhatIfEdit&) const = default;
};

enum class Control : uint8_t {
  batch,
  world,
  accumulate,
  strategy,
  reshard,
  param_dtype,
  reduce_dtype,
  offload,
  recompute,
  wrap,
};
constexpr int kControls = 10;
constexpr auto choice_words(Control) {
  return words("batch", "ranks (W)", "accumulate", "strategy", "reshard", "param dtype",
               "reduce dtype", "offload", "recompute", "wrap");
}
static_assert(kWords<Control>.size() == kControls);

/// Says what can be asked about a run: another plan; for a recorded program, which decides itself
/// what it allocates, another recording; or nothing, if it is unknown how the run was made.
enum class WhatIfKind : uint8_t { plan, recording, nothing };
WhatIfKind what_if_kind_of(const WhatIfEdit& what_if);

/// Returns the command line that records a program with the changes: another number of ranks, or
/// another batch in the program's own arguments, and the marked levers.
std::string record_line(const WhatIfEdit& what_if);

/// Marks a lever, or takes the mark away. Marks of levers that contradict it go, too.
void toggle_lever(WhatIfEdit& what_if, const std::string& lever);
/// Does so for the chosen one of the panel's rows; a row with several levers takes the place of all
/// marks.
void mark_lever(WhatIfEdit& what_if, const std::vector<std::string>& rows);
/// Chooses the next or the previous row.
void choose_lever(WhatIfEdit& what_if, const std::vector<std::string>& rows, int direction);

/// Returns in a line what a control changes.
std::string_view control_effect(Control control);

/// The values that a control can be set to; empty if the run lacks the control. The configuration's
/// own value is always among them.
struct Choices {
  std::vector<std::string> words;
  size_t chosen = 0;
  bool is_number = false;  // words are in rising order: a slider
};
Choices choices_of(const WhatIfEdit& what_if, Control control);

void choose(WhatIfEdit& what_if, Control control, size_t choice);
/// Chooses the next or the previous value: numbers stop at their ends, words wrap around.
void turn(WhatIfEdit& what_if, Control control, int direction);

WhatIfEdit what_if_of(const PlanRequest& request);
/// Returns the configuration to plan, named after the run it began with and the changes since:
/// "keep: batch 128, offload all".
PlanRequest request_of(const WhatIfEdit& what_if);

}  // namespace shardlens::viewer
