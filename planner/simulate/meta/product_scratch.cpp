#include "planner/simulate/meta/product_scratch.h"

#include <algorithm>
#include <bit>

#include "base/units.h"

namespace shardlens::planner::meta {

namespace {

/// The code with which oneDNN multiplies.
enum class ProductCode {
  none,      // LibTorch's own loops
  widening,  // AVX-512, but not for this type: sums in fp32, then a copy
  vectors,   // AVX-512 for the type
  tiles      // AMX
};

ProductCode code_of(const Processor& processor, Type type) {
  if (!processor.avx512) return ProductCode::none;
  if (type == Type::bf16) {
    if (processor.amx_bf16) return ProductCode::tiles;
    if (processor.avx512_bf16) return ProductCode::vectors;
    return ProductCode::widening;
  }
  if (type != Type::fp16) return ProductCode::none;
  if (processor.amx_fp16) return ProductCode::tiles;
  return processor.avx512_fp16 ? ProductCode::vectors : ProductCode::none;
}

// Tiles and vectors hold copies of what they multiply, cut into pieces in the order that the
// instructions want, and sums of a piece. The constants are the least that cover what oneDNN took
// in LibTorch 2.11 for shapes drawn at random, as in tests/planner/simulate/operators_test.cpp,
// with ONEDNN_MAX_CPU_ISA for processors that were not at hand. To fit them for another LibTorch,
// run the test "products in reduced precision take no more than the planner says", which names a
// product that takes more, and raise the constant of its branch by the difference; other seeds
// and processors must pass, too.
constexpr int64_t kSum = 4;

/// True if rows lie a power of two apart, so that they share one set of the cache; many such
/// matrices are copied by oneDNN.
bool is_far_apart(const ProductSizes& sizes, int64_t least_inner) {
  return sizes.rows >= 1024 && sizes.inner >= least_inner &&
         std::has_single_bit(static_cast<uint64_t>(sizes.inner));
}

constexpr int64_t kElement = 2, kLong = 768;  // of tiles: bytes, and a long inner length

/// Returns the bytes of a thread.
int64_t tiles_bytes(const ProductSizes& sizes) {
  constexpr int64_t kMostRows = 256, kMostFirst = 9 << 17;
  const int64_t inner = std::max<int64_t>(round_up(sizes.inner, 32), 64);
  const bool is_even = sizes.inner % 32 == 0;
  int64_t bytes = is_even ? 22528 : 46080;
  if (!is_even && !sizes.transposed && sizes.inner > 512) bytes += kSum * kMostRows * kMostRows;
  if (inner > kLong) bytes += 18 * inner;
  const int64_t columns = sizes.inner < 1024 && sizes.columns > 64 ? 128 : 224;
  bytes += kElement * inner * std::min(round_up(sizes.columns, 64), columns);
  if (is_far_apart(sizes, 4096)) bytes += kElement * kMostRows * inner;
  if (!sizes.transposed) return bytes;
  if (!is_even && inner > kLong) bytes += 20480;
  int64_t rows = round_up(sizes.rows, 64);
  if (sizes.rows > 64 && sizes.rows != rows) rows += 64;
  bytes += std::min(kElement * std::min(rows, kMostRows) * inner, kMostFirst);
  // oneDNN cuts an inner length above 512, and copies more columns the shorter it is. A line covers
  // what it took for 48,000 products; from a length of about 800 on, the sum above is larger.
  const bool is_cut = inner > 512 && sizes.rows > 128 && sizes.columns > 256;
  return is_cut ? std::max(bytes, 330 * inner + 398336) : bytes;
}

/// Returns what a product by tiles takes besides that if its first matrix is not copied. Since
/// LibTorch 2.15 oneDNN copies all of the second one, for all threads or for each, and may keep the
/// sums of a long product: fitted to be no less than any of 6,200 products drawn as in
/// tests/planner/simulate/operators_test.cpp took, on one processor, and 0.5 MB more in the median.
int64_t whole_second_bytes(const ProductSizes& sizes, int threads) {
  constexpr int64_t kMostOfThread = 5 << 18;
  const int64_t inner = std::max<int64_t>(round_up(sizes.inner, 32), 64);
  const int64_t columns = round_up(sizes.columns, 64);
  const int64_t copy = kElement * inner * columns;
  const int64_t sums = inner > kLong ? kSum * round_up(sizes.rows, 64) * columns : 0;
  return std::max(copy, threads * std::min(copy, kMostOfThread)) + sums;
}

/// Returns the bytes of a product by vectors. oneDNN takes up to 256 rows of the first matrix and
/// 64 columns of the second at a time. An inner length above 512 is cut, and if the first matrix is
/// copied the sums of up to 1024 columns wait for the last piece: compute_blocking_heuristic_avx512
/// in oneDNN's brgemm_matmul_utils.cpp.
int64_t vectors_bytes(Type type, const ProductSizes& sizes, int threads) {
  constexpr int64_t kFixed = 1152, kCacheLine = 64, kColumns = 64, kMostRows = 256;
  const auto& [whole_rows, whole_inner, whole_columns, transposed] = sizes;
  const bool is_fp16 = type == Type::fp16;
  const int64_t element = is_fp16 ? 4 : 2;  // fp16 is multiplied as fp32
  const int64_t line = kCacheLine / element;
  const int64_t piece = whole_inner > 1024 && !transposed ? 1024 : 512;
  const int64_t inner = std::min(round_up(whole_inner, line), piece);
  const int64_t rows = std::min(whole_rows, kMostRows);
  const bool is_copied = is_fp16 || transposed || whole_inner % 2 != 0 || is_far_apart(sizes, 1);
  const bool waits = is_copied && whole_inner > 512;
  const int64_t columns = std::min<int64_t>(round_up(whole_columns, kColumns), waits ? 1024 : 64);
  int64_t sums = rows * columns;
  // A long product of few columns is shared by several threads, each of which holds sums of the
  // whole product.
  const bool is_shared =
      transposed && whole_inner >= 2048 && whole_columns <= (threads - 1) * kColumns;
  if (is_shared) sums = std::max(sums, whole_rows * whole_columns);
  // The copy's rows are not a power of two apart either: 512 and 1024 get a line more.
  const int64_t first = is_copied ? rows * (inner + (inner >= 512 ? line : 0)) : 0;
  return kFixed + element * (first + inner * kColumns) + kSum * sums;
}

}  // namespace

int64_t product_scratch_bytes(const Context& context, Type type, const ProductSizes& sizes) {
  // LibTorch decides this in use_mkldnn_matmul of Matmul.cpp.
  constexpr int64_t kLeastProduct = 16 * 16 * 16, kAligned = 128;
  if (context.is_cuda() || sizes.rows * sizes.inner * sizes.columns <= kLeastProduct) return 0;
  const ProductCode code = code_of(context.processor, type);
  if (code == ProductCode::none) return 0;
  if (code == ProductCode::widening) {
    return round_up(kSum * sizes.rows * sizes.columns, kAligned) + 2 * kAligned * context.threads;
  }
  if (code == ProductCode::tiles) {
    const int64_t whole = sizes.transposed ? 0 : whole_second_bytes(sizes, context.threads);
    return context.threads * tiles_bytes(sizes) + whole;
  }
  return context.threads * vectors_bytes(type, sizes, context.threads);
}

void take_product_scratch(Context& context, Type type, const ProductSizes& sizes) {
  const int64_t bytes = product_scratch_bytes(context, type, sizes);
  if (bytes > 0) Tensor::empty(context, {bytes}, Type::boolean);
}

}  // namespace shardlens::planner::meta
