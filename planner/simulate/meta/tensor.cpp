#include "planner/simulate/meta/tensor.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

/// Returns the sizes with the one that is -1 computed from the number of elements.
Sizes complete(const Sizes& sizes, int64_t numel) {
  Sizes result = sizes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != -1) continue;
    result[i] = 1;
    result[i] = numel / std::max<int64_t>(result.product(), 1);
    break;
  }
  check(result.product() == numel, "a view of another number of elements");
  return result;
}

/// Returns strides that view the same memory in these sizes, as LibTorch's computeStride finds
/// them; nothing if the tensor has to be copied.
std::optional<Sizes> view_strides(const Tensor& tensor, const Sizes& sizes) {
  const Sizes &old_sizes = tensor.sizes(), &old_strides = tensor.strides();
  if (tensor.numel() == 0 || old_sizes.size() == 0) return contiguous_strides(sizes);
  Sizes strides = sizes;
  auto to = static_cast<int64_t>(sizes.size()) - 1;
  int64_t base = old_strides.back(), run = 1, covered = 1;
  for (auto dim = static_cast<int64_t>(old_sizes.size()) - 1; dim >= 0; --dim) {
    const auto d = static_cast<size_t>(dim);
    run *= old_sizes[d];
    const bool ends = dim == 0 || (old_sizes[d - 1] != 1 && old_strides[d - 1] != run * base);
    if (!ends) continue;
    while (to >= 0 && (covered < run || sizes[static_cast<size_t>(to)] == 1)) {
      strides[static_cast<size_t>(to)] = covered * base;
      covered *= sizes[static_cast<size_t>(to)];
      --to;
    }
    if (covered != run) return std::nullopt;
    if (dim > 0) {
      base = old_strides[d - 1];
      run = covered = 1;
    }
  }
  return to == -1 ? std::optional(strides) : std::nullopt;
}

}  // namespace

int64_t bytes_of(Type type) {
  switch (type) {
    case Type::fp64:
    case Type::int64:
      return 8;
    case Type::fp32:
    case Type::int32:
      return 4;
    case Type::bf16:
    case Type::fp16:
      return 2;
    case Type::uint8:
    case Type::boolean:
      return 1;
  }
  unreachable("type out of range");
}

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return Type::fp32;
    case DType::bf16:
      return Type::bf16;
    case DType::fp16:
      return Type::fp16;
  }
  unreachable("dtype out of range");
}

Sizes::Sizes(std::span<const int64_t> values) : count_(values.size()) {
  check(count_ <= kMost, "a tensor of too many dimensions");
  std::copy(values.begin(), values.end(), values_.begin());
}

void Sizes::push_back(int64_t value) { insert(count_, value); }

void Sizes::insert(size_t at, int64_t value) {
  check(count_ < kMost, "a tensor of too many dimensions");
  check(at <= count_, "a dimension that a tensor does not have");
  std::copy_backward(values_.begin() + static_cast<ptrdiff_t>(at),
                     values_.begin() + static_cast<ptrdiff_t>(count_),
                     values_.begin() + static_cast<ptrdiff_t>(count_) + 1);
  values_[at] = value;
  ++count_;
}

void Sizes::erase(size_t at) {
  check(at < count_, "a dimension that a tensor does not have");
  std::copy(values_.begin() + static_cast<ptrdiff_t>(at) + 1,
            values_.begin() + static_cast<ptrdiff_t>(count_),
            values_.begin() + static_cast<ptrdiff_t>(at));
  --count_;
}

int64_t Sizes::product() const {
  return std::accumulate(begin(), end(), int64_t{1}, std::multiplies<>());
}

bool Sizes::operator==(const Sizes& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides = sizes;
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

Sizes broadcast(const Sizes& a, const Sizes& b) {
  const Sizes& longer = a.size() >= b.size() ? a : b;
  const Sizes& shorter = a.size() >= b.size() ? b : a;
  Sizes result = longer;
  const size_t shift = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    result[shift + i] = std::max(result[shift + i], shorter[i]);
  }
  return result;
}

Storage::Storage(Memory& memory, int64_t bytes) : memory_(memory), block_(memory.allocate(bytes)) {
  check(bytes > 0, "an operator asks for 0 bytes");
}

Storage::~Storage() { memory_.free(block_); }

// ---- making tensors -----------------------------------------------------------------------------

Tensor Tensor::placed(Context& context, const Sizes& sizes, Type type) {
  Tensor tensor;
  tensor.context_ = &context;
  tensor.type_ = type;
  tensor.sizes_ = sizes;
  tensor.strides_ = contiguous_strides(sizes);
  return tensor;
}

Tensor Tensor::empty(Context& context, const Sizes& sizes, Type type) {
  Tensor tensor = placed(context, sizes, type);
  const int64_t bytes = tensor.nbytes();
  if (bytes > 0) tensor.storage_ = std::make_shared<Storage>(*context.memory, bytes);
  return tensor;
}

Tensor Tensor::empty_strided(Context& context, const Sizes& sizes, const Sizes& strides,
                             Type type) {
  Tensor tensor = empty(context, sizes, type);
  tensor.strides_ = strides;
  return tensor;
}

size_t Tensor::index(int64_t dim) const {
  const int64_t index = dim < 0 ? dim + this->dim() : dim;
  check(index >= 0 && index < this->dim(), "a dimension that a tensor does not have");
  return static_cast<size_t>(index);
}

bool Tensor::is_contiguous() const {
  int64_t stride = 1;
  for (size_t i = sizes_.size(); i-- > 0;) {
    if (sizes_[i] == 1) continue;
    if (strides_[i] != stride) return false;
    stride *= sizes_[i];
  }
  return true;
}

// ---- views --------------------------------------------------------------------------------------

Tensor Tensor::as_strided(const Sizes& sizes, const Sizes& strides) const {
  Tensor view = *this;
  view.sizes_ = sizes;
  view.strides_ = strides;
  view.is_view_ = true;
  view.edge_ = {};
  view.leaf_.reset();
  return view;
}

namespace {

/// Gives a view its node, whose backward turns a gradient of the view into one of the whole.
template <class Back>
Tensor with_view_node(const Tensor& whole, Tensor view, Back back) {
  if (!needs_node({&whole})) return view;
  auto node = add_node(
      {&whole}, {}, [back](Node&, Tensors&& gradients) -> Tensors { return {back(gradients[0])}; });
  view.set_edge({std::move(node), 0});
  return view;
}

}  // namespace

Tensor Tensor::view(const Sizes& wanted) const {
  const Sizes sizes = complete(wanted, numel());
  const std::optional<Sizes> strides = view_strides(*this, sizes);
  check(strides.has_value(), "a view that cannot be");
  return with_view_node(*this, as_strided(sizes, *strides),
                        [before = sizes_](const Tensor& g) { return g.reshape(before); });
}

Tensor Tensor::reshape(const Sizes& wanted) const {
  const Sizes sizes = complete(wanted, numel());
  if (view_strides(*this, sizes)) return view(sizes);
  return contiguous().view(sizes);
}

Tensor Tensor::permute(const Sizes& order) const {
  check(order.size() == sizes_.size(), "a permutation of other dimensions");
  Sizes sizes = sizes_, strides = strides_, back = order;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<size_t>(order[i]);
    sizes[i] = sizes_[from];
    strides[i] = strides_[from];
    back[from] = static_cast<int64_t>(i);
  }
  return with_view_node(*this, as_strided(sizes, strides),
                        [back](const Tensor& g) { return g.permute(back); });
}

Tensor Tensor::transpose(int64_t a, int64_t b) const {
  Sizes order = sizes_;
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::swap(order[index(a)], order[index(b)]);
  return permute(order);
}

Tensor Tensor::t() const { return transpose(0, 1); }

Tensor Tensor::narrow(int64_t dim, int64_t, int64_t length) const {
  Sizes sizes = sizes_;
  check(length >= 0 && length <= sizes[index(dim)], "a part that is larger than the whole");
  sizes[index(dim)] = length;
  return with_view_node(*this, as_strided(sizes, strides_),
                        [before = sizes_](const Tensor& g) { return embed_in_zeros(g, before); });
}

Tensor Tensor::select(int64_t dim, int64_t) const {
  Sizes sizes = sizes_, strides = strides_;
  sizes.erase(index(dim));
  strides.erase(index(dim));
  return with_view_node(*this, as_strided(sizes, strides),
                        [before = sizes_](const Tensor& g) { return embed_in_zeros(g, before); });
}

Tensor Tensor::unsqueeze(int64_t dim) const {
  const size_t at = static_cast<size_t>(dim < 0 ? dim + this->dim() + 1 : dim);
  Sizes sizes = sizes_, strides = strides_;
  strides.insert(at, at < sizes.size() ? sizes[at] * strides[at] : 1);
  sizes.insert(at, 1);
  return with_view_node(*this, as_strided(sizes, strides),
                        [before = sizes_](const Tensor& g) { return g.reshape(before); });
}

Tensor Tensor::squeeze() const {
  Sizes sizes;
  for (const int64_t size : sizes_) {
    if (size != 1) sizes.push_back(size);
  }
  return view(sizes);
}

Tensor Tensor::expand(const Sizes& wanted) const {
  check(wanted.size() >= sizes_.size(), "a tensor is expanded to fewer dimensions");
  Sizes sizes = wanted, strides = wanted;
  const size_t shift = wanted.size() - sizes_.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool is_new = i < shift;
    if (wanted[i] == -1) sizes[i] = sizes_[i - shift];
    strides[i] = is_new || sizes_[i - shift] != sizes[i] ? 0 : strides_[i - shift];
  }
  return with_view_node(*this, as_strided(sizes, strides),
                        [before = sizes_](const Tensor& g) { return sum_to(g, before); });
}

std::vector<Tensor> Tensor::unbind(int64_t dim) const {
  const size_t at = index(dim);
  const int64_t count = sizes_[at];
  Sizes sizes = sizes_, strides = strides_;
  sizes.erase(at);
  strides.erase(at);
  std::vector<Tensor> parts(static_cast<size_t>(count), as_strided(sizes, strides));
  if (!needs_node({this})) return parts;
  const auto node = add_node(
      {this}, {},
      [at](Node&, Tensors&& gradients) -> Tensors {
        return {stack(gradients, static_cast<int64_t>(at))};
      },
      static_cast<int>(count));
  for (size_t i = 0; i < parts.size(); ++i) parts[i].set_edge({node, static_cast<int>(i)});
  return parts;
}

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  return with_view_node(*this, empty(*context_, sizes_, type_), [](const Tensor& g) { return g; });
}

Tensor Tensor::to(Type type) const {
  if (type == type_) return *this;
  return with_view_node(*this, empty_like(*this, type),
                        [before = type_](const Tensor& g) { return g.to(before); });
}

// ---- autograd -----------------------------------------------------------------------------------

Tensor Tensor::detach() const {
  Tensor detached = as_strided(sizes_, strides_);
  detached.is_view_ = is_view_;
  return detached;
}

Tensor& Tensor::requires_grad_(bool wanted) {
  if (wanted && !leaf_) leaf_ = std::make_shared<Leaf>();
  if (!wanted) leaf_.reset();
  return *this;
}

}  // namespace shardlens::planner::meta
