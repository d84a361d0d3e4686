// Damage to a recording is never silent: every reader shows the numbers of the whole recording,
// says that the recording is damaged, or refuses it.

#include "profiler/recording/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "planner/outside_memory.h"
#include "profiler/commands/commands.h"
#include "profiler/commands/gate.h"
#include "profiler/file/writer.h"
#include "profiler/report/recording_report.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"
#include "viewer/model/run.h"
#include "viewer/page/export_page.h"
#include "viewer/scene/panels/comparison_report.h"
#include "viewer/scene/presenter.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;
using profiler::Event;
using profiler::PeakBound;
using profiler::Profile;
using profiler::RankReport;
using profiler::RecordingState;

/// Large enough for several snapshots, small enough to be read thousands of times. On a GPU, with
/// the facts that a calibration needs.
Profile profile_of_gpu() {
  Profile profile = tests::synthetic_profile({.steps = 3, .layers = 2, .evaluate_every = 0});
  profile.header.device = "cuda";
  profile.header.config = "{}";
  profile.header.train =
      "schedule 2 strategy=fsdp world=8 shards=8 regather=0 microbatches=1 "
      "reduce=fp32\nunit 0 mlp0\n";
  const auto count = [](profiler::Counter counter, int64_t value) {
    return Event{.address = static_cast<uint64_t>(counter),
                 .value = value,
                 .kind = profiler::EventKind::counter};
  };
  const std::array counters = {count(profiler::Counter::device_before, 100),
                               count(profiler::Counter::device_start, 600),
                               count(profiler::Counter::device_used, int64_t{20} << 30)};
  profile.events.insert(profile.events.begin() + 1, counters.begin(), counters.end());
  return profile;
}

/// The files of a recording, in a run's folder beside a configuration.
class Recording {
 public:
  virtual ~Recording() = default;
  explicit Recording(std::string name) : name(std::move(name)) {
    fs::create_directories(folder.file("run/profiles"));
    tests::write_file(folder.file("run/config.json"), "{}");
  }

  std::string path() const { return folder.file("run/profiles/rank0.slp"); }
  std::string open_path() const { return path() + ".open"; }

  void remember() {
    sound = tests::read_file(path());
    if (fs::exists(open_path())) sound_open = tests::read_file(open_path());
    for (size_t at = 0; at < sound_open.size(); ++at) {
      if (sound_open[at] != 0) used_of_open.push_back(at);
    }
  }
  void restore() const {
    tests::write_file(path(), sound);
    if (!sound_open.empty()) tests::write_file(open_path(), sound_open);
  }

  const std::string name;
  tests::TemporaryFolder folder;
  std::string sound;
  std::string sound_open;            // empty: closed
  std::vector<size_t> used_of_open;  // the rest is empty space
};

constexpr profiler::WriterOptions kSmallBlocks{.block_events = 60, .blocks = 64};

std::unique_ptr<Recording> closed_recording() {
  auto recording = std::make_unique<Recording>("closed");
  tests::write_profile(recording->path(), profile_of_gpu(), kSmallBlocks);
  recording->remember();
  return recording;
}

/// The state that kill -9 leaves: both files as they are in the middle of a step.
std::unique_ptr<Recording> killed_recording() {
  auto recording = std::make_unique<Recording>("killed");
  const Profile profile = profile_of_gpu();
  const std::string live = recording->folder.file("live.slp");
  profiler::Writer writer(live, profile.header, {.block_events = 60, .blocks = 4});
  for (const std::string& text : profile.strings) writer.intern(text);
  const size_t until = profile.events.size() * 3 / 4;
  for (size_t i = 0; i < until; ++i) {
    writer.append(profile.events[i]);
    // The last of all four blocks stay open, like those of a killed process.
    while (writer.counts().events - writer.counts().sealed > 120) {
    }
  }
  for (const char* suffix : {".open", ""}) {
    fs::copy_file(live + suffix, recording->path() + suffix);
  }
  recording->remember();
  return recording;
}

/// A consumer says something about a recording; it throws std::invalid_argument or
/// std::runtime_error if it refuses to.
struct Consumer {
  std::string name;
  std::function<std::string(const Recording&)> say;
};

const profiler::Recordings kFiles = {.analyse = profiler::report_of,
                                     .check = profiler::check_profile,
                                     .exporters = {.write_page = export_page}};

std::string profile_words(const std::vector<std::string>& arguments) {
  const profiler::CommandOutcome outcome = profiler::profile_command(arguments, kFiles);
  return outcome.out + outcome.error;
}

std::string base_path(const Recording& recording) { return recording.folder.file("base.slp"); }

Consumer exported(const std::string& format) {
  return {"export " + format, [format](const Recording& recording) {
            const std::string out = recording.folder.file("exported");
            profile_words({"export", recording.path(), "--format", format, "--out", out});
            return tests::read_file(out);
          }};
}

Run opened(const Recording& recording) {
  OpenedRuns runs = open_runs({recording.folder.file("run")});
  if (runs.runs.empty()) throw std::invalid_argument(runs.messages.front());
  return std::move(runs.runs.front());
}

Consumer view_report(const std::string& name, ReportFormat format) {
  return {"view --report " + name, [format](const Recording& recording) {
            std::vector<Run> runs;
            runs.push_back(opened(recording));
            return comparison_report(runs, 0, format, std::nullopt);
          }};
}

std::string drawn(const Recording& recording) {
  opened(recording);
  ViewState state;
  state.files.push_back(recording.folder.file("run"));
  Presenter presenter(state, "");
  constexpr Canvas kCanvas{1400, 900, 0, 1};
  return to_text(presenter.picture(kCanvas, plain_fonts(kCanvas.scale)));
}

std::string calibrated(const Recording& recording) {
  const planner::Calibration found = planner::read_calibration(recording.path());
  return fmt::format("{} {} {}", found.context_bytes, found.modules_bytes,
                     found.nccl_bytes_a_communicator);
}

/// It shows the sizes of files, so only what is said about the recordings counts.
std::string bundled(const Recording& recording) {
  const std::string out = recording.folder.file("run.tar.zst");
  fs::remove(out);
  const std::string words = profile_words({"bundle", recording.folder.file("run"), "-o", out});
  return words.substr(words.find('\n'));
}

const std::vector<Consumer>& consumers() {
  static const std::vector<Consumer> all = {
      {"profile report",
       [](const Recording& r) {
         return profile_words({"report", r.path()});
       }},
      {"profile report --json",
       [](const Recording& r) {
         return profile_words({"report", r.path(), "--json"});
       }},
      {"profile diff",
       [](const Recording& r) {
         return profile_words({"diff", base_path(r), r.path()});
       }},
      {"profile diff --json",
       [](const Recording& r) {
         return profile_words({"diff", base_path(r), r.path(), "--json"});
       }},
      {"gate",
       [](const Recording& r) {
         const auto outcome = profiler::gate_command(
             {base_path(r), r.path(), "--allow", "killed", "--allow", "steps"},
             profiler::report_of);
         return outcome.out + outcome.error;
       }},
      exported("csv"),
      exported("html"),
      exported("perfetto"),
      exported("memory-viz-json"),
      exported("memory-viz"),
      {"profile bundle", bundled},
      view_report("txt", ReportFormat::text),
      view_report("json", ReportFormat::json),
      view_report("csv", ReportFormat::csv),
      {"view", drawn},
      {"--calibration", calibrated},
  };
  return all;
}

using Engine = std::mt19937_64;

size_t any_place(const Recording& recording, const std::string& bytes, Engine& engine) {
  const bool is_open = &bytes != &recording.sound;
  if (!is_open || engine() % 8 == 0) return engine() % bytes.size();
  return recording.used_of_open[engine() % recording.used_of_open.size()];
}

/// Flips bits, truncates, removes a piece, or zeroes a disk's sector.
void damage(const Recording& recording, Engine& engine) {
  recording.restore();
  const bool in_open = !recording.sound_open.empty() && engine() % 2 == 0;
  const std::string& sound = in_open ? recording.sound_open : recording.sound;
  std::string bytes = sound;
  const size_t at = any_place(recording, sound, engine);
  switch (engine() % 8) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      bytes.erase(at, 1 + engine() % 600);
      break;
    case 2:
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  std::min<size_t>(512, bytes.size() - at), '\0');
      break;
    default:
      for (size_t flips = 1 + engine() % 3; flips > 0; --flips) {
        bytes[any_place(recording, sound, engine)] ^= static_cast<char>(1U << (engine() % 8));
      }
  }
  tests::write_file(in_open ? recording.open_path() : recording.path(), bytes);
}

struct Count {
  int same = 0;
  int told = 0;
  int refused = 0;
};

/// True if it is one of the three; there is no fourth.
bool count(const Consumer& consumer, const Recording& recording, const std::string& whole,
           std::string& words, Count& counts) {
  try {
    words = consumer.say(recording);
  } catch (const std::invalid_argument&) {
    ++counts.refused;
    return true;
  } catch (const std::runtime_error&) {
    ++counts.refused;
    return true;
  }
  const bool is_told = words.find("damaged") != std::string::npos;
  is_told ? ++counts.told : ++counts.same;
  return is_told || words == whole;
}

/// A peak may be too low if the judgement says so, and is never too high.
void check_bounds(const Recording& recording, const RankReport& whole) {
  RankReport found;
  try {
    found = profiler::report_of(recording.path());
  } catch (const std::invalid_argument&) {
    return;
  }
  const PeakBound bound = found.judgement.bound();
  CAPTURE(profiler::judgement_text(found.judgement), found.judgement.faults);
  REQUIRE(bound != PeakBound::about);
  REQUIRE(found.peak_bytes() <= whole.peak_bytes());
  REQUIRE(found.reserved_peak_bytes().value_or(0) <= whole.reserved_peak_bytes().value_or(0));
  if (bound == PeakBound::exact) REQUIRE(found.peak_bytes() == whole.peak_bytes());
}

void check_damage(const Recording& recording, int rounds) {
  const uint32_t seed = Catch::getSeed();
  Engine engine(seed);
  recording.restore();
  fs::copy_file(recording.path(), base_path(recording), fs::copy_options::overwrite_existing);
  if (!recording.sound_open.empty()) {
    fs::copy_file(recording.open_path(), base_path(recording) + ".open",
                  fs::copy_options::overwrite_existing);
  }
  const RankReport whole = profiler::report_of(recording.path());
  std::vector<std::string> words;
  for (const Consumer& consumer : consumers()) {
    const bool refuses = consumer.name == "--calibration" && !recording.sound_open.empty();
    words.push_back(refuses ? "" : consumer.say(recording));
    REQUIRE(words.back().find("damaged") == std::string::npos);
  }
  std::vector<Count> counts(consumers().size());
  for (int round = 0; round < rounds; ++round) {
    damage(recording, engine);
    CAPTURE(seed, round, recording.name);
    check_bounds(recording, whole);
    for (size_t i = 0; i < consumers().size(); ++i) {
      CAPTURE(consumers()[i].name);
      std::string said;
      const bool is_heard = count(consumers()[i], recording, words[i], said, counts[i]);
      CAPTURE(said);
      REQUIRE(is_heard);
    }
  }
  fmt::print("seed {}: {} damaged files of a {} recording, for each consumer:\n", seed, rounds,
             recording.name);
  for (size_t i = 0; i < counts.size(); ++i) {
    fmt::print("  {:<24} {:>5} say so, {:>5} refuse, {:>5} equal the whole one, 0 silent\n",
               consumers()[i].name, counts[i].told, counts[i].refused, counts[i].same);
    CHECK(counts[i].told + counts[i].refused > rounds / 4);
  }
}

}  // namespace

TEST_CASE("no consumer is silent about damage") {
  check_damage(*closed_recording(), 60);
  check_damage(*killed_recording(), 60);
}

TEST_CASE("no consumer is silent about damage in thousands of files", "[long]") {
  check_damage(*closed_recording(), 3000);
  check_damage(*killed_recording(), 2000);
}

TEST_CASE("a recording is growing while its writer lives, and killed when the writer is gone") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const Profile profile = profile_of_gpu();
  {
    profiler::Writer writer(path, profile.header, kSmallBlocks);
    for (const std::string& text : profile.strings) writer.intern(text);
    for (const Event& event : profile.events) writer.append(event);
    const RankReport growing = profiler::report_of(path);
    CHECK(growing.judgement.state == RecordingState::growing);
    CHECK(growing.judgement.bound() == PeakBound::at_least);
    CHECK(growing.judgement.faults.empty());
    for (const char* suffix : {".open", ""})
      fs::copy_file(path + suffix, folder.file("copy.slp") + suffix);
  }
  CHECK(profiler::report_of(path).judgement == profiler::Judgement{});
  const RankReport killed = profiler::report_of(folder.file("copy.slp"));
  CHECK(killed.judgement.state == RecordingState::killed);
  CHECK(killed.judgement.faults.empty());
  fs::remove(folder.file("copy.slp.open"));
  CHECK(profiler::report_of(folder.file("copy.slp")).judgement.state == RecordingState::damaged);
}

}  // namespace shardlens::viewer
