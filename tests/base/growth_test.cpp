// Time and memory of every reader for inputs of 1, 10 and 100 times one size. Prints the table of
// tests/bench/reader_growth.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/document/document_writer.h"
#include "models/data/dataset.h"
#include "models/data/image_file.h"
#include "models/weights/safetensors.h"
#include "models/weights/torch_file.h"
#include "planner/config/arguments.h"
#include "planner/config/options.h"
#include "profiler/commands/exchange_commands.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/report/recording_report.h"
#include "profiler/report/report.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/interchange/dcp_writer.h"
#include "runtime/checkpoint/interchange/saved_state.h"
#include "runtime/launch/events.h"
#include "tests/support/gzip_file.h"
#include "tests/support/idx_files.h"
#include "tests/support/image_files.h"
#include "tests/support/recordings/large_recording.h"
#include "tests/support/recordings/reader_cost.h"
#include "tests/support/temporary_folder.h"
#include "viewer/page/export_page.h"

using namespace shardlens;
namespace fs = std::filesystem;

namespace {

constexpr std::array<int64_t, 3> kTimes = {1, 10, 100};

/// Linear growth from 10 times to 100 times is 10; on a machine that others use it may double.
constexpr double kMostGrowth = 20;
constexpr double kLeastCpu_s = 0.02;  // less is mostly noise
constexpr int64_t kLeastBytes = int64_t{8} << 20;

struct ReaderCase {
  std::string name;
  int64_t items;  // at one time the size
  void (*make)(const std::string& path, int64_t items);
  void (*read)(const std::string& path);
};

/// Tensors of `count` numbers each, all of them zero.
template <class Write>
void with_tensors(int64_t count, int64_t numel, const Write& write) {
  const std::vector<float> values(static_cast<size_t>(numel));
  std::vector<models::SafetensorsTensor> tensors;
  for (int64_t i = 0; i < count; ++i) {
    tensors.push_back(
        {fmt::format("layers.{}.weight", i), "F32", {numel}, std::as_bytes(std::span(values))});
  }
  write(tensors);
}

void make_safetensors(const std::string& path, int64_t tensors) {
  with_tensors(tensors, 4, [&](const auto& all) { models::write_safetensors(path, all); });
}

void make_torch_file(const std::string& path, int64_t tensors) {
  with_tensors(tensors, 64, [&](const auto& all) {
    std::ofstream out(path, std::ios::binary);
    models::write_torch_file(out, all);
  });
}

void make_dcp(const std::string& path, int64_t tensors) {
  with_tensors(tensors, 64, [&](const auto& all) {
    std::vector<runtime::DcpTensor> keyed;
    for (const models::SafetensorsTensor& tensor : all) keyed.push_back({{tensor.name}, tensor});
    runtime::write_dcp(path, keyed, {});
  });
}

void write_snapshot(DocumentWriter& out, int64_t entries) {
  out.begin_map();
  out.key("segments");
  out.begin_list();
  out.end_list();
  out.key("device_traces");
  out.begin_list();
  out.begin_list();
  for (int64_t i = 0; i < entries; ++i) {
    out.begin_map();
    out.field("action", i % 2 == 0 ? "alloc" : "free_completed");
    out.field("addr", (i / 2 + 1) << 9);
    out.field("size", int64_t{512});
    out.field("stream", int64_t{0});
    out.field("time_us", i);
    out.end_map();
  }
  out.end_list();
  out.end_list();
  out.end_map();
  out.finish();
}

template <bool kAsPickle>
void make_snapshot(const std::string& path, int64_t entries) {
  std::ofstream out(path, std::ios::binary);
  const auto writer = kAsPickle ? pickle_writer(out) : json_writer(out);
  write_snapshot(*writer, entries);
}

void make_recording(const std::string& path, int64_t events) {
  tests::write_large_recording(path, events);
}

void make_events(const std::string& path, int64_t lines) {
  std::ofstream out(path);
  for (int64_t i = 0; i < lines; ++i)
    out << R"({"kind":"step","step":7,"text":"of a run"})"
           "\n";
}

void make_manifest(const std::string& path, int64_t files) {
  runtime::Manifest manifest{.step = 1, .files = {}};
  for (int64_t i = 0; i < files; ++i) {
    manifest.files.push_back({fmt::format("model-{}.safetensors", i), 10, 7});
  }
  tests::write_file(path, runtime::to_json(manifest));
}

void make_images(const std::string& path, int64_t images) {
  fs::create_directory(path);
  tests::write_idx_dataset(
      path, {.train = static_cast<uint32_t>(images), .test = 10, .px = 28, .classes = 10});
}

void make_gzipped_images(const std::string& path, int64_t images) {
  make_images(path, images);
  for (const std::string set : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const std::string plain = path + "/" + set;
    tests::write_gzip_file(plain + ".gz", tests::read_file(plain));
    fs::remove(plain);
  }
}

void make_picture(const std::string& path, int64_t rows) {
  tests::write_picture(path, tests::plain_picture(1000, static_cast<int>(rows), 9, 99, 199));
}

/// A list in a configuration, which is refused by name after it was read.
template <int kNotation>
void make_configuration(const std::string& path, int64_t values) {
  constexpr std::array<const char*, 3> kBegin = {"{\"unknown\":[0", "unknown: [0", "unknown = [0"};
  constexpr std::array<const char*, 3> kEnd = {"]}", "]\n", "]\n"};
  std::string text = kBegin[kNotation];
  for (int64_t i = 1; i < values; ++i) text += ",0";
  tests::write_file(path, text + kEnd[kNotation]);
}

void read_configuration(const std::string& path) { planner::parse_arguments({"--config", path}); }

void export_html(const std::string& path) {
  profiler::export_command({path, "--format", "html", "--out", path + ".html"},
                           {.write_page = viewer::export_page});
}

const std::vector<ReaderCase> kCases = {
    {"w.safetensors, tensors", 1000, make_safetensors,
     [](const std::string& path) { models::SafetensorsFile{path}; }},
    {"w.pt, tensors", 500, make_torch_file,
     [](const std::string& path) { runtime::read_saved_state(path); }},
    {"dcp, tensors", 500, make_dcp,
     [](const std::string& path) { runtime::read_saved_state(path); }},
    {"snapshot.pickle, entries", 5000, make_snapshot<true>,
     [](const std::string& path) { profiler::import_memory_viz_file(path); }},
    {"snapshot.json, entries", 2000, make_snapshot<false>,
     [](const std::string& path) { profiler::import_memory_viz_file(path); }},
    {"rank0.slp, events (report)", 20'000, make_recording,
     [](const std::string& path) { profiler::report_of(path); }},
    {"rank0.slp, events (html)", 20'000, make_recording, export_html},
    {"events.jsonl, lines", 2000, make_events,
     [](const std::string& path) { runtime::read_events(path); }},
    {"manifest.json, files", 1000, make_manifest,
     [](const std::string& path) { runtime::parse_manifest(tests::read_file(path)); }},
    {"IDX, images", 600, make_images, [](const std::string& path) { models::load_dataset(path); }},
    {"IDX.gz, images", 600, make_gzipped_images,
     [](const std::string& path) { models::load_dataset(path); }},
    {"i.png, rows of 1000", 80, make_picture,
     [](const std::string& path) { models::decode_image(path, 3); }},
    {"c.json, values", 90, make_configuration<0>, read_configuration},
    {"c.yaml, values", 90, make_configuration<1>, read_configuration},
    {"c.toml, values", 90, make_configuration<2>, read_configuration},
};

int64_t bytes_below(const fs::path& path) {
  if (!fs::is_directory(path)) return static_cast<int64_t>(fs::file_size(path));
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path)) bytes += bytes_below(entry.path());
  return bytes;
}

/// The least of three readings: other programs only add to the time. The beginning of the name is
/// the name of the case.
tests::ReaderCost measure(const ReaderCase& reader, int64_t items, int64_t& bytes) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file(reader.name.substr(0, reader.name.find(',')));
  reader.make(path, items);
  bytes = bytes_below(path);
  const auto read = [&] { reader.read(path); };
  tests::ReaderCost least = tests::cost_of(read);
  for (int i = 1; i < 3 && !least.is_ended; ++i) {
    const tests::ReaderCost again = tests::cost_of(read);
    if (again.is_ended || again.cpu_s < least.cpu_s) least = again;
  }
  return least;
}

}  // namespace

TEST_CASE("the time and memory of every reader grow as what it reads does", "[growth][long]") {
  fmt::print("{:<28}{:>10}{:>12}{:>12}{:>12}\n", "reader", "items", "bytes", "ms on a core",
             "MiB beyond");
  for (const ReaderCase& reader : kCases) {
    std::vector<tests::ReaderCost> costs;
    for (const int64_t times : kTimes) {
      int64_t bytes = 0;
      costs.push_back(measure(reader, reader.items * times, bytes));
      fmt::print("{:<28}{:>10}{:>12}{:>12.1f}{:>12.1f}\n", reader.name, reader.items * times, bytes,
                 1e3 * costs.back().cpu_s,
                 static_cast<double>(costs.back().peak_bytes) / (1 << 20));
    }
    INFO(reader.name);
    CHECK_FALSE(costs[2].is_ended);
    CHECK(costs[2].cpu_s < kMostGrowth * std::max(costs[1].cpu_s, kLeastCpu_s));
    CHECK(static_cast<double>(costs[2].peak_bytes) <
          kMostGrowth * static_cast<double>(std::max(costs[1].peak_bytes, kLeastBytes)));
  }
}
