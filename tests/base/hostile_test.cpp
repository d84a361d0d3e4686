// Small files that once cost minutes, gigabytes or the whole process to read. Each reader is
// measured in its own process, so that a relapse fails here and harms nothing.
#include <fmt/format.h>
#include <zlib.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/document/pickle_writer.h"
#include "models/data/image_file.h"
#include "models/spec.h"
#include "models/weights/safetensors.h"
#include "models/weights/torch_file.h"
#include "planner/config/arguments.h"
#include "planner/config/strategy.h"
#include "planner/schedule/wrap.h"
#include "profiler/commands/exchange_commands.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/file/format.h"
#include "profiler/file/reader.h"
#include "profiler/report/recording_report.h"
#include "runtime/checkpoint/checkpoint_commands.h"
#include "runtime/checkpoint/interchange/saved_state.h"
#include "tests/support/image_files.h"
#include "tests/support/recordings/reader_cost.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace std::string_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr double kMostCpu_s = 5;  // for a slow machine or a sanitizer; these take milliseconds
constexpr int64_t kMiB = int64_t{1} << 20;

void check_cheap(const tests::ReaderCost& cost, int64_t most_bytes) {
  CHECK_FALSE(cost.is_ended);
  CHECK(cost.cpu_s < kMostCpu_s);
  CHECK(cost.peak_bytes < most_bytes);
}

std::string refusal_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const std::exception& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "";
}

// --- pickles -------------------------------------------------------------------------------------

std::string put_memo(uint32_t memo) { return "r" + little_endian(memo); }
std::string get_memo(uint32_t memo) { return "j" + little_endian(memo); }
std::string text(const std::string& value) {
  return "X" + little_endian(static_cast<uint32_t>(value.size())) + value;
}

std::string archive_of(const std::string& pickle) {
  std::ostringstream out;
  models::write_torch_value(out, pickle);
  return out.str();
}

/// A dict of dicts of dicts ...: each level mentions the one below it eight times.
std::string shared_dicts(int levels) {
  std::string pickle = "\x80\x02";
  for (uint32_t level = 0; level < static_cast<uint32_t>(levels); ++level) {
    pickle += "}" + put_memo(level) + "(";
    for (int i = 0; i < 64; ++i) {
      pickle += text(fmt::format("k{}", i)) + (level == 0 ? "K\x07"s : get_memo(level - 1));
    }
    pickle += "u";
    if (level + 1 < static_cast<uint32_t>(levels)) pickle += "0";
  }
  return pickle + ".";
}

/// `segments` that all have the same list of `blocks`.
std::string shared_blocks(int segments, int blocks) {
  std::string pickle = "\x80\x02]" + put_memo(0) + "(";
  for (int i = 0; i < blocks; ++i) {
    pickle += "}(" + text("size") + "M\x00\x02"s + text("state") + text("active_allocated") + "u";
  }
  pickle += "e0}(" + text("segments") + "](";
  for (int i = 0; i < segments; ++i) {
    pickle += "}(" + text("device") + "K\x00"s + text("address") + "J" +
              little_endian(static_cast<uint32_t>(i) << 9) + text("total_size") + "M\x00\x02"s +
              text("blocks") + get_memo(0) + "u";
  }
  return pickle + "eu.";
}

// --- archives ------------------------------------------------------------------------------------

/// `entries` entries of a zip archive, all over the same bytes.
std::string shared_entries(uint16_t entries, size_t bytes) {
  const std::string data(bytes, 'x');
  const auto crc =
      static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
  const auto size = static_cast<uint32_t>(bytes);
  const std::string about =
      "\0\0\0\0\0\0\0\0\0\0"s + little_endian(crc) + little_endian(size) + little_endian(size);
  std::string archive =
      "PK\x03\x04"s + about + little_endian<uint16_t>(1) + little_endian<uint16_t>(0) + "a" + data;
  const auto begin = static_cast<uint32_t>(archive.size());
  for (uint32_t i = 0; i < entries; ++i) {
    const std::string name = fmt::format("a/data/{}", i);
    archive += "PK\x01\x02\0\0"s + about + little_endian(static_cast<uint16_t>(name.size())) +
               std::string(12, '\0') + little_endian<uint32_t>(0) + name;
  }
  const auto directory = static_cast<uint32_t>(archive.size()) - begin;
  return archive + "PK\x05\x06\0\0\0\0"s + little_endian(entries) + little_endian(entries) +
         little_endian(directory) + little_endian(begin) + "\0\0"s;
}

// --- recordings ----------------------------------------------------------------------------------

/// A block that claims a million events, with columns that are all zeros: each event is an
/// allocation at one address.
std::string recording_of_nothing(int blocks) {
  using namespace profiler;
  BlockCodec codec;
  Preamble preamble{.id = 1};
  preamble.crc = crc_of(preamble);
  Bytes file;
  put(file, preamble);
  const auto add = [&](BlockHeader header, const Bytes& payload) {
    const Bytes block = codec.pack(header, payload);
    file.insert(file.end(), block.begin(), block.end());
  };
  add({.type = BlockType::header}, encode_header({.device = "cpu"}));
  Bytes columns;
  put(columns, uint32_t{8});
  for (const uint32_t bytes : {6, 0, 0, 0, 0, 0, 0, 0}) put(columns, bytes);
  columns.resize(columns.size() + 16);
  put(columns, Event{}.kind);
  put(columns, Space::host);
  columns.resize(columns.size() + 4);
  for (int i = 0; i < blocks; ++i) {
    add({.type = BlockType::events,
         .sequence = static_cast<uint64_t>(i) + 1,
         .count = kMaxBlockEvents},
        columns);
  }
  add({.type = BlockType::end, .sequence = static_cast<uint64_t>(blocks) + 1}, {});
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

/// Headers that each claim all bytes behind them, with checksums that do not match.
std::string nested_blocks(int count) {
  using namespace profiler;
  Preamble preamble{.id = 1};
  preamble.crc = crc_of(preamble);
  Bytes file;
  put(file, preamble);
  for (int left = count; left-- > 0;) {
    BlockHeader header{.type = BlockType::events, .sequence = 1};
    header.raw_bytes = header.stored_bytes = static_cast<uint32_t>(left * sizeof header);
    header.payload_crc = 1;
    header.header_crc = crc_of(header);
    put(file, header);
  }
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

// --- images --------------------------------------------------------------------------------------

std::string png_chunk(const std::string& kind, const std::string& data) {
  const auto big_endian = [](uint32_t word) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift);
    return bytes;
  };
  const std::string summed = kind + data;
  const auto crc = static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(summed.data()), summed.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + summed + big_endian(crc);
}

std::string png(uint16_t width, uint16_t height, const std::string& pixels) {
  const auto side = [](uint16_t n) {
    return "\0\0"s + static_cast<char>(n >> 8) + static_cast<char>(n & 0xff);
  };
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", side(width) + side(height) + "\x08\x02\0\0\0"s) +
         png_chunk("IDAT", pixels) + png_chunk("IEND", "");
}

}  // namespace

TEST_CASE("a header of 40,000 tensors costs what it has bytes", "[hostile]") {
  const tests::TemporaryFolder folder;
  std::string header = "{";
  for (int i = 0; i < 40'000; ++i) {
    header += fmt::format("{}\"t{}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                          i == 0 ? "" : ",", i);
  }
  header += "}";
  const std::string path = folder.file("w.safetensors");
  tests::write_file(path, little_endian(uint64_t{header.size()}) + header);
  const tests::ReaderCost cost = tests::cost_of([&] { models::SafetensorsFile{path}; });
  check_cheap(cost, 100 * kMiB);
  CHECK_FALSE(cost.is_refused);
}

TEST_CASE("an archive's entries share no bytes", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("w.pt");
  tests::write_file(path, shared_entries(60'000, size_t{8} << 20));
  check_cheap(tests::cost_of([&] { runtime::read_saved_state(path); }), 100 * kMiB);
  CHECK_THAT(refusal_of([&] { runtime::read_saved_state(path); }),
             ContainsSubstring("two entries share their bytes"));
}

TEST_CASE("values that a pickle mentions again and again are counted", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("w.pt");
  tests::write_file(path, archive_of(shared_dicts(5)));
  check_cheap(tests::cost_of([&] { runtime::read_saved_state(path); }), 100 * kMiB);
  CHECK_THAT(refusal_of([&] { runtime::read_saved_state(path); }),
             ContainsSubstring("repeats its contents so often"));
  // A program that keeps one dict under two names mentions it twice.
  tests::write_file(path, archive_of("\x80\x02}(" + text("model") + "}" + put_memo(0) + "(" +
                                     text("a") + "K\x01u" + text("ema") + get_memo(0) + "u."));
  CHECK(runtime::read_saved_state(path).numbers.size() == 2);
}

TEST_CASE("a tensor has at most as many dimensions as PyTorch allows", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("w.pt");
  PickleWriter pickle;
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.mark().text("storage").global("torch", "FloatStorage").text("0").text("cpu").number(0);
  pickle.tuple().persistent().number(0).numbers(std::vector<int64_t>(65, 1));
  pickle.numbers(std::vector<int64_t>(65, 1)).boolean(false).none().tuple().reduce();
  tests::write_file(path, archive_of(std::move(pickle).stop()));
  CHECK_FALSE(refusal_of([&] { runtime::read_saved_state(path); }).empty());
}

TEST_CASE("segments of a snapshot share no blocks", "[hostile]") {
  const std::string pickle = shared_blocks(100'000, 100'000);
  check_cheap(tests::cost_of([&] { profiler::import_memory_viz(pickle); }), 500 * kMiB);
  CHECK_THAT(refusal_of([&] { profiler::import_memory_viz(pickle); }),
             ContainsSubstring("two segments share a list of blocks"));
}

TEST_CASE("a map of 100,000 keys shared by 10,000 entries is searched once", "[hostile]") {
  std::string pickle = "\x80\x02}" + put_memo(0) + "(";
  for (int i = 0; i < 100'000; ++i) pickle += text(fmt::format("k{}", i)) + "N";
  pickle += "u0}(" + text("device_traces") + "](](";
  for (int i = 0; i < 10'000; ++i) pickle += get_memo(0);
  pickle += "}(" + text("action") + text("alloc") + text("addr") + "K\x01" + text("size") +
            "K\x08" + "uee" + "u.";
  const tests::ReaderCost cost = tests::cost_of([&] { profiler::import_memory_viz(pickle); });
  check_cheap(cost, 200 * kMiB);
  CHECK_FALSE(cost.is_refused);
}

TEST_CASE("an export of millions of events keeps what is alive, not the events", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  tests::write_file(path, recording_of_nothing(8));
  REQUIRE(tests::read_file(path).size() < 4096);
  const tests::ReaderCost cost = tests::cost_of([&] {
    profiler::export_command({path, "--format", "csv", "--out", folder.file("out")}, {});
  });
  CHECK_FALSE(cost.is_refused);
  CHECK_FALSE(cost.is_ended);
  CHECK(cost.peak_bytes < 200 * kMiB);  // 8 Mi events of 40 bytes each
}

TEST_CASE("overlapping damaged blocks are read a few times, not once each", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  tests::write_file(path, nested_blocks(200'000));
  const tests::ReaderCost cost = tests::cost_of([&] { profiler::report_of(path); });
  check_cheap(cost, 500 * kMiB);
}

TEST_CASE("an image is named if its decoder gives no reason", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("i.png");
  tests::write_file(path, png(28, 28, "\x78\x9c\x07"));
  for (const int64_t channels : {1, 3}) {
    CHECK_THAT(refusal_of([&] { models::decode_image(path, channels); }),
               ContainsSubstring(path + ": cannot be read as an image"));
  }
}

TEST_CASE("the size of an image is decided by its header", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("i.png");
  tests::write_file(path, png(12'000, 12'000, std::string(1 << 20, 'x')));
  check_cheap(tests::cost_of([&] { models::decode_image(path, 3); }), 20 * kMiB);
  CHECK_THAT(refusal_of([&] { models::decode_image(path, 3); }),
             ContainsSubstring("12000 x 12000 pixels; at most 67108864 in all are decoded"));
  tests::write_file(path, png(8000, 8000, "\x78\x9c\x07"));
  check_cheap(tests::cost_of([&] { models::decode_image(path, 3); }), 20 * kMiB);
  CHECK_THAT(refusal_of([&] { models::decode_image(path, 3); }),
             ContainsSubstring("claims 8000 x 8000 pixels"));
}

TEST_CASE("a chunk that claims more bytes than its image file has takes no memory", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("i.png");
  std::string bytes = png(28, 28, "\x78\x9c\x07");
  bytes.replace(bytes.find("IDAT") - 4, 4, "\x3f\xff\xff\xff");
  tests::write_file(path, bytes);
  check_cheap(tests::cost_of([&] { models::decode_image(path, 3); }), 20 * kMiB);
  CHECK_THAT(refusal_of([&] { models::decode_image(path, 3); }),
             ContainsSubstring("it ends inside a chunk"));
}

TEST_CASE("deep nesting in any notation is refused before it costs anything", "[hostile]") {
  const tests::TemporaryFolder folder;
  std::string dotted = "a";
  for (int i = 1; i < 20'000; ++i) dotted += ".a";
  const std::string lists = std::string(20'000, '[') + std::string(20'000, ']');
  std::string maps;
  for (int i = 0; i < 20'000; ++i) maps += "{a: ";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"c.toml", dotted + " = 1\n"},
      {"c.toml", "[" + dotted + "]\nb = 1\n"},
      {"c.toml", "a = " + lists + "\n"},
      {"c.toml", "a = { " + dotted + " = 1 }\n"},
      {"c.toml", "# '\na = \"\\\"\"\n'''" + std::string(3, '\'') + "\nb = " + lists + "\n"},
      {"c.yaml", lists},
      {"c.yaml", maps + std::string(20'000, '}')},
      {"c.json", "{\"a\":" + lists + "}"}};
  for (const auto& [name, content] : files) {
    const std::string path = folder.file(name);
    tests::write_file(path, content);
    const auto read = [&] { planner::parse_arguments({"--config", path}); };
    INFO(name << ": " << content.substr(0, 20));
    check_cheap(tests::cost_of(read), 50 * kMiB);
    CHECK_THAT(refusal_of(read), ContainsSubstring(path));
  }
}

TEST_CASE("a configuration's ordinary depth, quotes and comments are read", "[hostile]") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("c.toml");
  tests::write_file(path,
                    "# [[[[ isn't counted\n[training]\n\"steps\" = 5 # '\n"
                    "'local_batch_size' = 2\nseq_len = 16\n");
  CHECK(planner::parse_arguments({"--config", path}).config.steps == 5);
}

TEST_CASE("expressions with nested quantifiers are matched in linear time", "[hostile]") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  for (const char* expression : {"((a*)*)*b", "(.*)*(.*)*(.*)*x", "(([a-z0-9_.])+)+!"}) {
    const auto wrap = [&] {
      planner::wrap_units(spec, {.kind = planner::WrapKind::module, .module = expression});
    };
    check_cheap(tests::cost_of(wrap), 50 * kMiB);
  }
}
