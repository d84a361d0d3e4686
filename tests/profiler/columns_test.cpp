#include "profiler/file/columns.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <stdexcept>
#include <string_view>

#include "base/checksum/crc32c.h"
#include "base/checksum/crc32c_instruction.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/synthetic_profile.h"

namespace shardlens::profiler {
namespace {

std::vector<Event> through_columns(std::span<const Event> events) {
  EventEncoder encoder;
  EventDecoder decoder;
  std::vector<Event> decoded;
  const Bytes& bytes = encoder.encode(events);
  CHECK(decoder.decode(bytes, static_cast<uint32_t>(events.size()), decoded) == 0);
  return decoded;
}

Bytes encoded(std::span<const Event> events) {
  EventEncoder encoder;
  return encoder.encode(events);
}

}  // namespace

TEST_CASE("crc32c is the one of RFC 3720") {
  const auto crc_of_text = [](std::string_view text) {
    return crc32c(std::as_bytes(std::span(text)));
  };
  CHECK(crc_of_text("") == 0);
  CHECK(crc_of_text("123456789") == 0xE3069283);
  CHECK(crc_of_text(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc_of_text(std::string(32, '\xFF')) == 0x62A8AB43);
}

TEST_CASE("the checksums of two parts combine to that of both") {
  std::string text(3000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i % 251);
  const auto bytes = std::as_bytes(std::span(text));
  for (const size_t cut : {0, 1, 7, 8, 1000, 2999, 3000}) {
    const auto second = bytes.subspan(cut);
    CHECK(crc32c_joined(crc32c(bytes.first(cut)), crc32c(second), second.size()) == crc32c(bytes));
    CHECK(crc32c(second, crc32c(bytes.first(cut))) == crc32c(bytes));
  }
}

TEST_CASE("random events pass the columns unchanged") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  for (int round = 0; round < 50; ++round) {
    const std::vector<Event> events = tests::random_events(engine, engine() % 3000);
    CHECK(through_columns(events) == events);
  }
}

TEST_CASE("a synthetic training passes the columns unchanged") {
  const Profile profile = tests::synthetic_profile({.steps = 6});
  CHECK(through_columns(profile.events) == profile.events);
}

TEST_CASE("extreme values pass the columns unchanged") {
  std::vector<Event> events(4);
  events[0] = {.time_ns = INT64_MIN,
               .address = UINT64_MAX,
               .value = INT64_MIN,
               .action = INT32_MIN,
               .label = UINT32_MAX,
               .stream = UINT16_MAX};
  events[1] = {.time_ns = INT64_MAX, .address = 0, .value = INT64_MAX, .action = INT32_MAX};
  events[2] = {.time_ns = 0, .address = UINT64_MAX, .value = INT64_MAX, .kind = EventKind::free};
  events[3] = {.address = UINT64_MAX, .value = INT64_MIN, .kind = EventKind::counter};
  CHECK(through_columns(events) == events);
}

TEST_CASE("an encoder used again gives what a new one gives") {
  std::mt19937_64 engine(1);
  EventEncoder encoder;
  for (const size_t count : {3000, 10, 0, 500, 3000}) {
    const std::vector<Event> events = tests::random_events(engine, count);
    CHECK(encoder.encode(events) == encoded(events));
  }
}

TEST_CASE("events of a kind or space of a later version are left out") {
  std::vector<Event> events = {tests::numbered_event(0), tests::numbered_event(1),
                               tests::numbered_event(2)};
  Bytes bytes = encoded(events);
  // The classes follow the lengths, the second is that of the second event.
  const size_t classes = sizeof(uint32_t) * 9 + 16;
  for (const size_t field : {0, 1}) {
    Bytes changed = bytes;
    changed[classes + 6 + field] = std::byte{200};
    std::vector<Event> decoded;
    EventDecoder decoder;
    CHECK(decoder.decode(changed, 3, decoded) == 1);
    CHECK(decoded == std::vector<Event>{events[0], events[2]});
  }
  bytes[classes + 2] = std::byte{200};  // the category
  std::vector<Event> decoded;
  CHECK(EventDecoder().decode(bytes, 3, decoded) == 0);
  REQUIRE(decoded.size() == 3);
  CHECK(decoded[0].category == Category::other);
}

TEST_CASE("the processor's instruction and the tables give one checksum") {
  const Crc32cUpdate instruction = find_crc32c_instruction();
  if (instruction == nullptr) SKIP("this processor has no instruction for it");
  std::mt19937_64 engine(7);
  std::vector<std::byte> bytes(100'000);  // the instruction takes 24 KiB at once
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size = 0; begin + size < bytes.size(); size += 1 + size / 8) {
      const auto part = std::span(bytes).subspan(begin, size);
      CHECK(instruction(0x12345678, part) == update_by_tables(0x12345678, part));
    }
    for (const size_t size : {24'575, 24'576, 24'577, 73'728, 73'735}) {
      const auto part = std::span(bytes).subspan(begin, size);
      CHECK(instruction(0x12345678, part) == update_by_tables(0x12345678, part));
    }
  }
}

TEST_CASE("columns of arbitrary bytes are decoded or refused") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const Bytes sound = encoded(tests::random_events(engine, 300));
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Bytes bytes = sound;
    for (int i = 0; i < 3; ++i) bytes[engine() % bytes.size()] = static_cast<std::byte>(engine());
    if (round % 5 == 0) bytes.resize(engine() % bytes.size());
    std::vector<Event> decoded;
    try {
      EventDecoder().decode(bytes, static_cast<uint32_t>(engine() % 600), decoded);
    } catch (const std::runtime_error&) {
      ++refused;
      CHECK(decoded.empty());
    }
  }
  CHECK(refused > 0);
}

}  // namespace shardlens::profiler
