// Finds mistakes in how a run was set up that the run's values or memory would only hint at, and
// that the user must fix. prepare_job reports what is known before a rank starts; this file checks
// what only the ranks know, and what is worth a warning.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/comm/board/board.h"
#include "runtime/comm/channels.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

class RendezvousStore;

/// True if the rank needs a GPU that no other rank of this host uses, as NCCL demands.
bool needs_own_gpu(const Job& job);

/// Writes the GPU of `rank` on the board, and waits for the GPUs of the ranks before it. Throws
/// std::invalid_argument if one of them is the same GPU, CommunicationError if a rank did not write
/// its GPU in time.
void expect_own_gpu(const Board& board, int rank, const GpuUuid& gpu,
                    std::chrono::milliseconds deadline);

/// Writes the GPUs of all ranks before `rank` on its own board, for expect_own_gpu, and sends its
/// own GPU to the others. It is for ranks that share no board.
void exchange_gpus(RendezvousStore& store, int rank, const GpuUuid& gpu);

/// Compares what all ranks were started with. Throws std::invalid_argument that names the first
/// flag that differs between ranks. Does nothing if there are no peers.
void expect_same_job(const Job& job, int rank, const Channels& channels);

/// Returns warnings for the user: most of a model is in one group, or there are more ranks than
/// samples.
std::vector<std::string> warnings_about(const Job& job);

}  // namespace shardlens::runtime
