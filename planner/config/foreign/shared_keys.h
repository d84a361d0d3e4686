// Rules that several formats share: keys that are read in one way, and reasons to ignore one.
// Private to planner/config/foreign/.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "planner/config/foreign/reading.h"

namespace shardlens::planner {

inline void read_batch(ForeignReader& r) { r.set("batch", std::to_string(r.count())); }
inline void read_accumulation(ForeignReader& r) { r.set("accumulate", std::to_string(r.count())); }
inline void read_lr(ForeignReader& r) { r.set("lr", fmt::format("{}", r.number())); }
inline void read_decay(ForeignReader& r) { r.set("weight-decay", fmt::format("{}", r.number())); }
inline void read_clipping(ForeignReader& r) { r.set("clip-norm", fmt::format("{}", r.number())); }

/// Reads ZeRO's stage.
inline void read_stage(ForeignReader& r) {
  const int64_t stage = r.count();
  if (stage > 3) r.refuse("ZeRO has stages 0 to 3; give one of them");
  r.set("strategy", stage == 0 ? "ddp" : "fsdp");
  if (stage > 0) r.set("reshard-after-forward", stage == 3 ? "true" : "false");
}

/// Offloads ZeRO's parameters to the host, together with the optimizer if the key `optimizer` says
/// so.
inline void offload_parameters(ForeignReader& r, std::string_view optimizer) {
  const ForeignReader::Json* const other = r.find(optimizer);
  r.set("offload", other != nullptr && *other == "cpu" ? "all" : "params");
}

constexpr std::string_view kPrints = "it only prints or logs";
constexpr std::string_view kFiles = "it only changes how files are loaded or saved";
constexpr std::string_view kRate = "the learning rate is constant here";
constexpr std::string_view kFixed = "no effect on memory; PyTorch's default is used";
constexpr std::string_view kOfOthers = "only applies to a parallelism that is not used";

}  // namespace shardlens::planner
