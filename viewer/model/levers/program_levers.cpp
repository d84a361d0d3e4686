#include "viewer/model/levers/program_levers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/device.h"
#include "base/gpus.h"
#include "base/process/program_output.h"
#include "base/shown.h"
#include "profiler/file/reader.h"
#include "profiler/record/levers/lever_sites.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;
using profiler::Lever;
using Levers = std::vector<Lever>;

constexpr std::string_view kSays = "shardlens record: ";

bool are_same(const Levers& a, const Levers& b) { return std::ranges::is_permutation(a, b); }

/// Returns the memory of the GPU that a recording is of. A search may have given it more, to see
/// the peak of what does not fit.
int64_t capacity_of(const profiler::Header& header) {
  for (const Gpu& gpu : gpus()) {
    const bool is_it = header.device == fmt::format("{}{}", kNullDevice, gpu.name);
    if (is_it) return std::min(header.capacity_bytes, gpu.memory_bytes);
  }
  return header.capacity_bytes;
}

LeverRow measured_row(const Levers& levers, const std::string& folder,
                      const profiler::KeptVerdict& verdict) {
  LeverRow row{.levers = levers, .folder = folder, .verdict = verdict};
  const bool is_whole = verdict.exit_code != profiler::kNotRecorded;
  row.state = verdict.is_out_of_memory ? LeverState::full
              : is_whole               ? LeverState::measured
                                       : LeverState::failed;
  if (row.state != LeverState::measured) row.why = verdict.line;
  return row;
}

/// Adds the levers that a search would try, with the reason of those that do not apply.
void add_levers(ProgramLevers& levers) {
  const auto& program = levers.program;
  std::vector<LeverRow> idle;
  for (const Lever& lever : profiler::levers_to_try()) {
    const bool is_pulled = std::ranges::any_of(
        program.levers, [&](const Lever& one) { return profiler::contradict(one, lever); });
    if (is_pulled) continue;
    const Problem why = program.sites ? profiler::why_not(lever, *program.sites) : std::nullopt;
    if (why) idle.push_back({.levers = {lever}, .state = LeverState::idle, .why = *why});
    if (!why) levers.rows.push_back({.levers = {lever}});
  }
  levers.rows.insert(levers.rows.end(), idle.begin(), idle.end());
}

/// Adds what was recorded with levers. Of two recordings of one set, as a search makes of a set
/// that barely fits, the one counts that fits.
void add_variants(ProgramLevers& levers) {
  for (const profiler::RecordedVariant& variant : profiler::variants_of(levers.program)) {
    if (variant.added.empty()) continue;
    const LeverRow row = measured_row(variant.added, variant.folder, variant.verdict);
    const LeverRow* const before = levers.find(variant.added);
    const bool is_new = before == nullptr || before->folder.empty();
    if (is_new || (levers.fits(row) && !levers.fits(*before))) levers.put(row);
  }
}

/// Returns the last line in which `shardlens record` says why there is no recording, else the last
/// line of all.
std::string reason_in(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  const auto said = std::find_if(lines.rbegin(), lines.rend(),
                                 [](const std::string& line) { return line.starts_with(kSays); });
  if (said != lines.rend()) return shown(said->substr(kSays.size()));
  return lines.empty() ? "it printed nothing" : shown(lines.back());
}

std::string text_of_site(const profiler::RecordedProgram& program, const Lever& lever) {
  if (!program.sites) return "";
  for (const profiler::LeverSite& site : profiler::lever_sites(*program.sites)) {
    if (!profiler::acts_at(site, lever)) continue;
    const std::string where = site.where.empty() ? "" : fmt::format(" ({})", shown(site.where));
    return shown(site.code) + where;
  }
  return "";
}

}  // namespace

std::string LeverRow::name() const {
  return levers.empty() ? "which apply" : profiler::levers_text(levers);
}

const LeverRow* ProgramLevers::find(const Levers& levers) const {
  const auto found =
      std::ranges::find_if(rows, [&](const LeverRow& row) { return are_same(row.levers, levers); });
  return found == rows.end() ? nullptr : &*found;
}

void ProgramLevers::put(LeverRow row) {
  const LeverRow* const before = find(row.levers);
  if (before == nullptr) {
    const auto idle = std::ranges::find(rows, LeverState::idle, &LeverRow::state);
    rows.insert(idle, std::move(row));
    return;
  }
  row.levers = before->levers;
  rows[static_cast<size_t>(before - rows.data())] = std::move(row);
}

bool ProgramLevers::fits(const LeverRow& row) const {
  return row.state == LeverState::measured && row.verdict.exit_code != profiler::kDoesNotFit &&
         (capacity_bytes == 0 || row.verdict.device_bytes() <= capacity_bytes);
}

std::optional<int64_t> ProgramLevers::change_bytes(const LeverRow& row) const {
  const bool is_known = now && now->exit_code != profiler::kNotRecorded && !now->is_out_of_memory;
  if (!is_known || row.state != LeverState::measured) return std::nullopt;
  return row.verdict.device_bytes() - now->device_bytes();
}

std::string ProgramLevers::details(const LeverRow& row) const {
  if (!row.why.empty()) return row.why;
  if (row.levers.empty()) return "records the program once more, and finds out which levers apply";
  if (row.levers.size() > 1) return row.verdict.line;
  const profiler::LeverInfo& info = profiler::lever_info(row.levers.front().name);
  const std::string site = text_of_site(program, row.levers.front());
  return fmt::format("{}; costs {}. In code: {}", info.does, info.costs,
                     site.empty() ? std::string(info.code) : site);
}

ProgramLevers levers_of(const std::string& recording) {
  ProgramLevers levers{.program = profiler::read_recorded_program(recording)};
  levers.obstacle = profiler::why_not_again(levers.program);
  levers.now = profiler::read_verdict(recording);
  levers.capacity_bytes = capacity_of(profiler::Reader(recording).header());
  if (levers.program.command.empty()) return levers;
  const bool may_find_out = !levers.program.sites && !levers.obstacle;
  if (may_find_out) levers.rows.push_back({});
  add_levers(levers);
  add_variants(levers);
  return levers;
}

LeverRow ended_row(const ProgramLevers& levers, const LeverRow& row, int exit_code,
                   const std::string& text) {
  const fs::path recording =
      fs::path(row.folder) / "profiles" / fs::path(levers.program.recording).filename();
  LeverRow ended{.levers = row.levers, .folder = row.folder};
  if (const auto verdict = profiler::read_verdict(recording.string())) {
    ended = measured_row(row.levers, row.folder, *verdict);
    const Problem other = profiler::why_no_variant(
        levers.program, profiler::read_recorded_program(recording.string()));
    if (!other) return ended;
    ended.state = LeverState::failed;
    ended.why = *other;
    return ended;
  }
  ended.folder.clear();
  ended.why = reason_in(text);
  const bool is_idle = exit_code == profiler::kNotRecorded &&
                       ended.why.find(" does not apply: ") != std::string::npos;
  ended.state = exit_code == profiler::kDoesNotFit ? LeverState::full
                : is_idle                          ? LeverState::idle
                                                   : LeverState::failed;
  return ended;
}

}  // namespace shardlens::viewer
