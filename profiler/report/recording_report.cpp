#include "profiler/report/recording_report.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/strict_json.h"
#include "profiler/file/reader.h"
#include "profiler/recording/peak_bands.h"

namespace shardlens::profiler {

namespace {

void read_into(Analysis& analysis, Reader& reader) {
  std::vector<Event> events;
  while (reader.next(events)) {
    for (const Event& event : events) analysis.take(event);
  }
}

/// Adds what `shardlens record` has noted beside a recording, if it made it.
void add_facts(RankReport& report, const std::string& path) {
  const auto file = std::filesystem::path(path).replace_extension(".json");
  const auto facts = find_json(read_file(file, kDescription.bytes).text);
  if (!facts || !facts->is_object()) return report.foresee_full(0);
  const auto beside = facts->value("beside_pytorch", nlohmann::json());
  report.foresee_full(whole_in(beside, "bytes").value_or(0));
  report.bands = read_bands(facts->value("bands", nlohmann::json()));
  const auto sources = facts->value("sources", nlohmann::json());
  if (!sources.is_object()) return;
  for (const auto& [name, fingerprint] : sources.items()) {
    if (fingerprint.is_string()) report.program.fingerprints[name] = fingerprint;
  }
}

}  // namespace

RankReport report_of(const std::string& path) {
  std::optional<Reader> reader(path);
  Analysis analysis;
  read_into(analysis, *reader);
  if (const auto label = analysis.label_of_rounds(reader->strings(), reader->stacks())) {
    analysis = Analysis();
    analysis.count_rounds_by(*label);
    reader.emplace(path);
    read_into(analysis, *reader);
  }
  RankReport report =
      analysis.finish(reader->header(), reader->strings(), reader->judgement(), reader->stacks());
  report.source = path;
  add_facts(report, path);
  return report;
}

}  // namespace shardlens::profiler
