// Mistakes in how a run was set up that its values or its memory would only hint at. The user's to
// mend: what can be told before a rank starts is told by prepare_job; here is what only the ranks
// know, and what is worth a warning.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/comm/board.h"
#include "runtime/comm/channels.h"
#include "runtime/job.h"

namespace shardlens::runtime {

class Meeting;

/// Whether the rank needs a GPU that no other rank of this host is on, as NCCL demands.
bool needs_own_gpu(const Job& job);

/// Tells the GPU of `rank` on the board, waits for those of the ranks before it and throws
/// std::invalid_argument where one is the same; CommunicationError where one did not come in time.
void expect_own_gpu(const Board& board, int rank, const GpuUuid& gpu,
                    std::chrono::milliseconds deadline);

/// Puts the GPUs of all ranks before `rank` on its own board, for expect_own_gpu, and tells its
/// own. For ranks that share no board.
void hear_gpus(Meeting& meeting, int rank, const GpuUuid& gpu);

/// Compares what the ranks were started with, over all of them; throws std::invalid_argument with
/// the first flag that is not the same on each. Does nothing where no peers are there.
void expect_same_job(const Job& job, int rank, const Channels& channels);

/// Lines for the user: most of a model in one group, more ranks than samples to give them.
std::vector<std::string> warnings_about(const Job& job);

}  // namespace shardlens::runtime
