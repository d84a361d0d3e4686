// Builds a DriverWatch that watches nothing, for a CUPTI that is older than driver.cpp needs: in
// recorders that `shardlens record` builds for PyTorches other than the build's own.
#include "profiler/recorder/driver.h"

namespace shardlens::profiler {

class DriverWatch::Account {};
class DriverWatch::Subscription {};

DriverWatch::DriverWatch(Sink)
    : account_([]() -> Account& {
        static Account none;
        return none;
      }()),
      unavailable_("CUPTI unavailable: PyTorch's is from CUDA 12, but 13.0.1 is needed") {}

DriverWatch::~DriverWatch() = default;

}  // namespace shardlens::profiler
