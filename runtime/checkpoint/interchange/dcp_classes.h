// Lists the full names of the classes and functions in pickles of PyTorch's distributed checkpoints
// that we read and write.
#pragma once

#include <string_view>

namespace shardlens::runtime::dcp {

constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata.Metadata";
constexpr std::string_view kTensor = "torch.distributed.checkpoint.metadata.TensorStorageMetadata";
constexpr std::string_view kBytes = "torch.distributed.checkpoint.metadata.BytesStorageMetadata";
constexpr std::string_view kProperties = "torch.distributed.checkpoint.metadata.TensorProperties";
constexpr std::string_view kMemoryFormat =
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING";
constexpr std::string_view kChunk = "torch.distributed.checkpoint.metadata.ChunkStorageMetadata";
constexpr std::string_view kIndex = "torch.distributed.checkpoint.metadata.MetadataIndex";
constexpr std::string_view kStorageInfo = "torch.distributed.checkpoint.filesystem._StorageInfo";
constexpr std::string_view kLayout = "torch.serialization._get_layout";
constexpr std::string_view kSize = "torch.Size";
constexpr std::string_view kFloat32 = "torch.float32";

}  // namespace shardlens::runtime::dcp
