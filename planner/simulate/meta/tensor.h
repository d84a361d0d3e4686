// Tensors without values: they have shape, strides, dtype, and memory whose lifetime is counted.
// The planner runs a model's code on them, so that they allocate and free in the same order, and
// for the same reasons, as LibTorch's tensors would.
//
// Everything that allocates follows LibTorch: operators.h says what each operator takes, this file
// what views share and when a reshape copies. Where versions differ, the context's row of
// models/torch_rules.h decides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/gpus.h"
#include "models/torch_rules.h"
#include "planner/simulate/meta/processor.h"

namespace shardlens::planner::meta {

enum class Type : uint8_t { fp32, bf16, fp16, fp64, int64, int32, uint8, boolean };
int64_t bytes_of(Type type);
Type type_of(DType dtype);
constexpr bool is_floating(Type type) { return type <= Type::fp64; }
constexpr bool is_reduced(Type type) { return type == Type::bf16 || type == Type::fp16; }

/// The memory that operators allocate from. Bytes are what an operator asks for, before any
/// rounding, and never 0.
class Memory {
 public:
  virtual ~Memory() = default;
  /// Allocates a block and returns its number, which is given to `free` once.
  virtual int64_t allocate(int64_t bytes) = 0;
  virtual void free(int64_t block) = 0;
  /// These mark where operator calls of LibTorch begin and end, also inside one another.
  virtual void begin_operator() {}
  virtual void end_operator() {}
};

class Storage;
class Tensor;
struct Leaf;

/// The attention kernels of LibTorch that may be chosen.
struct AttentionKernels {
  bool flash = true;
  bool efficient = true;
  bool math = true;
};

/// The workspaces that threads keep for cuBLAS and cuBLASLt: see [Note: workspaces] in
/// blas_workspace.h.
struct KeptWorkspaces {
  std::shared_ptr<Storage> main_thread;
  std::shared_ptr<Storage> autograd_thread;
  std::shared_ptr<Storage> cublas_lt;
};

/// The place where operators run, and everything that chooses their kernels. A rank has one context
/// for its device, and one for the host beside a GPU.
struct Context {
  Memory* memory = nullptr;
  const Gpu* gpu = nullptr;  // null: the CPU
  const models::TorchRules* torch = &models::own_torch_rules();
  int threads = 1;        // of the CPU's kernels
  Processor processor{};  // the CPU's
  AttentionKernels attention{};
  bool records_graph = false;       // grad mode
  int64_t next_sequence = 0;        // of autograd's nodes
  bool is_autograd_thread = false;  // backward of a Python program runs, on a thread of its own
  KeptWorkspaces workspaces{};
  /// Finds the place to which backward of a linear writes its weight's gradient at once
  /// (GradientPlaces in models/model.h): called with the weight's leaf, it returns a tensor in
  /// memory that is counted elsewhere, or nothing.
  std::function<std::optional<Tensor>(const Leaf& weight)> find_place{};

  bool is_cuda() const { return gpu != nullptr; }
};

/// A short list of numbers: sizes or strides, in elements.
class Sizes {
 public:
  static constexpr size_t kMost = 6;

  Sizes() = default;
  Sizes(std::initializer_list<int64_t> values) : Sizes(std::span(values.begin(), values.size())) {}
  explicit Sizes(std::span<const int64_t> values);

  size_t size() const { return count_; }
  int64_t& operator[](size_t i) { return values_[i]; }
  int64_t operator[](size_t i) const { return values_[i]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + count_; }
  int64_t back() const { return values_[count_ - 1]; }
  void push_back(int64_t value);
  void insert(size_t at, int64_t value);
  void erase(size_t at);
  int64_t product() const;

  bool operator==(const Sizes& other) const;

 private:
  std::array<int64_t, kMost> values_{};
  size_t count_ = 0;
};

/// Returns the strides of a tensor of these sizes that lies in memory row by row.
Sizes contiguous_strides(const Sizes& sizes);

/// A block of memory that lives as long as some tensor uses it.
class Storage {
 public:
  Storage(Memory& memory, int64_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  int64_t block() const { return block_; }

 private:
  Memory& memory_;
  int64_t block_;
};

/// Keeps memory until the end of a scope, as an operator does with a temporary, although nobody
/// reads it here: its bytes and its lifetime are what is predicted. So a
/// `const Holder sums(empty_like(input));` is not dead code: deleting it changes a peak.
template <typename Owner>
class Holder {
 public:
  explicit Holder(Owner owner) : owner_(std::move(owner)) {}

 private:
  Owner owner_;
};

struct Node;

/// The input of a node to which a gradient goes.
struct Edge {
  std::shared_ptr<Node> node;
  int input = 0;
};

class Tensor {
 public:
  /// Makes an undefined tensor.
  Tensor() = default;
  /// Returns a newly allocated tensor, row by row; one without elements takes no memory.
  static Tensor empty(Context& context, const Sizes& sizes, Type type);
  static Tensor empty_strided(Context& context, const Sizes& sizes, const Sizes& strides,
                              Type type);
  /// Returns a tensor in memory that is counted elsewhere, such as a weight in a slot.
  static Tensor placed(Context& context, const Sizes& sizes, Type type);

  bool defined() const { return context_ != nullptr; }
  Context& context() const { return *context_; }
  Type scalar_type() const { return type_; }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  int64_t size(int64_t dim) const { return sizes_[index(dim)]; }
  int64_t stride(int64_t dim) const { return strides_[index(dim)]; }
  int64_t dim() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t numel() const { return sizes_.product(); }
  int64_t nbytes() const { return numel() * bytes_of(type_); }
  bool is_contiguous() const;
  bool is_cuda() const { return context_->is_cuda(); }
  bool shares_memory(const Tensor& other) const {
    return storage_ != nullptr && storage_ == other.storage_;
  }
  /// True if nobody else has this memory; a view keeps its base tensor.
  bool owns_memory() const { return storage_.use_count() == 1 && !is_view_; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  // These return views, or copies where LibTorch copies. -1 in sizes stands for the rest.
  Tensor view(const Sizes& sizes) const;
  Tensor reshape(const Sizes& sizes) const;
  Tensor permute(const Sizes& order) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor expand(const Sizes& sizes) const;
  std::vector<Tensor> unbind(int64_t dim) const;
  Tensor contiguous() const;
  /// Returns the tensor in another dtype, or itself if it has that dtype.
  Tensor to(Type type) const;
  Tensor relu() const;

  // These compute outside a graph. The names that end in _ write over the tensor.
  bool is_floating_point() const { return is_floating(type_); }
  Tensor squeeze() const;
  Tensor sqrt() const;
  Tensor clone() const;
  Tensor clamp_max(double number) const;
  Tensor isfinite() const;
  Tensor index_select(int64_t dim, const Tensor& indices) const;
  Tensor remainder(int64_t number) const;
  Tensor argmax(int64_t dim) const;
  Tensor eq(const Tensor& other) const;
  /// Counts a tensor of booleans.
  Tensor sum() const;
  const Tensor& add_(double number) const;
  const Tensor& sub_(double number) const { return add_(number); }
  const Tensor& div_(double number) const { return add_(number); }
  const Tensor& add_(const Tensor&) const { return *this; }
  const Tensor& sub_(const Tensor&) const { return *this; }
  const Tensor& div_(const Tensor&) const { return *this; }
  const Tensor& addcmul_(const Tensor&, const Tensor&, double) const { return *this; }
  const Tensor& zero_() const { return *this; }
  const Tensor& logical_not_() const { return *this; }

  // These belong to autograd.
  Tensor detach() const;
  bool requires_grad() const { return edge_.node != nullptr || leaf_ != nullptr; }
  /// Makes the tensor a leaf, or no longer one.
  Tensor& requires_grad_(bool wanted);
  const std::shared_ptr<Leaf>& leaf() const { return leaf_; }
  const Edge& edge() const { return edge_; }
  void set_edge(Edge edge) { edge_ = std::move(edge); }

  /// Returns a view of the same memory with other sizes and strides, with no node in the graph.
  Tensor as_strided(const Sizes& sizes, const Sizes& strides) const;

 private:
  size_t index(int64_t dim) const;

  Context* context_ = nullptr;
  Type type_{};
  Sizes sizes_;
  Sizes strides_;
  std::shared_ptr<Storage> storage_;
  bool is_view_ = false;
  Edge edge_;
  std::shared_ptr<Leaf> leaf_;
};

/// Returns the sizes to which operators on two tensors broadcast them.
Sizes broadcast(const Sizes& a, const Sizes& b);

}  // namespace shardlens::planner::meta
