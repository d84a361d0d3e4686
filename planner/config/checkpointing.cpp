#include "planner/config/checkpointing.h"

#include <fmt/format.h>

#include <stdexcept>

namespace shardlens::planner {

namespace {

/// Returns the reason why a run has nothing to keep in checkpoints; nullptr if it has something.
const char* reason_for_no_checkpoint(const Config& config) {
  if (device_of(config).kind == DeviceKind::null) return "a null device keeps no values";
  const bool is_alone = config.solo_rank >= 0 && world_size_of(config) > 1;
  return is_alone ? "a solo rank has no values of the other ranks" : nullptr;
}

}  // namespace

Checkpointing checkpointing_of(const Config& config) {
  const std::string& every = config.checkpoint_every;
  const int64_t steps = count_named(every);
  const bool is_word = every == "auto" || every == "epoch" || every == "none";
  if (!is_word && steps == 0) {
    throw std::invalid_argument(fmt::format(
        "--checkpoint-every {}: not a valid value; give auto, epoch, none or a number of steps",
        every));
  }
  const char* const reason = reason_for_no_checkpoint(config);
  const bool is_asked = every == "epoch" || steps > 0;
  if (is_asked && reason != nullptr) {
    throw std::invalid_argument(
        fmt::format("--checkpoint-every {}: {}; give --checkpoint-every none", every, reason));
  }
  const bool is_due = every == "auto" && reason == nullptr && config.data != "synthetic";
  return {.wanted = is_asked || is_due,
          .every_steps = steps,
          .asynchronous = config.checkpoint_async == Switch::on,
          .keep = config.keep,
          .by = config.keep_by};
}

}  // namespace shardlens::planner
