#include "profiler/exchange/alive_at.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <stdexcept>
#include <tuple>

#include "profiler/exchange/event_source.h"
#include "profiler/exchange/lifetimes.h"
#include "profiler/exchange/timeline.h"
#include "profiler/recording/events.h"

namespace shardlens::profiler {

namespace {

constexpr double kMostSeconds = 1e9;

/// Returns how many of the changes lead to the moment.
size_t changes_until(const Profile& profile, const Lifetimes& lives, const AliveMoment& moment) {
  if (moment.at == AliveMoment::Kind::end) return lives.changes.size();
  size_t until = 0;
  int64_t bytes = 0;
  int64_t most = 0;
  for (size_t i = 0; i < lives.changes.size(); ++i) {
    const LifeChange& change = lives.changes[i];
    const int64_t given = lives.lives[change.life].given_bytes;
    bytes += change.begins ? given : -given;
    const bool is_due = moment.at == AliveMoment::Kind::time
                            ? profile.events[change.event].time_ns <= moment.time_ns
                            : bytes > most;
    if (is_due) until = i + 1;
    most = std::max(most, bytes);
  }
  return until;
}

/// Returns the phase of every event up to `end`.
std::vector<Phase> phases_until(const Profile& profile, size_t end) {
  std::vector<Phase> phases;
  phases.reserve(end);
  Phase phase = Phase::starting;
  for (size_t i = 0; i < end; ++i) {
    const Event& event = profile.events[i];
    const bool begins = event.kind == EventKind::phase && is_usable(event);
    if (begins) phase = static_cast<Phase>(event.value);
    phases.push_back(phase);
  }
  return phases;
}

int64_t step_before(const Profile& profile, size_t end) {
  for (size_t i = end; i-- > 0;) {
    if (profile.events[i].kind == EventKind::step) return profile.events[i].value;
  }
  return -1;
}

}  // namespace

AliveMoment parse_moment(const std::string& text) {
  if (text == "peak") return {};
  if (text == "end") return {.at = AliveMoment::Kind::end};
  double seconds = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_number = error == std::errc() && rest == text.data() + text.size();
  if (!is_number || !(seconds >= 0 && seconds <= kMostSeconds)) {
    throw std::invalid_argument(
        fmt::format("--at {}: give peak, end, or the seconds since the recording began", text));
  }
  return {.at = AliveMoment::Kind::time, .time_ns = std::llround(seconds * 1e9)};
}

AliveBlocks alive_at(const Profile& profile, const AliveMoment& moment) {
  const Lifetimes lives = lifetimes_of(profile, main_space_of(events_of(profile)));
  const size_t until = changes_until(profile, lives, moment);
  AliveBlocks alive;
  if (until == 0) return alive;
  const size_t end_event = lives.changes[until - 1].event + size_t{1};
  const std::vector<Phase> phases = phases_until(profile, end_event);
  std::vector<bool> lives_now(lives.lives.size());
  for (size_t i = 0; i < until; ++i) lives_now[lives.changes[i].life] = lives.changes[i].begins;
  std::map<std::tuple<uint32_t, int32_t, Phase, Category>, AliveGroup> groups;
  for (size_t i = 0; i < lives_now.size(); ++i) {
    if (!lives_now[i]) continue;
    const Lifetime& life = lives.lives[i];
    const Event& event = profile.events[life.begin];
    const Phase phase = phases[life.begin];
    AliveGroup& group = groups[{event.label, event.action, phase, life.category}];
    group = {.label = event.label,
             .action = event.action,
             .phase = phase,
             .category = life.category,
             .bytes = group.bytes + life.given_bytes,
             .count = group.count + 1};
    alive.bytes += life.given_bytes;
    ++alive.count;
  }
  for (const auto& [key, group] : groups) alive.groups.push_back(group);
  alive.time_ns = profile.events[end_event - 1].time_ns;
  alive.step = step_before(profile, end_event);
  return alive;
}

}  // namespace shardlens::profiler
