#include "tests/fuzz/checksums.h"

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "base/checksum/crc32c.h"

namespace shardlens::fuzz {

namespace {

template <class Number>
Number number_at(const std::string& file, size_t at) {
  Number number = 0;
  if (at + sizeof number <= file.size()) std::memcpy(&number, file.data() + at, sizeof number);
  return number;
}

void set_number(std::string& file, size_t at, uint32_t number) {
  if (at + sizeof number <= file.size()) std::memcpy(file.data() + at, &number, sizeof number);
}

std::span<const std::byte> range(const std::string& file, size_t at, size_t bytes) {
  return std::as_bytes(std::span(file)).subspan(at, bytes);
}

/// Puts their checksum after the last `bytes` bytes.
void close_with_crc32c(std::string& file, size_t at, size_t bytes) {
  if (at + bytes + sizeof(uint32_t) > file.size()) return;
  set_number(file, at + bytes, crc32c(range(file, at, bytes)));
}

}  // namespace

void repair_recording(std::string& file) {
  constexpr size_t kPreambleBytes = 32, kHeaderBytes = 64;
  constexpr size_t kStoredBytesAt = 40, kPayloadCrcAt = 44;
  close_with_crc32c(file, 0, kPreambleBytes - sizeof(uint32_t));
  size_t block = file.find("SLBK");
  while (block != std::string::npos && block + kHeaderBytes <= file.size()) {
    const size_t payload = block + kHeaderBytes;
    const size_t bytes = number_at<uint32_t>(file, block + kStoredBytesAt);
    const bool is_whole = bytes <= file.size() - payload;
    if (is_whole) {
      set_number(file, block + kPayloadCrcAt, crc32c(range(file, payload, bytes)));
    }
    close_with_crc32c(file, block, kHeaderBytes - sizeof(uint32_t));
    block = file.find("SLBK", is_whole ? payload + bytes : payload);
  }
}

void repair_open_blocks(std::string& file) {
  constexpr size_t kMinorAt = 10, kPreambleBytes = 40;
  constexpr uint16_t kUncheckedMinor = 1;
  if (file.size() < kPreambleBytes) return;
  std::memcpy(file.data() + kMinorAt, &kUncheckedMinor, sizeof kUncheckedMinor);
  close_with_crc32c(file, 0, kPreambleBytes - sizeof(uint32_t));
}

void repair_archive(std::string& file) {
  constexpr char kEntry[] = "PK\1\2";
  constexpr size_t kEntryBytes = 46, kLocalBytes = 30;
  for (size_t at = file.find(kEntry); at != std::string::npos; at = file.find(kEntry, at + 1)) {
    if (at + kEntryBytes > file.size()) return;
    const size_t bytes = number_at<uint32_t>(file, at + 24);
    const size_t local = number_at<uint32_t>(file, at + 42);
    const size_t data = local + kLocalBytes + number_at<uint16_t>(file, local + 26) +
                        number_at<uint16_t>(file, local + 28);
    if (data > file.size() || bytes > file.size() - data) continue;
    const auto* begin = reinterpret_cast<const Bytef*>(file.data() + data);
    set_number(file, at + 16, static_cast<uint32_t>(::crc32_z(0, begin, bytes)));
  }
}

}  // namespace shardlens::fuzz
