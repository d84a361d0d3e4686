// Makes known which experts tokens choose by scores that nobody knows, so that counts, splits and
// buffers follow from it.
//
// How. A router asks topk for a few of at most kMostExperts scores, the last dimension. Where the
// scores are not known the indices become those of `--routing` (routing.h), and whatever is made of
// them is computed like other known values, also where it is larger than these may be. That routing
// was chosen is told once indices, or what was made of them, select, count or sort something: a
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

/// True for the operator, of which the name behind "aten::" is given, if it places something by the
/// values of its arguments.
bool places_by_values(std::string_view name);

/// Gives the indices that a call of topk has returned their values, if they are a router's.
/// `arguments` are the call's. Returns false if not.
bool choose(KnownMemory& memory, c10::ArrayRef<c10::IValue> arguments, const at::Tensor& indices);

/// Notes that an operator placed something by indices that were chosen here.
void note_placed();

/// Notes a group of so many ranks whose members send each other what was chosen.
void note_exchange(int64_t ranks);

}  // namespace shardlens::profiler

extern "C" {
/// Says how to choose: profiler/record/known/routing.h has the kinds, by their numbers.
void shardlens_set_routing(int32_t kind, double factor);

/// Says that this rank is the `rank`-th of so many that share the experts.
void shardlens_place_experts(int64_t rank, int64_t ranks);

/// Returns 0 if nothing was chosen that anything was placed by; else 1, or 2 if experts are
/// exchanged in groups of another size than shardlens_place_experts has said.
int32_t shardlens_routing_used();
}
