#include "viewer/model/lane_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/checksum/crc32c.h"
#include "base/strict_json.h"
#include "profiler/file/reader.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'S', 'L', 'L', 'A', 'N', 'E', '0', '9'};
constexpr size_t kSections = 15;  // the info, then the arrays
constexpr size_t kSectionAlignment = 64;
constexpr int64_t kWorthKeeping = 200'000;  // changes: fewer are parsed in no noticeable time

struct Section {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct Preamble {
  std::array<char, 8> magic = kMagic;
  uint64_t file_bytes = 0;
  std::array<Section, kSections> sections{};
  uint32_t checksum = 0;  // CRC-32C of all sections, one after the other
  uint32_t padding = 0;
};

uint64_t hash_of(std::string_view text) {  // FNV-1a: the same on every machine
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

fs::path file_of(const std::string& folder, const RecordingStamp& stamp) {
  return fs::path(folder) / fmt::format("{:016x}.lane", hash_of(stamp.path));
}

nlohmann::json json_of(const profiler::Header& header) {
  return {{"rank", header.rank},
          {"world_size", header.world_size},
          {"device", header.device},
          {"gpu", header.gpu},
          {"capacity_bytes", header.capacity_bytes},
          {"notice", header.notice},
          {"config", header.config},
          {"train", header.train},
          {"evaluate", header.evaluate},
          {"libraries", header.libraries},
          {"start_realtime_ns", header.start_realtime_ns}};
}

profiler::Header header_of(const nlohmann::json& json) {
  return {.rank = whole_of<int>(json.at("rank")),
          .world_size = whole_of<int>(json.at("world_size")),
          .device = json.at("device"),
          .gpu = json.at("gpu"),
          .capacity_bytes = whole_of(json.at("capacity_bytes")),
          .notice = json.at("notice"),
          .config = json.at("config"),
          .train = json.at("train"),
          .evaluate = json.at("evaluate"),
          .libraries = json.at("libraries"),
          .start_realtime_ns = whole_of(json.at("start_realtime_ns"))};
}

/// Packs numbers as they are in memory: a lane's file is read on the machine that wrote it.
template <typename T>
nlohmann::json packed_array(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* const begin = reinterpret_cast<const uint8_t*>(values.data());
  return nlohmann::json::binary({begin, begin + values.size() * sizeof(T)});
}

template <typename T>
std::vector<T> array_of(const nlohmann::json& json) {
  const auto& bytes = json.get_binary();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Encodes the info as CBOR, which keeps the bytes of labels: a program may use any. No person
/// reads this form. The judgement is left out: only lanes of whole recordings are kept.
std::vector<uint8_t> packed(const LaneInfo& info, const RecordingStamp& stamp) {
  const auto bytes = [](const std::string& text) {
    return nlohmann::json::binary({text.begin(), text.end()});
  };
  nlohmann::json strings = nlohmann::json::array();
  for (const std::string& text : info.strings) strings.push_back(bytes(text));
  return nlohmann::json::to_cbor({{"path", bytes(stamp.path)},
                                  {"bytes", stamp.bytes},
                                  {"changed_ns", stamp.changed_ns},
                                  {"header", json_of(info.header)},
                                  {"strings", std::move(strings)},
                                  {"frames", packed_array(info.stacks.frames)},
                                  {"stacks", packed_array(info.stacks.of_label)},
                                  {"space", static_cast<int>(info.space)},
                                  {"end_ns", info.end_ns},
                                  {"events", info.events},
                                  {"unmatched", info.unmatched},
                                  {"steps_before", info.steps_before},
                                  {"growth", bytes(info.findings.growth)},
                                  {"reserved", bytes(info.findings.reserved)},
                                  {"out_of_memory", bytes(info.findings.out_of_memory)}});
}

std::string text_of(const nlohmann::json& json) {
  const auto& bytes = json.get_binary();
  return {bytes.begin(), bytes.end()};
}

LaneInfo info_of(const nlohmann::json& json) {
  LaneInfo info{.header = header_of(json.at("header")),
                .strings = {},
                .stacks = {.frames = array_of<profiler::StackFrame>(json.at("frames")),
                           .of_label = array_of<uint32_t>(json.at("stacks"))},
                .space = static_cast<profiler::Space>(whole_of<uint8_t>(json.at("space"))),
                .end_ns = whole_of(json.at("end_ns")),
                .events = whole_of(json.at("events")),
                .unmatched = whole_of(json.at("unmatched")),
                .steps_before = whole_of(json.at("steps_before")),
                .findings = {.growth = text_of(json.at("growth")),
                             .reserved = text_of(json.at("reserved")),
                             .out_of_memory = text_of(json.at("out_of_memory"))},
                .judgement = {}};
  for (const nlohmann::json& text : json.at("strings")) info.strings.push_back(text_of(text));
  return info;
}

template <typename T>
std::span<const T> section(std::span<const std::byte> file, const Section& section) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = file.subspan(section.offset, section.bytes);
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

uint32_t checksum_of(std::span<const std::span<const std::byte>, kSections> parts) {
  uint32_t checksum = 0;
  for (const auto& part : parts) checksum = crc32c(part, checksum);
  return checksum;
}

/// True if every byte is as it was written. A lane is a net of indices: a damaged one would not
/// only show wrong numbers, but point outside its arrays.
bool is_undamaged(std::span<const std::byte> file, const Preamble& preamble) {
  std::array<std::span<const std::byte>, kSections> parts;
  std::ranges::transform(preamble.sections, parts.begin(), [&](const Section& section) {
    return file.subspan(section.offset, section.bytes);
  });
  return checksum_of(parts) == preamble.checksum;
}

/// Returns the preamble of a file that is as long as it says, with every section inside; nothing
/// for any other file.
std::optional<Preamble> whole_preamble(std::span<const std::byte> file) {
  Preamble preamble;
  if (file.size() < sizeof preamble) return std::nullopt;
  std::memcpy(&preamble, file.data(), sizeof preamble);
  if (preamble.magic != kMagic || preamble.file_bytes != file.size()) return std::nullopt;
  for (const Section& section : preamble.sections) {
    const bool is_inside =
        section.offset <= file.size() && section.bytes <= file.size() - section.offset;
    if (!is_inside || section.offset % kSectionAlignment != 0) return std::nullopt;
  }
  return preamble;
}

Lane::Sections sections_in_file(std::span<const std::byte> file, const Preamble& preamble) {
  const auto& at = preamble.sections;
  return {.times_ns = section<int64_t>(file, at[1]),
          .words = section<uint32_t>(file, at[2]),
          .blocks = section<Block>(file, at[3]),
          .nodes = section<Extent>(file, at[4]),
          .checkpoints = section<CategoryBytes>(file, at[5]),
          .alive_begins = section<uint64_t>(file, at[6]),
          .alive_blocks = section<uint32_t>(file, at[7]),
          .stretches = section<Stretch>(file, at[8]),
          .spans = section<Span>(file, at[9]),
          .reserved = section<ReservedSample>(file, at[10]),
          .free_labels = section<BlockLabel>(file, at[11]),
          .names = section<BlockLabel>(file, at[13]),
          .modules = section<ModuleChange>(file, at[14]),
          .failures = section<FailedRequest>(file, at[12]),
          .uses = {}};
}

/// True if the lengths of the arrays fit together.
bool fits(const Lane::Sections& arrays) {
  const auto changes = static_cast<int64_t>(arrays.words.size());
  const auto levels = pyramid_levels(changes);
  const int64_t nodes = std::accumulate(levels.begin(), levels.end(), int64_t{0});
  const int64_t lists = (changes + kAliveEvery - 1) / kAliveEvery;
  return arrays.times_ns.size() == arrays.words.size() && std::ssize(arrays.nodes) == nodes &&
         std::ssize(arrays.checkpoints) == (levels.empty() ? 0 : levels.front()) &&
         std::ssize(arrays.alive_begins) == lists + 1 &&
         arrays.alive_begins.back() == arrays.alive_blocks.size();
}

std::array<std::span<const std::byte>, kSections> parts_of(const Lane::Sections& arrays,
                                                           std::span<const uint8_t> info) {
  return {std::as_bytes(info),
          std::as_bytes(arrays.times_ns),
          std::as_bytes(arrays.words),
          std::as_bytes(arrays.blocks),
          std::as_bytes(arrays.nodes),
          std::as_bytes(arrays.checkpoints),
          std::as_bytes(arrays.alive_begins),
          std::as_bytes(arrays.alive_blocks),
          std::as_bytes(arrays.stretches),
          std::as_bytes(arrays.spans),
          std::as_bytes(arrays.reserved),
          std::as_bytes(arrays.free_labels),
          std::as_bytes(arrays.failures),
          std::as_bytes(arrays.names),
          std::as_bytes(arrays.modules)};
}

bool write(const fs::path& path, std::span<const std::span<const std::byte>, kSections> parts) {
  const auto aligned = [](uint64_t bytes) {
    return (bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
  };
  Preamble preamble{.checksum = checksum_of(parts)};
  uint64_t end = aligned(sizeof preamble);
  for (size_t i = 0; i < kSections; ++i) {
    preamble.sections[i] = {end, parts[i].size()};
    end = aligned(end + parts[i].size());
  }
  preamble.file_bytes = end;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&preamble), sizeof preamble);
  for (size_t i = 0; i < kSections; ++i) {
    file.seekp(static_cast<std::streamoff>(preamble.sections[i].offset));
    file.write(reinterpret_cast<const char*>(parts[i].data()),
               static_cast<std::streamsize>(parts[i].size()));
  }
  file.flush();
  std::error_code error;
  if (file) fs::resize_file(path, end, error);
  return static_cast<bool>(file) && !error;
}

void remove_oldest(const std::string& folder, int64_t most_bytes) {
  std::vector<std::pair<fs::file_time_type, fs::directory_entry>> lanes;
  std::error_code error;
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".lane") continue;
    lanes.emplace_back(entry.last_write_time(error), entry);
    bytes += static_cast<int64_t>(entry.file_size(error));
  }
  std::ranges::sort(lanes, {}, [](const auto& lane) { return lane.first; });
  for (const auto& [time, entry] : lanes) {
    if (bytes <= most_bytes) return;
    bytes -= static_cast<int64_t>(entry.file_size(error));
    fs::remove(entry.path(), error);
  }
}

}  // namespace

RecordingStamp stamp_of(const std::string& recording) {
  std::error_code error;
  RecordingStamp stamp{.path = fs::absolute(recording, error).lexically_normal().string()};
  const auto bytes = fs::file_size(recording, error);
  if (error) return {};
  stamp.bytes = static_cast<int64_t>(bytes);
  stamp.changed_ns = fs::last_write_time(recording, error).time_since_epoch().count();
  return stamp;
}

std::string default_cache_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return (fs::path(cache) / "shardlens").string();
  }
  const std::string home = variable("HOME");
  return home.empty() ? "" : (fs::path(home) / ".cache" / "shardlens").string();
}

std::optional<Lane> load_cached_lane(const std::string& folder, const RecordingStamp& stamp) {
  if (folder.empty() || stamp.bytes == 0) return std::nullopt;
  MappedFile file(file_of(folder, stamp).string());
  const auto preamble = whole_preamble(file.bytes());
  if (!preamble || !is_undamaged(file.bytes(), *preamble)) return std::nullopt;
  try {
    const auto packed_info = section<uint8_t>(file.bytes(), preamble->sections[0]);
    const nlohmann::json json = nlohmann::json::from_cbor(packed_info.begin(), packed_info.end());
    const RecordingStamp stored{text_of(json.at("path")), whole_of(json.at("bytes")),
                                whole_of(json.at("changed_ns"))};
    if (stored != stamp) return std::nullopt;
    const Lane::Sections sections = sections_in_file(file.bytes(), *preamble);
    if (!fits(sections)) return std::nullopt;
    return Lane(info_of(json), std::move(file), sections);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void save_cached_lane(const std::string& folder, const RecordingStamp& stamp, const Lane& lane,
                      int64_t most_bytes) {
  if (folder.empty() || stamp.bytes == 0) return;
  std::error_code error;
  fs::create_directories(folder, error);
  const std::vector<uint8_t> info = packed(lane.info(), stamp);
  const fs::path path = file_of(folder, stamp);
  const fs::path partial = fmt::format("{}.{}", path.string(), ::getpid());
  if (write(partial, parts_of(lane.arrays(), info))) {
    fs::rename(partial, path, error);
  } else {
    fs::remove(partial, error);
  }
  remove_oldest(folder, most_bytes);
}

namespace {

/// Returns the stamp under which a space is cached.
RecordingStamp stamp_of_space(const std::string& recording, std::optional<profiler::Space> space) {
  RecordingStamp stamp = stamp_of(recording);
  if (space) stamp.path += fmt::format("#{}", to_string(*space));
  return stamp;
}

}  // namespace

std::optional<Lane> find_cached_lane(const std::string& recording, const std::string& folder,
                                     std::optional<profiler::Space> space) {
  return load_cached_lane(folder, stamp_of_space(recording, space));
}

Lane open_lane(const std::string& recording, const std::string& folder,
               std::optional<profiler::Space> space, const ReadProgress& tell) {
  const RecordingStamp stamp = stamp_of_space(recording, space);
  if (auto cached = load_cached_lane(folder, stamp)) return std::move(*cached);
  Lane lane = read_lane(recording, space, tell);
  const bool is_worth_it =
      lane.info().judgement == profiler::Judgement{} && lane.changes() >= kWorthKeeping;
  if (is_worth_it && !profiler::Reader(recording).has_work()) {
    save_cached_lane(folder, stamp, lane);
  }
  return lane;
}

}  // namespace shardlens::viewer
