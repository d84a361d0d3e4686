// Implements `shardlens checkpoint export`: writes one of our checkpoints as files that PyTorch
// reads.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_reader.h"

namespace shardlens::runtime {

struct ExportTargets {
  std::string dcp;             // folder for torch.distributed.checkpoint.load; empty: none
  std::string safetensors;     // file of the model
  std::string pt;              // file for torch.load(weights_only=True)
  std::string prefix = "app";  // of dcp: the key under which the program loads its state
};

/// Writes all targets that were asked for, and returns the lines for the user. Throws
/// std::invalid_argument if a target exists already or cannot hold the model, std::runtime_error if
/// the disk fails.
std::string export_checkpoint(const CheckpointReader& reader, const ExportTargets& targets);

}  // namespace shardlens::runtime
