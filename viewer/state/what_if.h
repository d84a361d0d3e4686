// What would be if a strategy were run otherwise: a configuration, and the controls that turn it.
// Plain values: who plans it and who draws it is elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/model/planned_run.h"

namespace shardlens::viewer {

struct WhatIf {
  std::string of;      // the strategy that it began with
  std::string base;    // that one's config.json
  std::string config;  // as it is now
  std::string gpu;     // as in PlanRequest

  bool operator==(const WhatIf&) const = default;
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
constexpr std::array<std::string_view, kControls> kControlNames = {
    "batch",       "ranks (W)",    "accumulate", "strategy",  "reshard",
    "param dtype", "reduce dtype", "offload",    "recompute", "wrap"};

/// What a control can be set to. What the configuration has is always among it.
struct Choices {
  std::vector<std::string> words;
  size_t chosen = 0;
  bool is_number = false;  // in rising order: a slider
};
Choices choices_of(const WhatIf& what_if, Control control);

void choose(WhatIf& what_if, Control control, size_t choice);
/// The next or the previous choice: of numbers as far as there are, of words round in a circle.
void turn(WhatIf& what_if, Control control, int direction);

WhatIf what_if_of(const PlanRequest& request);
/// Named after what it began with and what has changed since: "keep: batch 128, offload all".
PlanRequest request_of(const WhatIf& what_if);

}  // namespace shardlens::viewer
