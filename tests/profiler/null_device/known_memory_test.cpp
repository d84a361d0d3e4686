// Compares the device's known bytes with a list that has each byte.
#include "profiler/null_device/driver/known_memory.h"

#include <cuda_runtime_api.h>
#include <catch2/catch_all.hpp>
#include <iostream>
#include <optional>
#include <random>
#include <vector>

#include "tests/profiler/null_device/case_process.h"

using namespace shardlens;
using profiler::KnownMemory;

namespace {

constexpr size_t kBytes = 256;

/// Holds the memory that the table should know, one byte each.
struct Bytes {
  std::vector<std::optional<char>> at = std::vector<std::optional<char>>(kBytes);

  bool knows(size_t first, size_t size) const {
    for (size_t i = first; i < first + size; ++i) {
      if (!at[i]) return false;
    }
    return true;
  }
};

struct Range {
  size_t first = 0;
  size_t size = 0;
};

Range draw_range(std::mt19937_64& random) {
  const size_t first = random() % kBytes;
  return {first, random() % (kBytes - first) + 1};
}

void change(KnownMemory& known, uint64_t memory, Bytes& bytes, std::mt19937_64& random) {
  const auto [first, size] = draw_range(random);
  const bool forgets = random() % 3 == 0;
  std::vector<char> values(size);
  for (char& value : values) value = static_cast<char>(random());
  if (forgets) {
    known.forget(memory + first, size);
  } else {
    known.know(memory + first, values.data(), size);
  }
  for (size_t i = 0; i < size; ++i) {
    bytes.at[first + i] = forgets ? std::nullopt : std::optional(values[i]);
  }
}

/// Returns false if the table and the bytes disagree about a range.
bool agree(KnownMemory& known, uint64_t memory, const Bytes& bytes, std::mt19937_64& random) {
  const auto [first, size] = draw_range(random);
  std::vector<char> read(size);
  const bool is_known = known.read(read.data(), memory + first, size);
  if (is_known != bytes.knows(first, size) || is_known != known.knows(memory + first, size)) {
    return false;
  }
  for (size_t i = 0; is_known && i < size; ++i) {
    if (read[i] != *bytes.at[first + i]) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("know and forget ranges", "[.process]") {
  KnownMemory* const known = profiler::find_known_memory();
  if (known == nullptr) {
    std::cout << "> nothing is known\n";
    return;
  }
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  constexpr uint64_t kMemory = uint64_t{1} << 40;
  Bytes bytes;
  for (int i = 0; i < 20000; ++i) {
    change(*known, kMemory, bytes, random);
    if (agree(*known, kMemory, bytes, random)) continue;
    std::cout << "> seed " << seed << ": change " << i << "\n";
    return;
  }
  std::cout << "> as one by one\n";
}

TEST_CASE("ranges of the device are known byte by byte") {
  CHECK(tests::output_of_case("know and forget ranges", "SHARDLENS_NULL_KEEP_COPIES=1") ==
        "as one by one\n");
  CHECK(tests::output_of_case("know and forget ranges", "SHARDLENS_NULL_KEEP_COPIES=0") ==
        "nothing is known\n");
}

TEST_CASE("copy set and read", "[.process]") {
  char* memory = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), size_t{4} << 20) == cudaSuccess);
  const auto read = [&](const char* from) {
    char value = 1;
    cudaMemcpy(&value, from, 1, cudaMemcpyDeviceToHost);
    return int{value};
  };
  const std::vector<char> large(size_t{2} << 20, 5);
  cudaMemset(memory, 7, 100);
  cudaMemcpy(memory + 200, memory + 50, 50, cudaMemcpyDeviceToDevice);
  std::cout << "> " << read(memory + 99) << " " << read(memory + 249);
  const uint64_t before = shardlens_null_unknown_reads();
  std::cout << " " << read(memory + 100) << " unknown " << shardlens_null_unknown_reads() - before;
  cudaMemcpy(memory, large.data(), large.size(), cudaMemcpyHostToDevice);  // too many to keep
  std::cout << ", then " << read(memory) << "\n";
}

TEST_CASE("copies and memsets make bytes known, except large ones") {
  CHECK(tests::output_of_case("copy set and read", "SHARDLENS_NULL_KEEP_COPIES=1") ==
        "7 7 0 unknown 1, then 0\n");
}
