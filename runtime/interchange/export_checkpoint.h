// `shardlens checkpoint export`: a checkpoint of ours as files that PyTorch reads.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint_reader.h"

namespace shardlens::runtime {

struct ExportTargets {
  std::string dcp;             // folder for torch.distributed.checkpoint.load; empty: none
  std::string safetensors;     // file of the model
  std::string pt;              // file for torch.load(weights_only=True)
  std::string prefix = "app";  // of dcp: the key that the program loads its state under
};

/// Writes all that is asked for and returns what to tell the user. Throws std::invalid_argument
/// where a target is there already or cannot hold the model, std::runtime_error where the disk
/// fails.
std::string export_checkpoint(const CheckpointReader& reader, const ExportTargets& targets);

}  // namespace shardlens::runtime
