#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/commands/exchange_commands.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/file/reader.h"
#include "profiler/file/writer.h"
#include "tests/support/recordings/small_recording.h"
#include "tests/support/temporary_folder.h"
#include "viewer/page/export_page.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using nlohmann::json;
namespace fs = std::filesystem;

std::string export_words(const std::vector<std::string>& arguments) {
  return export_command(arguments, {.write_page = viewer::export_page});
}

/// A run of two ranks.
class Run {
 public:
  Run() {
    fs::create_directories(folder_.file("profiles"));
    for (int32_t rank = 0; rank < 2; ++rank) {
      const Profile profile = tests::small_recording(rank);
      Writer writer(folder_.file("profiles/rank" + std::to_string(rank) + ".slp"), profile.header);
      for (const std::string& text : profile.strings) writer.intern(text);
      for (const Event& event : profile.events) writer.append(event);
    }
  }

  std::string path() const { return folder_.path(); }
  std::string file(const std::string& name) const { return folder_.file(name); }

  /// Exports with `more` arguments and returns what is written.
  std::string exported(const std::string& format, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {path(), "--format", format, "--out", file("out.csv")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    CHECK_THAT(export_words(arguments), StartsWith("wrote " + file("out.csv")));
    return tests::read_file(file("out.csv"));
  }

 private:
  tests::TemporaryFolder folder_;
};

void check_refused(auto command, const std::vector<std::string>& arguments,
                   const std::string& what) {
  CHECK_THROWS_WITH(command(arguments), ContainsSubstring(what));
  CHECK_THROWS_AS(command(arguments), std::invalid_argument);
}

}  // namespace

TEST_CASE("a run is exported in every format") {
  const Run run;
  CHECK(import_memory_viz(run.exported("memory-viz", {"--rank", "1"})).events.size() == 8);
  CHECK(json::parse(run.exported("memory-viz-json", {"--rank", "1"})).contains("segments"));
  CHECK_THAT(run.exported("perfetto"), ContainsSubstring("rank 0 of 2, null:h200") &&
                                           ContainsSubstring("rank 1 of 2, null:h200"));
  CHECK_THAT(run.exported("perfetto", {"--rank", "1"}), !ContainsSubstring("rank 0 of 2"));
  CHECK_THAT(run.exported("csv", {"--points", "2"}), StartsWith("rank,time_ms,"));
  CHECK_THAT(tests::read_file(run.file("out.largest.csv")),
             StartsWith("rank,bytes,category,label"));
  CHECK_THAT(run.exported("html"), ContainsSubstring("7340032 bytes"));
  for (const auto& entry : fs::directory_iterator(run.path())) {
    CHECK_THAT(entry.path().string(), !ContainsSubstring("unfinished"));
  }
}

TEST_CASE("a snapshot of PyTorch becomes a recording without losing an event") {
  const tests::TemporaryFolder folder;
  const std::string snapshot = SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/late.pickle";
  const std::string out = folder.file("torch.slp");
  CHECK_THAT(import_command({snapshot, "--out", out}), StartsWith("wrote " + out));
  const Profile expected = import_memory_viz(tests::read_file(snapshot));
  const Profile found = read_profile(out);
  CHECK(found.header == expected.header);
  CHECK(found.strings == expected.strings);
  CHECK(found.events == expected.events);
  CHECK(found.judgement.faults.empty());
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("wrong exports and imports are refused in one line, and leave no file") {
  const Run run;
  const tests::TemporaryFolder empty;
  const std::string out = empty.file("out");
  check_refused(export_words, {run.path()}, "see --help");
  check_refused(export_words, {run.path(), "--format", "pdf", "--out", out},
                "--format pdf: choose one of memory-viz, memory-viz-json, perfetto, csv, html");
  check_refused(export_words, {run.path(), "--format", "memory-viz", "--out", out},
                "2 ranks, but a snapshot has one; choose it with --rank");
  check_refused(export_words, {run.path(), "--format", "csv", "--rank", "7", "--out", out},
                "--rank 7:");
  check_refused(export_words, {empty.path(), "--format", "csv", "--out", out},
                "train with --profile");
  check_refused(export_words, {out, "--format", "csv", "--out", out}, "no such file");
  check_refused(export_words, {run.path(), "--format", "csv", "--points", "1", "--out", out},
                "see --help");
  check_refused(export_words, {run.path(), "--format", "html", "--points", "9", "--out", out},
                "--points: a page has every allocation");
  check_refused(import_command, {out, "--out", out}, "cannot be read");
  tests::write_file(empty.file("snapshot"), "\x80\x04\x8c\x02os\x8c\x06system\x93.");
  check_refused(import_command, {empty.file("snapshot"), "--out", out},
                "snapshot: byte 14: STACK_GLOBAL of os.system is refused");
  CHECK_FALSE(fs::exists(out));
  check_refused(export_words, {run.path(), "--format", "html", "--out", "/nowhere/at/all"},
                "/nowhere/at/all: there is no folder /nowhere");
}
