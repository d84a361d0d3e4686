// The addresses of new segments in AllocatorModel: see [Note: what the order of addresses is] in
// model.h. An address is a function of the segment's number, so that a replay can be repeated.
#pragma once

#include <cstdint>
#include <functional>

#include "planner/simulate/allocator/results.h"

namespace shardlens::planner {

/// Returns where the segment begins. Only the order of addresses counts; no two segments that exist
/// at one time may have the same, and none may be 0. An empty function stands for falling
/// addresses.
using SegmentAddresses = std::function<uint64_t(SegmentIndex)>;

/// Places each new segment above all earlier ones.
inline SegmentAddresses rising_addresses() {
  return [](SegmentIndex segment) { return uint64_t{1} + segment; };
}

/// Places new segments anywhere among the earlier ones, all orders being equally likely. The same
/// seed gives the same order.
inline SegmentAddresses random_addresses(uint64_t seed) {
  // SplitMix64: as each step can be undone, two segments never have the same address.
  const auto mixed = [](uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
  };
  const uint64_t start = mixed(seed + 0x9e3779b97f4a7c15U);
  return [mixed, start](SegmentIndex segment) {
    return mixed(start + uint64_t{segment} * 0x9e3779b97f4a7c15U);
  };
}

}  // namespace shardlens::planner
