// Tells a leak from memory that settles, alternates or is given back: by the bytes that are held at
// successive moments of a program.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace shardlens::profiler {

/// The bytes held from a moment on, up to that of the next entry. Moments are numbered from 0.
struct HeldBytes {
  int64_t moment = 0;
  int64_t bytes = 0;
};

struct SteadyRise {
  int64_t first = 0;  // moment of the first rise
  int64_t last = 0;
  int64_t every = 1;  // moments between rises; 1 also if they are irregular
  double bytes_per_moment = 0;
};

/// [Note: a steady rise]
/// Only what is never given back counts: the floor of a moment is the least that is held from there
/// on. A *rise* is a moment with a higher floor than the one before. A program grows if its rises
/// - are four at least, always the same number of moments apart, and the next was not due yet; or
/// - are eight at least at irregular moments, as often in one half as in the other, and
///   mostly by the same amounts. A cache by shape fills more and more slowly, and by another amount
///   for each shape.
/// Rises at the start may be left out, if those that remain are eight or span half of all moments.
/// Memory that also falls by half of that is a sawtooth, such as what an epoch or a
/// request collects, of which the last tooth has not ended.
std::optional<SteadyRise> find_steady_rise(const std::vector<HeldBytes>& held, int64_t last_moment);

}  // namespace shardlens::profiler
