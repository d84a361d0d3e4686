#include "profiler/gate.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <string>

#include "tests/support/small_recording.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// Files whose content is the MiB of their activations.
RankReport analyse_small(const std::string& path) {
  return analyse(test::small_recording(0, std::stoll(test::read_file(path)) << 20));
}

struct Files {
  Files() {
    test::write_file(base(), "3");
    test::write_file(grown(), "5");
  }
  std::string base() const { return folder.file("base.slp"); }
  std::string grown() const { return folder.file("grown.slp"); }

  test::TemporaryFolder folder;
};

}  // namespace

TEST_CASE("a gate fails where a peak grew above the limit, and only there") {
  const Files files;
  const auto gate = [&](const std::vector<std::string>& arguments) {
    return gate_command(arguments, analyse_small).exit_code;
  };
  CHECK(gate({files.base(), files.base()}) == 0);
  CHECK(gate({files.base(), files.base(), "--fail-above", "0%"}) == 0);
  CHECK(gate({files.base(), files.grown()}) == 1);
  CHECK(gate({files.base(), files.grown(), "--fail-above", "28.5%"}) == 1);
  CHECK(gate({files.base(), files.grown(), "--fail-above", "28.6%"}) == 0);
  CHECK(gate({files.grown(), files.base()}) == 0);
}

TEST_CASE("a gate writes what grew as Markdown, also where nothing did") {
  const Files files;
  const std::string markdown = files.folder.file("gate.md");
  const auto outcome =
      gate_command({files.base(), files.grown(), "--markdown", markdown}, analyse_small);
  CHECK(outcome.error ==
        "shardlens gate: the peak of rank 0 grew too much: +28.57 %, allowed are 2 %; B's peak is "
        "2.00 MiB above A's (+28.6 %): +2.00 MiB activation\n");
  const std::string text = test::read_file(markdown);
  CHECK_THAT(text, ContainsSubstring("### GPU memory: the peak of rank 0 grew too much"));
  CHECK_THAT(text, ContainsSubstring("| activation | 3.00 MiB | 5.00 MiB | +66.67 % |"));
  gate_command({files.base(), files.base(), "--markdown", markdown}, analyse_small);
  CHECK_THAT(test::read_file(markdown), ContainsSubstring("is within the limit: +0.00 %"));
}

TEST_CASE("reserved memory is gated, too") {
  RunDiff diff;
  diff.ranks.push_back({.peak = {100, 101},
                        .reserved = Pair{100, 105},
                        .categories = {},
                        .phases = {},
                        .steps = {},
                        .only_a = {},
                        .only_b = {}});
  CHECK(gated_growth_percent(diff) == 5);
  CHECK_THAT(gate_markdown(diff, 2), ContainsSubstring("reserved memory of rank 0 grew too much"));
}

TEST_CASE("a gate refuses what it cannot compare") {
  const Files files;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    CHECK_THROWS_MATCHES(gate_command(arguments, analyse_small), std::invalid_argument,
                         MessageMatches(ContainsSubstring(part)));
  };
  refused({files.base()}, "see --help");
  refused({files.base(), files.grown(), "--fail-above", "x"}, "--fail-above x: not a share");
  refused({files.base(), files.folder.file("none.slp")}, "no such file");
}
