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

}  // namespace

RecordingNotes notes_beside(const std::string& recording) {
  RecordingNotes notes;
  const auto file = std::filesystem::path(recording).replace_extension(".json");
  const auto facts = find_json(read_file(file, kDescription.bytes).text);
  if (!facts || !facts->is_object()) return notes;
  const auto beside = facts->value("beside_pytorch", nlohmann::json());
  const bool is_known = beside.is_object() && beside.value("from", nlohmann::json()) != "unknown";
  if (is_known) notes.beside_bytes = whole_in(beside, "bytes");
  notes.bands = read_bands(facts->value("bands", nlohmann::json()));
  notes.holders = read_holders(facts->value("holders", nlohmann::json()));
  const auto sources = facts->value("sources", nlohmann::json());
  if (!sources.is_object()) return notes;
  for (const auto& [name, fingerprint] : sources.items()) {
    if (fingerprint.is_string()) notes.fingerprints[name] = fingerprint;
  }
  return notes;
}

namespace {

RankReport noted_report(Analysis& analysis, const Reader& reader, const std::string& path) {
  RankReport report =
      analysis.finish(reader.header(), reader.strings(), reader.judgement(), reader.stacks());
  report.source = path;
  const RecordingNotes notes = notes_beside(path);
  report.take_outside(notes.beside_bytes.value_or(0));
  report.bands = notes.bands;
  if (report.growth) report.holders = notes.holders;
  report.program.fingerprints.insert(notes.fingerprints.begin(), notes.fingerprints.end());
  return report;
}

}  // namespace

RankReport finish_report(Analysis& analysis, const Reader& reader, const std::string& path) {
  if (const auto label = analysis.label_of_rounds(reader.strings(), reader.stacks())) {
    Analysis by_rounds;
    by_rounds.count_rounds_by(*label);
    Reader again(path);
    read_into(by_rounds, again);
    return noted_report(by_rounds, again, path);
  }
  return noted_report(analysis, reader, path);
}

RankReport report_of(const std::string& path) {
  Reader reader(path);
  Analysis analysis;
  read_into(analysis, reader);
  return finish_report(analysis, reader, path);
}

}  // namespace shardlens::profiler
