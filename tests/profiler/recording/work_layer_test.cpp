// The layer of a recording that has the trace of work: what is written is read, also by blocks, and
// damaged bytes never pass for whole ones.

#include "profiler/file/work_layer.h"

#include <fmt/format.h>

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "profiler/file/reader.h"
#include "profiler/file/writer.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {
namespace {

class RandomWork {
 public:
  explicit RandomWork(uint64_t seed) : random_(seed) {}

  int64_t number(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

  Work work(WorkEncoder& encoder) {
    Work work{.kind = static_cast<WorkKind>(number(kWords<WorkKind>.size() - 1))};
    work.name = encoder.string(fmt::format("kernel {}", number(30)));
    work.call = encoder.call(call(encoder));
    const auto size = [&] { return number(1) == 0 ? number(64) : number(int64_t{1} << 40); };
    if (work.kind == WorkKind::kernel) {
      for (auto& blocks : work.launch.grid) blocks = static_cast<uint32_t>(number(UINT32_MAX));
      for (auto& threads : work.launch.block) threads = static_cast<uint32_t>(number(1024));
      work.launch.shared_bytes = static_cast<uint32_t>(number(230'000));
    }
    if (work.kind == WorkKind::product) {
      work.product = {.m = size(),
                      .n = size(),
                      .k = size(),
                      .batch = number(9),
                      .a = type(),
                      .b = type(),
                      .c = type(),
                      .compute = type(),
                      .transposes_a = number(1) == 1,
                      .epilogue = Epilogue::gelu};
    }
    if (work.kind == WorkKind::copy || work.kind == WorkKind::set ||
        work.kind == WorkKind::memory) {
      work.copy = {.bytes = size(), .kind = CopyKind::device_to_host, .blocks = number(1) == 1};
    }
    if (work.kind == WorkKind::collective) {
      work.collective = {.kind = CollectiveKind::all_to_all, .bytes = size(), .type = type()};
      work.collective.communicator =
          encoder.communicator({.size = 8, .rank = 3, .world_ranks = {0, 2, 4, 6, 8, 10, 12, 14}});
      work.collective.peer = static_cast<int32_t>(number(8)) - 1;
    }
    return work;
  }

  OperatorCall call(WorkEncoder& encoder) {
    OperatorCall call{.name = encoder.string(fmt::format("aten::op{}", number(5))),
                      .in_backward = number(1) == 1,
                      .inputs = {}};
    for (int64_t i = number(3); i > 0; --i) {
      call.inputs.push_back({.type = type(),
                             .tensors = static_cast<uint32_t>(number(2)),
                             .sizes = {number(4096), -1, number(4096)}});
    }
    return call;
  }

  WorkItem item(WorkEncoder& encoder, const WorkItem& last) {
    const Work asked = work(encoder);
    const bool is_about_item = asked.kind == WorkKind::event_wait ||
                               asked.kind == WorkKind::event_synchronize ||
                               asked.kind == WorkKind::event_query;
    WorkItem item{.time_ns = last.time_ns + number(100'000),
                  .own_ns = number(5'000),
                  .work = encoder.work(asked),
                  .stream = static_cast<uint16_t>(number(3)),
                  .thread = static_cast<uint16_t>(number(1)),
                  .graph = static_cast<uint32_t>(number(1))};
    if (is_about_item && encoder.items() > 0) item.about = number(encoder.items()) - 1;
    if (!is_about_item) item.about = number(2) - 1;
    return item;
  }

 private:
  NumberType type() { return static_cast<NumberType>(number(kWords<NumberType>.size() - 1)); }

  std::mt19937_64 random_;
};

/// The blocks of a random trace, and its items.
struct EncodedTrace {
  std::vector<WorkBlock> blocks;
  std::vector<WorkItem> items;
};

EncodedTrace encode_random(uint64_t seed, int blocks, int items) {
  EncodedTrace trace;
  WorkEncoder encoder;
  RandomWork random(seed);
  for (int block = 0; block < blocks; ++block) {
    for (int i = 0; i < items; ++i) {
      trace.items.push_back(
          random.item(encoder, trace.items.empty() ? WorkItem{} : trace.items.back()));
      encoder.add(trace.items.back());
    }
    trace.blocks.push_back(encoder.take());
  }
  return trace;
}

WorkTrace decode_all(const std::vector<WorkBlock>& blocks) {
  WorkTrace trace;
  for (const WorkBlock& block : blocks) decode_work(block.payload, block.count, trace);
  return trace;
}

/// Every number that a program follows leads somewhere, whatever the bytes were.
void expect_sound(const WorkTrace& trace) {
  for (const WorkItem& item : trace.items) {
    REQUIRE(item.work < trace.work.size());
    const WorkKind kind = trace.work_of(item).kind;
    REQUIRE(static_cast<size_t>(kind) < kWords<WorkKind>.size());
    if (kind == WorkKind::event_wait)
      REQUIRE(item.about < static_cast<int64_t>(trace.items.size()));
  }
  for (const Work& work : trace.work) {
    REQUIRE(work.name < trace.strings.size());
    REQUIRE(work.call < trace.calls.size());
    REQUIRE(work.collective.communicator < trace.communicators.size());
  }
  for (const OperatorCall& call : trace.calls) REQUIRE(call.name < trace.strings.size());
}

const std::string kFixture = SHARDLENS_SOURCE_DIR "/tests/fixtures/profile/v1.6-work.slp";

/// The trace that the fixture holds: a product, a copy, two streams, a step and a collective.
WorkTrace fixture_trace() {
  WorkTrace trace;
  trace.strings = {"", "cublasLtMatmul", "aten::addmm", "void fill<float>(float*)",
                   "ncclAllReduce"};
  trace.calls = {{}, {2, true, {{NumberType::bf16, 1, {8, 4}}, {NumberType::boolean, 0, {1}}}}};
  trace.communicators = {{}, {4, 1, {1, 3, 5, 7}}};
  trace.work = {
      {.kind = WorkKind::product,
       .name = 1,
       .call = 1,
       .product = {.m = 8, .n = 2, .k = 4, .a = NumberType::bf16, .compute = NumberType::fp32}},
      {.kind = WorkKind::kernel, .name = 3, .launch = {.grid = {7, 1, 1}, .block = {128, 1, 1}}},
      {.kind = WorkKind::event_record},
      {.kind = WorkKind::event_wait},
      {.kind = WorkKind::copy, .copy = {4096, CopyKind::device_to_host, true, true}},
      {.kind = WorkKind::step},
      {.kind = WorkKind::collective,
       .name = 4,
       .collective = {CollectiveKind::all_reduce, 1 << 20, NumberType::fp16, 1, -1, false}}};
  trace.items = {{.time_ns = 1000, .work = 0},
                 {.time_ns = 3000, .own_ns = 400, .work = 1},
                 {.time_ns = 3500, .work = 2},
                 {.time_ns = 4000, .about = 2, .work = 3, .stream = 1},
                 {.time_ns = 4100, .work = 4, .stream = 1, .thread = 1, .graph = 2},
                 {.time_ns = 9000, .about = 0, .work = 5},
                 {.time_ns = 9100, .work = 6, .stream = 2}};
  return trace;
}

WorkBlock encode(const WorkTrace& trace) {
  WorkEncoder encoder;
  for (const std::string& text : trace.strings) encoder.string(text);
  for (const OperatorCall& call : trace.calls) encoder.call(call);
  for (const WorkCommunicator& one : trace.communicators) encoder.communicator(one);
  for (const Work& work : trace.work) encoder.work(work);
  for (const WorkItem& item : trace.items) encoder.add(item);
  return encoder.take();
}

}  // namespace

TEST_CASE("the trace of the first version that had one is read") {
  const WorkTrace read = read_work(kFixture), wanted = fixture_trace();
  CHECK(read.faults.empty());
  CHECK(read.strings == wanted.strings);
  CHECK(read.calls == wanted.calls);
  CHECK(read.communicators == wanted.communicators);
  CHECK(read.work == wanted.work);
  CHECK(read.items == wanted.items);
}

// Run once: the file is never written again.
TEST_CASE("write the fixture of a trace of work", "[.fixture]") {
  if (std::filesystem::exists(kFixture)) SKIP("it exists");
  Writer writer(kFixture, tests::header_of_rank(0));
  writer.append_work(encode(fixture_trace()));
}

TEST_CASE("a trace of work is read as it was written, in one block or many") {
  const uint64_t seed = Catch::getSeed();
  CAPTURE(seed);
  const EncodedTrace written = encode_random(seed, 3, 400);
  const WorkTrace read = decode_all(written.blocks);
  CHECK(read.items == written.items);
  expect_sound(read);
  CHECK(decode_all(encode_random(seed, 1, 1200).blocks).items == written.items);
  WorkEncoder encoder;  // the same pieces in a fresh encoder get the same numbers
  RandomWork random(seed);
  for (size_t i = 0; i < written.items.size(); ++i) {
    encoder.add(random.item(encoder, i == 0 ? WorkItem{} : written.items[i - 1]));
  }
  const WorkTrace again = decode_all({encoder.take()});
  CHECK(again.work == read.work);
  CHECK(again.calls == read.calls);
  CHECK(again.communicators == read.communicators);
  CHECK(again.strings == read.strings);
}

TEST_CASE("a piece of work keeps all that it says") {
  WorkEncoder encoder;
  const Work product{.kind = WorkKind::product,
                     .name = encoder.string("cublasLtMatmul"),
                     .call = encoder.call({.name = encoder.string("aten::addmm"),
                                           .in_backward = true,
                                           .inputs = {{NumberType::bf16, 1, {128, 64}},
                                                      {NumberType::int64, 0, {-2}}}}),
                     .product = {.m = 128,
                                 .n = 32,
                                 .k = 64,
                                 .batch = 5,
                                 .a = NumberType::bf16,
                                 .b = NumberType::bf16,
                                 .c = NumberType::fp32,
                                 .compute = NumberType::tf32,
                                 .transposes_a = true,
                                 .transposes_b = false,
                                 .epilogue = Epilogue::bias}};
  const Work kernel{
      .kind = WorkKind::kernel,
      .launch = {.grid = {UINT32_MAX, 2, 3}, .block = {256, 1, 1}, .shared_bytes = 9}};
  const Work sent{.kind = WorkKind::collective,
                  .collective = {.kind = CollectiveKind::send,
                                 .bytes = int64_t{1} << 40,
                                 .type = NumberType::fp16,
                                 .communicator = encoder.communicator({4, 1, {1, 3, 5, 7}}),
                                 .peer = 2,
                                 .joins_previous = true}};
  const std::vector<Work> all = {product, kernel, sent};
  for (const Work& work : all) encoder.add({.work = encoder.work(work)});
  const WorkTrace read = decode_all({encoder.take()});
  CHECK(read.work == all);
  CHECK(read.calls[product.call].inputs[1].sizes == std::vector<int64_t>{-2});
  CHECK(read.calls[product.call].in_backward);
  CHECK(read.strings[read.calls[product.call].name] == "aten::addmm");
  CHECK(read.communicators[1] == WorkCommunicator{4, 1, {1, 3, 5, 7}});
}

TEST_CASE("the host's time is the interval less the recorder's own") {
  WorkTrace trace;
  trace.items = {{.time_ns = 100}, {.time_ns = 150, .own_ns = 20}, {.time_ns = 160, .own_ns = 30}};
  CHECK(trace.host_ns(0) == 0);
  CHECK(trace.host_ns(1) == 30);
  CHECK(trace.host_ns(2) == 0);  // its parts were measured apart: never less than nothing
}

TEST_CASE("damaged blocks of work are refused or sound", "[damage]") {
  const uint64_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const EncodedTrace whole = encode_random(seed, 2, 60);
  int refused = 0;
  for (int attempt = 0; attempt < 4000; ++attempt) {
    WorkTrace trace = decode_all({whole.blocks[0]});
    Bytes bytes = whole.blocks[1].payload;
    const auto at = random() % bytes.size();
    if (attempt % 3 == 0) bytes.resize(at);
    if (attempt % 3 != 0) bytes[at] = static_cast<std::byte>(random());
    if (attempt % 3 == 2) bytes[random() % bytes.size()] = std::byte{0xFF};
    const uint32_t count = attempt % 7 == 0 ? UINT32_MAX : whole.blocks[1].count;
    try {
      decode_work(bytes, count, trace);
    } catch (const std::runtime_error&) {
      ++refused;
      REQUIRE(trace.items.size() == whole.blocks[0].count);
    }
    expect_sound(trace);
  }
  CHECK(refused > 1500);
  WorkTrace trace;
  CHECK_THROWS_AS(decode_work(whole.blocks[1].payload, whole.blocks[1].count, trace),
                  std::runtime_error);
}

TEST_CASE("a growing recording has the trace of work that has settled") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const EncodedTrace written = encode_random(7, 20, 10);
  Writer writer(path, tests::header_of_rank(0));
  CHECK(writer.settle_work());
  size_t items = 0;
  for (const WorkBlock& block : written.blocks) {
    writer.append_work(block);
    items += block.count;
    REQUIRE(writer.settle_work());
    CHECK(read_work(path).items.size() == items);
  }
  writer.close();
  CHECK(read_work(path).items == written.items);
  writer.append_work(written.blocks.front());
  CHECK(writer.settle_work());  // it was dropped
}

TEST_CASE("a trace of work is a layer of a recording, and ends where it is damaged") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  const EncodedTrace written = encode_random(7, 3, 100);
  {
    Writer writer(path, tests::header_of_rank(0), {.block_events = 100, .blocks = 8});
    for (int64_t i = 0; i < 250; ++i) writer.append(tests::numbered_event(i));
    for (const WorkBlock& block : written.blocks) writer.append_work(block);
    const WorkTrace growing = read_work(path);
    CHECK((growing.empty() || !growing.faults.empty()));
  }
  const WorkTrace read = read_work(path);
  CHECK(read.items == written.items);
  CHECK(read.faults.empty());
  CHECK(Reader(path).has_work());
  CHECK(read_profile(path).judgement.state == RecordingState::whole);
  CHECK(read_profile(path).events.size() == 250);
  CHECK(check_profile(path).problems.empty());

  const FileReport file = check_profile(path);
  std::vector<BlockReport> of_work;
  for (const BlockReport& block : file.blocks) {
    if (block.type == "work") of_work.push_back(block);
  }
  REQUIRE(of_work.size() == 3);
  std::string bytes = tests::read_file(path);
  bytes[of_work[1].offset + of_work[1].bytes - 1] ^= 1;
  tests::write_file(path, bytes);
  const WorkTrace cut = read_work(path);
  CHECK(cut.items == std::vector(written.items.begin(), written.items.begin() + 100));
  CHECK(cut.faults.size() == 1);
  CHECK(read_profile(path).events.size() == 250);  // memory is told in whole
  CHECK_FALSE(check_profile(path).problems.empty());
}

TEST_CASE("a recording without a trace of work has an empty one") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("rank0.slp");
  { Writer writer(path, tests::header_of_rank(0)); }
  CHECK(read_work(path).empty());
  CHECK(read_work(path).faults.empty());
  CHECK_FALSE(Reader(path).has_work());
}

}  // namespace shardlens::profiler
