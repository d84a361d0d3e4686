// CUPTI's activity records, which a client receives in its own buffers.
#pragma once

namespace shardlens::profiler {

/// Hands back the last buffer and forgets the client.
void stop_recording();

}  // namespace shardlens::profiler
