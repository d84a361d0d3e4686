// Writes a recording for tests/bench/report_time.

#include <fmt/format.h>

#include <string>

#include "tests/support/recordings/large_recording.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: write_large_recording FILE.slp EVENTS\n");
    return 2;
  }
  const auto counts = shardlens::tests::write_large_recording(argv[1], std::stoll(argv[2]));
  fmt::print("{} events, {} lost, {} bytes\n", counts.events, counts.lost, counts.bytes);
  return counts.lost == 0 ? 0 : 1;
}
