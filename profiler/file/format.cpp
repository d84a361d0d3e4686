#include "profiler/file/format.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "base/check.h"
#include "base/checksum/crc32c.h"

namespace shardlens::profiler {

namespace {

constexpr int kZstdLevel = 3;  // 9 saves nothing here and takes five times as long

enum Field : uint16_t {
  rank_field = 1,
  world_size_field,
  device_field,
  gpu_field,
  capacity_field,
  notice_field,
  config_field,
  train_field,
  evaluate_field,
  libraries_field,
  start_field,
};

void put_field(Bytes& bytes, Field field, std::string_view text) {
  put(bytes, static_cast<uint16_t>(field));
  put(bytes, static_cast<uint32_t>(text.size()));
  put_text(bytes, text);
}

void put_field(Bytes& bytes, Field field, int64_t number) {
  std::string text(sizeof number, '\0');
  std::memcpy(text.data(), &number, sizeof number);
  put_field(bytes, field, text);
}

int64_t number_of(std::string_view text) {
  int64_t number = 0;
  std::memcpy(&number, text.data(), std::min(text.size(), sizeof number));
  return number;
}

void set_field(Header& header, uint16_t field, std::string_view text) {
  switch (field) {
    case rank_field:
      header.rank = static_cast<int32_t>(number_of(text));
      break;
    case world_size_field:
      header.world_size = static_cast<int32_t>(number_of(text));
      break;
    case device_field:
      header.device = text;
      break;
    case gpu_field:
      header.gpu = text;
      break;
    case capacity_field:
      header.capacity_bytes = number_of(text);
      break;
    case notice_field:
      header.notice = text;
      break;
    case config_field:
      header.config = text;
      break;
    case train_field:
      header.train = text;
      break;
    case evaluate_field:
      header.evaluate = text;
      break;
    case libraries_field:
      header.libraries = text;
      break;
    case start_field:
      header.start_realtime_ns = std::clamp(number_of(text), int64_t{0}, kMaxStart_ns);
      break;
    default:
      break;  // a field of a newer minor version
  }
}

}  // namespace

template <class T>
uint32_t crc_of(const T& value) {
  return crc32c(bytes_of(value).first(sizeof value - sizeof(uint32_t)));
}
static_assert(offsetof(Preamble, crc) + sizeof(uint32_t) == sizeof(Preamble));
static_assert(offsetof(BlockHeader, header_crc) + sizeof(uint32_t) == sizeof(BlockHeader));
template uint32_t crc_of(const Preamble& preamble);
template uint32_t crc_of(const BlockHeader& header);

void put_text(Bytes& bytes, std::string_view text) {
  const ByteSpan added = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), added.begin(), added.end());
}

std::string_view ByteReader::take_text(size_t bytes) {
  if (rest.size() < bytes) {
    failed = true;
    rest = {};
    return {};
  }
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), bytes);
  rest = rest.subspan(bytes);
  return text;
}

Bytes encode_header(const Header& header) {
  Bytes bytes;
  put_field(bytes, rank_field, header.rank);
  put_field(bytes, world_size_field, header.world_size);
  put_field(bytes, device_field, header.device);
  put_field(bytes, gpu_field, header.gpu);
  put_field(bytes, capacity_field, header.capacity_bytes);
  put_field(bytes, notice_field, header.notice);
  put_field(bytes, config_field, header.config);
  put_field(bytes, train_field, header.train);
  put_field(bytes, evaluate_field, header.evaluate);
  put_field(bytes, libraries_field, header.libraries);
  put_field(bytes, start_field, header.start_realtime_ns);
  return bytes;
}

bool decode_header(ByteSpan bytes, Header& header) {
  ByteReader reader{bytes};
  while (!reader.rest.empty()) {
    const auto field = reader.take<uint16_t>();
    const auto length = reader.take<uint32_t>();
    const std::string_view text = reader.take_text(length);
    if (reader.failed) return false;
    set_field(header, field, text);
  }
  return true;
}

void put_string(Bytes& bytes, const NumberedString& string) {
  check(string.text.size() <= kMaxStringBytes, "a string is longer than readers take");
  check((string.id & ~(kFrameEntry | kStackEntry)) != 0, "a string has the number that means none");
  put(bytes, string.id);
  put(bytes, static_cast<uint32_t>(string.text.size()));
  put_text(bytes, string.text);
}

std::vector<NumberedString> decode_strings(ByteSpan bytes) {
  std::vector<NumberedString> strings;
  ByteReader reader{bytes};
  while (!reader.rest.empty()) {
    const auto id = reader.take<uint32_t>();
    const auto length = reader.take<uint32_t>();
    const std::string_view text = reader.take_text(length);
    if (reader.failed) break;
    strings.push_back({id, text});
  }
  return strings;
}

struct BlockCodec::Contexts {
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> compress{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> decompress{ZSTD_createDCtx(), ZSTD_freeDCtx};
};

BlockCodec::BlockCodec() : contexts_(std::make_unique<Contexts>()) {
  if (!contexts_->compress || !contexts_->decompress) throw std::bad_alloc();
}
BlockCodec::~BlockCodec() = default;

Bytes BlockCodec::pack(BlockHeader header, ByteSpan payload) {
  constexpr size_t kHeader = sizeof(BlockHeader);
  if (payload.size() > kMaxBlockBytes) throw std::length_error("a block's payload is too large");
  Bytes block(kHeader + ZSTD_compressBound(payload.size()));
  const size_t packed =
      ZSTD_compressCCtx(contexts_->compress.get(), block.data() + kHeader, block.size() - kHeader,
                        payload.data(), payload.size(), kZstdLevel);
  header.codec = Codec::zstd;
  size_t stored = packed;
  if (ZSTD_isError(packed) != 0 || packed >= payload.size()) {
    header.codec = Codec::raw;
    stored = payload.size();
    if (stored > 0) std::memcpy(block.data() + kHeader, payload.data(), stored);
  }
  check(stored <= payload.size(), "a block grows when it is packed");
  block.resize(kHeader + stored);
  header.raw_bytes = static_cast<uint32_t>(payload.size());
  header.stored_bytes = static_cast<uint32_t>(stored);
  header.payload_crc = crc32c(ByteSpan(block).subspan(kHeader));
  header.header_crc = crc_of(header);
  std::memcpy(block.data(), &header, kHeader);
  return block;
}

void BlockCodec::unpack(const BlockHeader& header, ByteSpan stored, Bytes& payload) {
  if (crc32c(stored) != header.payload_crc) {
    throw std::runtime_error("its checksum does not match its bytes");
  }
  if (header.codec == Codec::raw) {
    payload.assign(stored.begin(), stored.end());
    return;
  }
  if (header.codec != Codec::zstd) throw std::runtime_error("unknown compression");
  payload.resize(header.raw_bytes);
  const size_t size = ZSTD_decompressDCtx(contexts_->decompress.get(), payload.data(),
                                          payload.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) != 0 || size != header.raw_bytes) {
    throw std::runtime_error("it does not decompress to the size that it names");
  }
}

}  // namespace shardlens::profiler
