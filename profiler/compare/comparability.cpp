#include "profiler/compare/comparability.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/units.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostReasons = 4;  // in one line

constexpr std::array<ObstacleInfo, kObstacles> kInfos = {{
    {"damaged", "what is missing may have been the peak"},
    {"growing", "the peak may still come"},
    {"killed", "the program did not run to its end"},
    {"newer", "this version skips some of the events"},
    {"lost", "frees or allocations are missing"},
    {"out-of-memory", "a peak at the limit does not show how much was needed"},
    {"ranks", "ranks that only one side has are not compared"},
    {"world", "a rank's share of the model differs"},
    {"device", "sizes and workspaces differ by GPU"},
    {"steps", "the peak may come in a step that only one side has"},
}};

Obstacle obstacle_of(RecordingState state) {
  switch (state) {
    case RecordingState::growing:
      return Obstacle::growing;
    case RecordingState::killed:
      return Obstacle::killed;
    case RecordingState::newer:
      return Obstacle::newer;
    case RecordingState::whole:
    case RecordingState::damaged:
      break;
  }
  return Obstacle::damaged;
}

std::string steps_text(const Side& side) {
  if (side.steps == 0) return "no step";
  return fmt::format("{} step{}, {} to {}", side.steps, side.steps == 1 ? "" : "s", side.first_step,
                     side.last_step);
}

std::string device_text(const Side& side) {
  std::string text = side.device.empty() ? "an unknown device" : side.device;
  if (!side.gpu.empty()) {
    text += fmt::format(" ({}, {})", side.gpu, bytes_text(side.capacity_bytes));
  }
  return text;
}

class Comparison {
 public:
  explicit Comparison(const RunDiff& diff) {
    for (const RankDiff& rank : diff.ranks) compare(rank);
    for (const int32_t rank : diff.only_a)
      add(Obstacle::ranks, fmt::format("only A has rank {}", rank));
    for (const int32_t rank : diff.only_b)
      add(Obstacle::ranks, fmt::format("only B has rank {}", rank));
  }

  std::vector<FoundObstacle> findings;

 private:
  void add(Obstacle obstacle, std::string text) { findings.push_back({obstacle, std::move(text)}); }

  void judge(char name, const Side& side) {
    Judgement judgement = side.judgement;
    const std::string who = fmt::format("{}, rank {}", name, side.rank);
    if (judgement.lost_events > 0) {
      add(Obstacle::lost, fmt::format("{}: {} events were lost", who, judgement.lost_events));
    }
    judgement.lost_events = 0;
    if (judgement.state == RecordingState::whole) return;
    add(obstacle_of(judgement.state), fmt::format("{}: {}", who, judgement_text(judgement)));
  }

  void differ(Obstacle obstacle, const RankDiff& rank, const std::string& a, const std::string& b) {
    add(obstacle, fmt::format("rank {}: A has {}, B {}", rank.b.rank, a, b));
  }

  void compare(const RankDiff& rank) {
    const auto& [a, b] = std::pair(rank.a, rank.b);
    judge('A', a);
    judge('B', b);
    if (a.rank != b.rank) {
      add(Obstacle::ranks, fmt::format("A is rank {}, B rank {}", a.rank, b.rank));
    }
    if (a.world_size != b.world_size) {
      differ(Obstacle::world, rank, fmt::format("{} ranks", a.world_size),
             std::to_string(b.world_size));
    }
    const bool is_same_device =
        a.device == b.device && a.gpu == b.gpu && a.capacity_bytes == b.capacity_bytes;
    if (!is_same_device) differ(Obstacle::device, rank, device_text(a), device_text(b));
    const bool has_same_steps =
        a.steps == b.steps && a.first_step == b.first_step && a.last_step == b.last_step;
    if (!has_same_steps) differ(Obstacle::steps, rank, steps_text(a), steps_text(b));
    if (a.ran_out_of_memory != b.ran_out_of_memory) {
      add(Obstacle::out_of_memory, fmt::format("rank {}: only {} ran out of memory", b.rank,
                                               a.ran_out_of_memory ? 'A' : 'B'));
    }
  }
};

std::string known_words() {
  std::string words;
  for (const ObstacleInfo& info : kInfos) {
    words += fmt::format("{}{}", words.empty() ? "" : ", ", info.word);
  }
  return words;
}

Obstacle parse_word(std::string_view word) {
  const auto found = std::ranges::find(kInfos, word, &ObstacleInfo::word);
  if (found == kInfos.end()) {
    throw std::invalid_argument(fmt::format("--allow {}: choose from {}", word, known_words()));
  }
  return static_cast<Obstacle>(found - kInfos.begin());
}

}  // namespace

const ObstacleInfo& info_of(Obstacle obstacle) { return kInfos[static_cast<size_t>(obstacle)]; }

std::vector<FoundObstacle> obstacles_between(const RunDiff& diff) {
  return Comparison(diff).findings;
}

std::vector<Obstacle> parse_allowed(const std::vector<std::string>& words) {
  std::vector<Obstacle> allowed;
  for (const std::string& word : words) allowed.push_back(parse_word(word));
  return allowed;
}

std::vector<FoundObstacle> remove_allowed(std::vector<FoundObstacle> findings,
                                          std::span<const Obstacle> allowed) {
  std::erase_if(findings, [&](const FoundObstacle& finding) {
    return std::ranges::find(allowed, finding.obstacle) != allowed.end();
  });
  return findings;
}

std::string refusal(std::span<const FoundObstacle> findings) {
  std::set<Obstacle> obstacles;
  std::string text = "not compared: ";
  for (size_t i = 0; i < findings.size(); ++i) {
    obstacles.insert(findings[i].obstacle);
    if (i < kMostReasons) text += (i == 0 ? "" : "; ") + findings[i].text;
  }
  if (findings.size() > kMostReasons) {
    text += fmt::format("; and {} more", findings.size() - kMostReasons);
  }
  std::string words;
  for (const Obstacle obstacle : obstacles) {
    words += fmt::format("{}{}", words.empty() ? "" : ",", info_of(obstacle).word);
  }
  return fmt::format("{}; record again, or compare anyway with --allow {}", text, words);
}

}  // namespace shardlens::profiler
