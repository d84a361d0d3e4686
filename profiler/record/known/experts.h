// Makes known which experts tokens choose if their scores are unknown, so that counts, splits and
// buffers follow from the choice.
//
// How. A router asks topk for a few of at most kMostExperts scores, in the last dimension. If the
// scores are unknown, the indices become those of `--routing` (routing.h). Everything made from
// them is computed like other known values, even if it is larger than those may be. The chosen
// routing is reported once indices, or values made from them, select, count or sort something; a
// metric that compares them with labels does not.
//
// Limits. Routers that use no topk, such as argmax, are not recognised.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string_view>

#include "profiler/null_device/driver/known_memory.h"

namespace shardlens::profiler {

inline constexpr int64_t kMostExperts = 1024;

/// True if an operator, named without "aten::", places something by the values of its arguments.
bool places_by_values(std::string_view name);

/// Sets the values of the indices that a call of topk returned, if it was a router's. `arguments`
/// are the call's. Returns false if it was not.
bool choose(KnownMemory& memory, c10::ArrayRef<c10::IValue> arguments, const at::Tensor& indices);

/// Notes that an operator placed something by indices that were chosen here.
void note_placed();

/// Notes a group of `ranks` ranks whose members send each other what was chosen.
void note_exchange(int64_t ranks);

}  // namespace shardlens::profiler

extern "C" {
/// Says how to choose: profiler/record/known/routing.h has the kinds and their numbers.
void shardlens_set_routing(int32_t kind, double factor);

/// Says that this rank is number `rank` of the `ranks` ranks that share the experts.
void shardlens_place_experts(int64_t rank, int64_t ranks);

/// Returns 0 if no choice has placed anything; else 1, or 2 if experts are exchanged in groups of
/// another size than shardlens_place_experts was given.
int32_t shardlens_routing_used();
}
