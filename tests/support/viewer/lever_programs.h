// A recorded program for the what-if panel, and a stand-in for `shardlens-record` that leaves what
// a test has prepared.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/recordings/recorded_program.h"
#include "tests/support/temporary_folder.h"
#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

/// Takes what `shardlens-record` takes. {} is the folder in which ends are prepared.
constexpr const char* kStandIn = R"sh(#!/bin/sh
with=which
while [ "$1" != -- ]; do
  case "$1" in
    --with) with=$2; shift ;;
    --out) out=$2; shift ;;
  esac
  shift
done
cd '{}' || exit 9
echo "$with" >> asked
while [ -e "$with.waits" ]; do sleep 0.01; done
if [ -e "$with.says" ]; then cat "$with.says"; fi
if [ -e "$with" ]; then mkdir -p "$out/profiles" && cp "$with"/profiles/* "$out/profiles"; fi
if [ -e "$with.code" ]; then exit "$(cat "$with.code")"; fi
)sh";

/// Programs in one folder: `run` is recorded, and how it ends with levers is prepared.
class LeverPrograms {
 public:
  LeverPrograms() : run(folder_.file("runs/run")) {
    run.facts["lever_sites"] = sites();
    std::filesystem::create_directories(prepared(""));
    const std::string script = fmt::format(kStandIn, prepared(""));
    tests::write_file(record(), script);
    ::chmod(record().c_str(), 0755);
  }

  /// The account of a program in which recompute, empty-cache, optimizer and model-dtype act.
  static nlohmann::json sites() {
    auto all = nlohmann::json::array();
    for (const char* lever : {"recompute", "empty-cache", "optimizer", "model-dtype"}) {
      const nlohmann::json site = {{"lever", lever}, {"code", "the code"}, {"where", "train.py:7"}};
      all.push_back({{"what", "lever"}, {"text", site.dump()}});
    }
    return all;
  }

  std::string record() const { return folder_.file("record"); }
  std::string prepared(const std::string& name) const { return folder_.file("prepared/" + name); }
  /// Returns the sets that were run, one per line.
  std::string asked() const {
    const std::string file = prepared("asked");
    return std::filesystem::exists(file) ? tests::read_file(file) : "";
  }

  /// Prepares a recording with levers, or with "which" one that finds out which apply, with a peak
  /// of this many MiB.
  void prepare(const std::string& levers, int64_t mib,
               const std::function<void(tests::ProgramFolder&)>& change = {}) const {
    write(prepared(levers), levers, mib, change);
  }
  /// Prepares an end without a recording.
  void prepare_failure(const std::string& levers, const std::string& says, int code) const {
    tests::write_file(prepared(levers + ".says"), says);
    tests::write_file(prepared(levers + ".code"), std::to_string(code));
  }
  /// Puts a recording with levers beside the run.
  void add_variant(const std::string& levers, int64_t mib,
                   const std::function<void(tests::ProgramFolder&)>& change = {}) const {
    std::string name = levers;
    std::ranges::replace(name, ',', '+');
    write(run.path + "/with/" + name, levers, mib, change);
  }
  /// Lets runs with these levers wait until `go`.
  void wait_with(const std::string& levers) const {
    tests::write_file(prepared(levers + ".waits"), "");
  }
  void go_with(const std::string& levers) const {
    std::filesystem::remove(prepared(levers + ".waits"));
  }

  ViewState state() const {
    ViewState state;
    state.files = {run.path};
    return state;
  }

  tests::TemporaryFolder folder_;
  tests::ProgramFolder run;

 private:
  void write(const std::string& path, const std::string& levers, int64_t mib,
             const std::function<void(tests::ProgramFolder&)>& change) const {
    tests::ProgramFolder one(path, mib);
    one.config = run.config;
    one.options = run.options;
    one.options.activation_bytes = mib << 14;
    std::vector<profiler::Lever> all;
    if (levers != "which") all = profiler::parse_levers(levers);
    for (const profiler::Lever& lever : all) {
      one.config["levers"][lever.name] = lever.value;
    }
    if (change) change(one);
    one.write();
  }
};

}  // namespace shardlens::viewer
