// Embedding, which looks up rows of a table by their number, and the table's gradient: LibTorch's
// native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu, native/Embedding.cpp.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/units.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

// [Note: CUB] These functions count the memory that CUB's algorithms take for 8-byte keys and
// values: parts, each rounded up to 256 bytes, and 255 bytes to align the first. Tile sizes are
// those of CUB's tuning for the machine code that LibTorch has for a GPU.
constexpr int64_t kPartAlignment = 256;
constexpr int64_t kSlackBytes = kPartAlignment - 1;
constexpr int64_t kIndexBytes = 8;

struct CubTiles {
  int64_t sort, unique;
};

CubTiles tiles_of(const Context& context) {
  constexpr int64_t kLargeSort = 4608, kSmallSort = 3840, kVoltaSort = 2816, kSmallUnique = 320;
  const models::UniqueTiles& unique = context.torch->unique_tiles;
  const ComputeCapability& capability = context.gpu->capability;
  if (capability.major >= 10) return {kLargeSort, unique.blackwell};
  if (capability.major == 9) return {kLargeSort, unique.hopper};
  if (capability.major < 8) return {kVoltaSort, kSmallUnique};
  if (capability.minor == 0) return {kSmallSort, unique.a100};
  return {kSmallSort, kSmallUnique};
}

int64_t part_bytes(int64_t bytes) { return round_up(bytes, kPartAlignment); }

/// Returns the bytes of DeviceRadixSort's one-sweep algorithm in `passes` of a byte each: counts of
/// all digits, those of each tile, and both arrays once more, between which passes go to and fro.
int64_t sort_bytes(int64_t count, int64_t tile, int64_t passes) {
  constexpr int64_t kDigits = 256, kOffsetBytes = 8, kStateBytes = 4;
  const int64_t arrays = passes > 1 ? 2 * part_bytes(count * kIndexBytes) : 0;
  return part_bytes(passes * kDigits * kOffsetBytes) +
         part_bytes(ceil_div(count, tile) * kDigits * kStateBytes) + arrays +
         part_bytes(passes * kStateBytes) + kSlackBytes;
}

/// Returns cuda::cub::get_num_bits of the number of rows, in bytes: each pass sorts by one byte.
int64_t sort_passes(const Context& context, int64_t vocabulary) {
  constexpr int64_t kBitsOfPass = 8;
  if (!context.torch->sorts_used_digits) return kIndexBytes;
  return ceil_div(std::bit_width(static_cast<uint64_t>(vocabulary)), kBitsOfPass);
}

/// Returns the bytes of a pass in which each tile looks back at those before: DeviceScan,
/// DeviceSelect::UniqueByKey.
int64_t scan_bytes(int64_t count, int64_t tile) {
  constexpr int64_t kPadding = 32, kStateBytes = 16;
  return part_bytes((ceil_div(count, tile) + kPadding) * kStateBytes) + part_bytes(1) + kSlackBytes;
}

/// Takes `bytes` and frees them at once.
void take(Context& context, int64_t bytes) { Tensor::empty(context, {bytes}, Type::uint8); }

Tensor indices(Context& context, int64_t count) {
  return Tensor::empty(context, {count}, Type::int64);
}

/// The rows in use and their parts: a part sums the gradients of at most 10 ids of one row.
struct Parts {
  int64_t segments;  // rows in use, at most
  int64_t count;     // parts of all of them, at most

  Parts(int64_t ids, int64_t vocabulary)
      : segments(std::min(ids, vocabulary)), count(ids / 10 + segments) {}

  /// True if each part is added to its row at once: there are too few rows to fill the GPU.
  bool add_at_once(int64_t width, const Gpu& gpu) const {
    constexpr int64_t kWarp = 32, kMostThreads = 1024, kBlocksPerProcessor = 4;
    const int64_t lanes = round_up(width, kWarp);
    const int64_t blocks = ceil_div(segments * lanes, std::min(lanes, kMostThreads));
    return blocks < gpu.sm_count * kBlocksPerProcessor && count > blocks * 4;
  }
};

/// Models embedding_backward_cuda_kernel for ids that have been sorted. `gradient` is [ids, width].
Tensor sum_sorted(const Tensor& gradient, const Sizes& sizes, const CubTiles& tiles) {
  Context& context = gradient.context();
  const Type type = gradient.scalar_type();
  const int64_t ids = gradient.numel() / sizes[1], width = sizes[1];
  Tensor result = Tensor::empty(context, sizes, type);
  const Parts parts(ids, sizes[0]);
  const Holder segment_starts(indices(context, ids));
  const Holder segment_count(indices(context, 1));
  {
    const Holder unique_ids(indices(context, ids));
    take(context, scan_bytes(ids, tiles.unique));
  }
  constexpr int64_t kScanTile = 896;
  const Holder part_counts(indices(context, parts.segments));
  const Holder part_starts(indices(context, parts.segments));
  take(context, scan_bytes(parts.segments, kScanTile));
  const Holder part_count(indices(context, 1));
  const Holder part_offsets(indices(context, parts.count));
  if (parts.add_at_once(width, *context.gpu)) {
    const Holder segment_of_part(indices(context, parts.count));
    if (is_reduced(type)) take(context, sizes.product() * bytes_of(Type::fp32));
  } else {
    take(context, parts.count * width * bytes_of(Type::fp32));
  }
  return result;
}

/// Models embedding_dense_backward.
Tensor table_gradient(const Tensor& given_gradient, const Tensor& ids, const Sizes& sizes) {
  constexpr int64_t kMostUnsorted = 3072;
  const Tensor gradient = given_gradient.contiguous();
  Context& context = gradient.context();
  if (!context.is_cuda() || ids.numel() <= kMostUnsorted) {
    return Tensor::empty(context, sizes, gradient.scalar_type());
  }
  const CubTiles tiles = tiles_of(context);
  const Holder sorted(indices(context, ids.numel()));
  const Holder order(indices(context, ids.numel()));
  {
    const Holder positions(indices(context, ids.numel()));
    take(context, sort_bytes(ids.numel(), tiles.sort, sort_passes(context, sizes[0])));
  }
  return sum_sorted(gradient, sizes, tiles);
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  Context& context = weight.context();
  const CallScope call(context);
  Sizes sizes = ids.sizes();
  sizes.push_back(weight.size(1));
  Tensor output = Tensor::empty(context, sizes, weight.scalar_type());
  return with_node(output, {&weight}, {ids},
                   [table = weight.sizes()](Node& self, Tensors&& gradients) {
                     return Tensors{table_gradient(gradients[0], self.saved[0], table)};
                   });
}

}  // namespace shardlens::planner::meta
