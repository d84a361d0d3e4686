// The entry point for libFuzzer; HARNESS is the harness that the program was built for.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/harness.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  shardlens::fuzz::HARNESS({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
