// Answers cuSPARSE's calls: descriptors of matrices, which keep their sizes, and an upper bound of
// the workspace of each product. Products do nothing.
//
// [Note: cuSPARSE's workspaces] NVIDIA's documentation says which routines need extra storage, not
// how much. The bound assumes that a routine at most reorders a matrix: a copy of each sparse
// operand with two indices an element and one bound per row and column, where a solve also keeps a
// copy of the result; and one allowance a call.
//
// How many elements a product of two sparse matrices has depends on their values. If the null
// device knows their compressed rows (known_memory.h) it counts the elements; else the product has
// none, and a doubt is reported.
#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "profiler/null_device/driver/known_memory.h"
#include "profiler/null_device/driver/workspace_bounds.h"
#include "profiler/null_device/handle.h"

using shardlens::profiler::Bound;
using shardlens::profiler::create;
using shardlens::profiler::destroy;
using shardlens::profiler::kLibrarySuccess;
using shardlens::profiler::KnownMemory;

namespace {

constexpr Bound kSparse = {
    "a workspace of cuSPARSE",
    "workspaces of cuSPARSE are upper bounds: NVIDIA gives no size without a GPU; a copy of each "
    "sparse matrix in another order is assumed"};
constexpr Bound kSum = {"a sum of sparse matrices",
                        "sums of sparse matrices are upper bounds: their matrices are assumed to "
                        "have no element in common"};
constexpr Bound kUnknownProduct = {
    "",
    "products of sparse matrices have no elements here if it is not known which they have: they "
    "may take more on a GPU"};

constexpr uint64_t kAllowance = 65'536;
constexpr uint64_t kLargestElement = 16;  // a complex number in double precision
constexpr uint64_t kLargestIndex = 8;

struct SparseMatrix {
  int64_t rows = 0, columns = 0, elements = 0;
  uint64_t element_bytes = 0, index_bytes = 0;
  int64_t matrices = 1;
  // Compressed rows, as cusparseCreateCsr has them.
  uint64_t row_offsets = 0, column_indices = 0;
};

struct DenseMatrix {
  int64_t elements = 0;
  uint64_t element_bytes = 0;
};

uint64_t bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_8I:
      return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
    case CUDA_C_16F:
    case CUDA_C_16BF:
      return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    default:
      return kLargestElement;
  }
}

uint64_t index_bytes(int type) {
  constexpr int k32 = 2;  // CUSPARSE_INDEX_32I
  return type == k32 ? 4 : kLargestIndex;
}

uint64_t number_of(const void* address) { return reinterpret_cast<uint64_t>(address); }

uint64_t copy_bytes(const SparseMatrix& matrix) {
  const auto elements = static_cast<uint64_t>(matrix.elements);
  const auto lines = static_cast<uint64_t>(matrix.rows + matrix.columns + 2);
  return static_cast<uint64_t>(matrix.matrices) *
         (elements * (matrix.element_bytes + 2 * matrix.index_bytes) + lines * matrix.index_bytes);
}

uint64_t copy_bytes(const DenseMatrix& matrix) {
  return static_cast<uint64_t>(matrix.elements) * matrix.element_bytes;
}

int tell(uint64_t bytes, size_t* size) {
  *size = bytes + kAllowance;
  shardlens_null_tell_bound(&kSparse, *size);
  return kLibrarySuccess;
}

/// Returns the size for a matrix of square blocks, of any type.
int tell_blocks(int rows, int blocks, int side, uint64_t solved_columns, int* size) {
  const auto elements = static_cast<uint64_t>(blocks) * static_cast<uint64_t>(side * side);
  const uint64_t lines = static_cast<uint64_t>(rows) * static_cast<uint64_t>(side);
  *size =
      static_cast<int>((elements + lines * solved_columns) * kLargestElement +
                       (static_cast<uint64_t>(blocks) + lines) * 2 * kLargestIndex + kAllowance);
  shardlens_null_tell_bound(&kSparse, static_cast<uint64_t>(*size));
  return kLibrarySuccess;
}

/// Returns the size for sorting pairs of 32-bit indices: in parts, with the permutation.
int tell_sort(int elements, size_t* size) {
  return tell(static_cast<uint64_t>(elements) * 6 * sizeof(int), size);
}

// ---- products of two sparse matrices ------------------------------------------------------------

struct Product {
  uint64_t multiplications = 0;
  int64_t elements = 0;
  bool is_counted = false;
};

/// Returns numbers in device memory; nothing if one of them is unknown.
std::vector<int> known_indices(uint64_t address, int64_t count) {
  KnownMemory* const known = shardlens_null_known_memory();
  std::vector<int> values(static_cast<size_t>(count));
  const bool has_all =
      known != nullptr && known->read(values.data(), address, values.size() * sizeof(int));
  return has_all ? values : std::vector<int>();
}

struct Rows {
  std::vector<int> offsets, columns;

  explicit Rows(const SparseMatrix& matrix)
      : offsets(known_indices(matrix.row_offsets, matrix.rows + 1)),
        columns(known_indices(matrix.column_indices, matrix.elements)) {}

  bool are_known(const SparseMatrix& matrix) const {
    return !offsets.empty() && columns.size() == static_cast<size_t>(matrix.elements) &&
           offsets.front() == 0 && offsets.back() == matrix.elements;
  }
};

/// Adds the elements of one row of the product.
void count_row(const Rows& left, const Rows& right, size_t row, Product& product) {
  std::set<int> columns;
  for (int i = left.offsets[row]; i < left.offsets[row + 1]; ++i) {
    const auto middle = static_cast<size_t>(left.columns[static_cast<size_t>(i)]);
    const auto begin = right.columns.begin() + right.offsets[middle];
    const auto end = right.columns.begin() + right.offsets[middle + 1];
    product.multiplications += static_cast<uint64_t>(end - begin);
    columns.insert(begin, end);
  }
  product.elements += static_cast<int64_t>(columns.size());
}

Product product_of(const SparseMatrix& left, const SparseMatrix& right) {
  Product product;
  const Rows rows(left), of_right(right);
  if (left.index_bytes != sizeof(int) || !rows.are_known(left) || !of_right.are_known(right)) {
    return product;
  }
  product.is_counted = true;
  for (size_t row = 0; row + 1 < rows.offsets.size(); ++row) {
    count_row(rows, of_right, row, product);
  }
  return product;
}

}  // namespace

extern "C" {

int cusparseCreate(void** handle) { return create(handle); }
int cusparseDestroy(void* handle) { return destroy(handle); }
int cusparseCreateMatDescr(void** descriptor) { return create(descriptor); }
int cusparseDestroyMatDescr(void* descriptor) { return destroy(descriptor); }
int cusparseCreateBsrsv2Info(void** info) { return create(info); }
int cusparseDestroyBsrsv2Info(void* info) { return destroy(info); }
int cusparseCreateBsrsm2Info(void** info) { return create(info); }
int cusparseDestroyBsrsm2Info(void* info) { return destroy(info); }
int cusparseSpSV_createDescr(void** descriptor) { return create(descriptor); }
int cusparseSpSV_destroyDescr(void* descriptor) { return destroy(descriptor); }
int cusparseSpSM_createDescr(void** descriptor) { return create(descriptor); }
int cusparseSpSM_destroyDescr(void* descriptor) { return destroy(descriptor); }

// ---- matrices -----------------------------------------------------------------------------------

int cusparseCreateCsr(SparseMatrix** matrix, int64_t rows, int64_t columns, int64_t elements,
                      void* row_offsets, void* column_indices, void*, int offset_type, int, int,
                      cudaDataType type) {
  *matrix = new SparseMatrix{.rows = rows,
                             .columns = columns,
                             .elements = elements,
                             .element_bytes = bytes_of(type),
                             .index_bytes = index_bytes(offset_type),
                             .row_offsets = number_of(row_offsets),
                             .column_indices = number_of(column_indices)};
  return kLibrarySuccess;
}

int cusparseCreateCoo(SparseMatrix** matrix, int64_t rows, int64_t columns, int64_t elements, void*,
                      void*, void*, int index_type, int, cudaDataType type) {
  *matrix = new SparseMatrix{.rows = rows,
                             .columns = columns,
                             .elements = elements,
                             .element_bytes = bytes_of(type),
                             .index_bytes = index_bytes(index_type)};
  return kLibrarySuccess;
}

int cusparseDestroySpMat(const SparseMatrix* matrix) {
  delete matrix;
  return kLibrarySuccess;
}

int cusparseCsrSetStridedBatch(SparseMatrix* matrix, int matrices, int64_t, int64_t) {
  matrix->matrices = matrices;
  return kLibrarySuccess;
}

int cusparseSpMatGetSize(const SparseMatrix* matrix, int64_t* rows, int64_t* columns,
                         int64_t* elements) {
  *rows = matrix->rows;
  *columns = matrix->columns;
  *elements = matrix->elements;
  return kLibrarySuccess;
}

int cusparseCreateDnMat(DenseMatrix** matrix, int64_t rows, int64_t columns, int64_t, void*,
                        cudaDataType type, int) {
  *matrix = new DenseMatrix{.elements = rows * columns, .element_bytes = bytes_of(type)};
  return kLibrarySuccess;
}

int cusparseCreateDnVec(DenseMatrix** vector, int64_t size, void*, cudaDataType type) {
  *vector = new DenseMatrix{.elements = size, .element_bytes = bytes_of(type)};
  return kLibrarySuccess;
}

int cusparseDestroyDnMat(const DenseMatrix* matrix) {
  delete matrix;
  return kLibrarySuccess;
}

int cusparseDestroyDnVec(const DenseMatrix* vector) { return cusparseDestroyDnMat(vector); }

// ---- sizes --------------------------------------------------------------------------------------

int cusparseSpMV_bufferSize(void*, int, const void*, const SparseMatrix* matrix, const void*,
                            const void*, const void*, cudaDataType, int, size_t* size) {
  return tell(copy_bytes(*matrix), size);
}

int cusparseSpMM_bufferSize(void*, int, int, const void*, const SparseMatrix* matrix, const void*,
                            const void*, const void*, cudaDataType, int, size_t* size) {
  return tell(copy_bytes(*matrix), size);
}

int cusparseSDDMM_bufferSize(void*, int, int, const void*, const void*, const void*, const void*,
                             const SparseMatrix* result, cudaDataType, int, size_t* size) {
  return tell(copy_bytes(*result), size);
}

int cusparseSpSV_bufferSize(void*, int, const void*, const SparseMatrix* matrix, const void*,
                            const DenseMatrix* solved, cudaDataType, int, void*, size_t* size) {
  return tell(copy_bytes(*matrix) + copy_bytes(*solved), size);
}

int cusparseSpSM_bufferSize(void*, int, int, const void*, const SparseMatrix* matrix, const void*,
                            const DenseMatrix* solved, cudaDataType, int, void*, size_t* size) {
  return tell(copy_bytes(*matrix) + copy_bytes(*solved), size);
}

// The calls for float, double and both complex types take the same arguments, except for the types
// of pointers.

int cusparseSbsrsv2_bufferSize(void*, int, int, int rows, int blocks, const void*, const void*,
                               const void*, const void*, int side, void*, int* size) {
  return tell_blocks(rows, blocks, side, 1, size);
}
[[gnu::alias(
    "cusparseSbsrsv2_bufferSize")]] decltype(cusparseSbsrsv2_bufferSize) cusparseDbsrsv2_bufferSize,
    cusparseCbsrsv2_bufferSize, cusparseZbsrsv2_bufferSize;

int cusparseSbsrsm2_bufferSize(void*, int, int, int, int rows, int columns, int blocks, const void*,
                               const void*, const void*, const void*, int side, void*, int* size) {
  return tell_blocks(rows, blocks, side, static_cast<uint64_t>(columns), size);
}
[[gnu::alias(
    "cusparseSbsrsm2_bufferSize")]] decltype(cusparseSbsrsm2_bufferSize) cusparseDbsrsm2_bufferSize,
    cusparseCbsrsm2_bufferSize, cusparseZbsrsm2_bufferSize;

/// No pivot is zero.
int cusparseXbsrsv2_zeroPivot(void*, void*, int* position) {
  *position = -1;
  return kLibrarySuccess;
}
int cusparseXbsrsm2_zeroPivot(void*, void*, int* position) {
  *position = -1;
  return kLibrarySuccess;
}

int cusparseXcoosort_bufferSizeExt(void*, int, int, int elements, const void*, const void*,
                                   size_t* size) {
  return tell_sort(elements, size);
}
int cusparseXcsrsort_bufferSizeExt(void*, int, int, int elements, const void*, const void*,
                                   size_t* size) {
  return tell_sort(elements, size);
}

// ---- sums and products of two sparse matrices ---------------------------------------------------

int cusparseScsrgeam2_bufferSizeExt(void*, int rows, int, const void*, const void*, int left,
                                    const void*, const void*, const void*, const void*, const void*,
                                    int right, const void*, const void*, const void*, const void*,
                                    const void*, const void*, const void*, size_t* size) {
  const auto elements = static_cast<uint64_t>(left) + static_cast<uint64_t>(right);
  return tell((elements + static_cast<uint64_t>(rows)) * sizeof(int), size);
}
[[gnu::alias("cusparseScsrgeam2_bufferSizeExt")]] decltype(cusparseScsrgeam2_bufferSizeExt)
    cusparseDcsrgeam2_bufferSizeExt,
    cusparseCcsrgeam2_bufferSizeExt, cusparseZcsrgeam2_bufferSizeExt;

int cusparseXcsrgeam2Nnz(void*, int, int, const void*, int left, const void*, const void*,
                         const void*, int right, const void*, const void*, const void*, void*,
                         int* elements, void*) {
  *elements = left + right;
  shardlens_null_tell_bound(&kSum, static_cast<uint64_t>(*elements));
  return kLibrarySuccess;
}

int cusparseSpGEMM_createDescr(Product** product) {
  *product = new Product;
  return kLibrarySuccess;
}

int cusparseSpGEMM_destroyDescr(const Product* product) {
  delete product;
  return kLibrarySuccess;
}

/// Called twice: without a buffer to get its size, then to work in it.
int cusparseSpGEMM_workEstimation(void*, int, int, const void*, const SparseMatrix* left,
                                  const SparseMatrix* right, const void*, SparseMatrix* result,
                                  cudaDataType, int, Product* product, size_t* size,
                                  const void* buffer) {
  if (buffer != nullptr) return kLibrarySuccess;
  *product = product_of(*left, *right);
  result->elements = product->elements;
  if (!product->is_counted) shardlens_null_tell_bound(&kUnknownProduct, 0);
  return tell(copy_bytes(*left) + copy_bytes(*right), size);
}

int cusparseSpGEMM_compute(void*, int, int, const void*, const SparseMatrix*, const SparseMatrix*,
                           const void*, const SparseMatrix* result, cudaDataType, int,
                           const Product* product, size_t* size, const void* buffer) {
  if (buffer != nullptr) return kLibrarySuccess;
  const uint64_t each = result->element_bytes + 2 * result->index_bytes;
  return tell(product->multiplications * each + copy_bytes(*result), size);
}

}  // extern "C"
