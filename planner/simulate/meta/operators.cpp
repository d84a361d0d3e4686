#include "planner/simulate/meta/operators.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/simulate/meta/product_scratch.h"

namespace shardlens::planner::meta {

namespace {

/// True if BLAS can read the matrix as it is, row by row or column by column.
bool is_blas_matrix(const Tensor& tensor) {
  const int64_t rows = tensor.size(0), columns = tensor.size(1);
  return (tensor.stride(1) == 1 && tensor.stride(0) >= std::max<int64_t>(1, columns)) ||
         (tensor.stride(0) == 1 && tensor.stride(1) >= std::max<int64_t>(1, rows)) ||
         tensor.is_contiguous();
}

/// Returns strides for the same order of dimensions, without gaps.
Sizes dense_strides(const Tensor& tensor) {
  const Sizes &sizes = tensor.sizes(), &strides = tensor.strides();
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  Sizes dense = sizes;
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    dense[*dim] = stride;
    stride *= std::max<int64_t>(sizes[*dim], 1);
  }
  return dense;
}

Tensor as_matrix(const Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)});
}

/// Returns a copy that BLAS can read if it cannot read the matrix as it is; else undefined.
Tensor copy_for_blas(const Tensor& tensor) {
  if (is_blas_matrix(tensor)) return {};
  return Tensor::empty(tensor.context(), tensor.sizes(), tensor.scalar_type());
}

/// Takes the memory that a product [n, k] x [k, m] -> [n, m] needs besides its result.
void multiply(const Tensor& a, const Tensor& b, BlasLibrary library = BlasLibrary::cublas) {
  const Holder first(copy_for_blas(a));
  const Holder second(copy_for_blas(b));
  take_blas_workspace(a.context(), library);
  take_product_scratch(a.context(), a.scalar_type(),
                       {.rows = a.size(0),
                        .inner = a.size(1),
                        .columns = b.size(1),
                        .transposed = a.stride(1) != 1});
}

/// Multiplies [n, k] x [k] -> [n].
Tensor product_with_vector(const Tensor& matrix) {
  const CallScope call(matrix.context());
  Tensor output = Tensor::empty(matrix.context(), {matrix.size(0)}, matrix.scalar_type());
  const Holder copy(copy_for_blas(matrix));
  take_blas_workspace(matrix.context(), BlasLibrary::cublas);
  take_product_scratch(matrix.context(), matrix.scalar_type(),
                       {.rows = matrix.size(0),
                        .inner = matrix.size(1),
                        .columns = 1,
                        .transposed = matrix.stride(1) != 1});
  return output;
}

/// Returns the tensor to which the weight's gradient is written at once; undefined: nowhere in
/// particular.
Tensor find_place(Context& context, const Leaf* leaf) {
  if (leaf == nullptr || !context.find_place) return {};
  return context.find_place(*leaf).value_or(Tensor());
}

/// Multiplies [rows, out] and [rows, in] -> [out, in], in the place for the gradient or newly
/// allocated.
Tensor weight_gradient(const Tensor& gradient, const Tensor& input, const Leaf* leaf) {
  Tensor place = find_place(gradient.context(), leaf);
  if (!place.defined()) return blas_product(gradient.t(), as_matrix(input));
  multiply(gradient.t(), as_matrix(input));
  return place;
}

bool repeats_a_row(const Tensor& matrix) { return matrix.size(0) > 1 && matrix.stride(0) == 0; }

Tensor ones_for_rows(const Tensor& gradient) {
  return pointwise(gradient.context(), {gradient.size(0)}, gradient.scalar_type());
}

Tensor memory_for_gradient_of(const Tensor& input, InputUse use) {
  const Tensor matrix = as_matrix(input);
  if (use == InputUse::spent && matrix.shares_memory(input)) return matrix;
  return Tensor::empty(input.context(), matrix.sizes(), input.scalar_type());
}

Tensors gradients_of_one_row(Node& node, const Tensor& gradient, const Leaf* leaf, InputUse use) {
  const Tensor input = node.saved[0], weight = node.saved[1];
  const Holder row(gradient.select(0, 0).contiguous());
  Tensors results(2);
  if (node.wants(1)) {
    const Holder sums([&] {
      const Holder ones(ones_for_rows(gradient));
      return product_with_vector(as_matrix(input).t());
    }());
    results[1] = find_place(gradient.context(), leaf);
    if (!results[1].defined()) {
      results[1] = Tensor::empty(gradient.context(), weight.sizes(), weight.scalar_type());
    }
  }
  if (node.wants(0)) {
    const Tensor rows = memory_for_gradient_of(input, use);
    const Holder product(product_with_vector(weight.t()));
    results[0] = rows.view(input.sizes());
  }
  return results;
}

/// Returns the gradients of input and weight, from `gradient` [rows, out]. The node has saved input
/// and weight.
Tensors product_gradients(Node& node, const Tensor& gradient, const Leaf* leaf, InputUse use) {
  if (repeats_a_row(gradient)) return gradients_of_one_row(node, gradient, leaf, use);
  const Tensor input = node.saved[0], weight = node.saved[1];
  Tensors results(2);
  if (node.wants(1)) results[1] = weight_gradient(gradient, input, leaf);
  if (node.wants(0)) {
    const Tensor rows = memory_for_gradient_of(input, use);
    const CallScope call(input.context());
    multiply(gradient, weight);
    results[0] = rows.view(input.sizes());
  }
  return results;
}

Tensor bias_gradient_of(const Tensor& gradient) {
  if (repeats_a_row(gradient)) {
    return with_number(gradient.context(), {gradient.size(1)}, gradient.scalar_type());
  }
  const Holder ones(ones_for_rows(gradient));
  return product_with_vector(gradient.t());
}

Sizes product_sizes(const Tensor& input, const Tensor& weight) {
  Sizes sizes = input.sizes();
  sizes[sizes.size() - 1] = weight.size(0);
  return sizes;
}

/// Multiplies as at::linear does, without a graph.
Tensor linear_forward(const Tensor& input, const Tensor& weight, BlasLibrary library) {
  const CallScope call(input.context());
  return blas_product(as_matrix(input.detach()), weight.detach().t(), library)
      .view(product_sizes(input, weight));
}

/// Returns a weight's leaf, which a node can keep without keeping the weight's memory.
std::shared_ptr<Leaf> leaf_of(const Tensor& weight) {
  return weight.edge().node ? nullptr : weight.leaf();
}

}  // namespace

Tensor empty_like(const Tensor& tensor, Type type) {
  const Sizes strides =
      tensor.is_contiguous() ? contiguous_strides(tensor.sizes()) : dense_strides(tensor);
  return Tensor::empty_strided(tensor.context(), tensor.sizes(), strides, type);
}

// ---- BLAS ---------------------------------------------------------------------------------------

Tensor blas_product(const Tensor& a, const Tensor& b, BlasLibrary library) {
  const CallScope call(a.context());
  Tensor output = Tensor::empty(a.context(), {a.size(0), b.size(1)}, a.scalar_type());
  multiply(a, b, library);
  return output;
}

/// addmm_out_cuda_impl in LibTorch's native/cuda/Blas.cpp leaves vectors to cuBLAS. at::linear
/// copies an input that is not stored row by row, and adds the bias to cuBLAS's product in place.
BlasLibrary library_with_bias(const Tensor& input, const Tensor& weight) {
  const bool has_vector = input.size(-1) <= 1 || weight.size(0) <= 1;
  const bool is_added_later = input.dim() > 2 && !input.is_contiguous();
  return has_vector || is_added_later ? BlasLibrary::cublas : BlasLibrary::cublas_lt;
}

// ---- element by element -------------------------------------------------------------------------

Tensor pointwise(Context& context, const Sizes& sizes, Type type) {
  const CallScope call(context);
  return Tensor::empty(context, sizes, type);
}

void take_and_release(Context& context, const Sizes& sizes, Type type) {
  Tensor::empty(context, sizes, type);
}

Tensor add(const Tensor& a, const Tensor& b) {
  Context& context = a.context();
  const CallScope call(context);
  Tensor sum = Tensor::empty(context, broadcast(a.sizes(), b.sizes()), a.scalar_type());
  if (!needs_node({&a, &b})) return sum;
  auto node = add_node(
      {&a, &b}, {},
      [sizes_a = a.sizes(), sizes_b = b.sizes()](Node& self, Tensors&& gradients) -> Tensors {
        const Tensor& gradient = gradients[0];
        return {self.wants(0) ? sum_to(gradient, sizes_a) : Tensor(),
                self.wants(1) ? sum_to(gradient, sizes_b) : Tensor()};
      });
  sum.set_edge({std::move(node), 0});
  return sum;
}

Number::Number(Context& context, Type type) {
  if (context.is_cuda()) return;
  own = Tensor::empty(context, {}, Type::fp64);
  cast = Tensor::empty(context, {}, type);
}

Tensor with_number(Context& context, const Sizes& sizes, Type type) {
  const CallScope call(context);
  const Holder number(Number(context, type));
  return Tensor::empty(context, sizes, type);
}

void in_place_with_number(Context& context, Type type) {
  const CallScope call(context);
  const Holder number(Number(context, type));
}

Tensor compared_with_number(Context& context, const Sizes& sizes, Type type) {
  const CallScope call(context);
  Number number(context, type);
  Tensor output = Tensor::empty(context, sizes, Type::boolean);
  number.own = {};
  return output;
}

namespace {

Tensor result_with_number(const Tensor& input) {
  return with_number(input.context(), input.sizes(), input.scalar_type());
}

}  // namespace

Tensor operator*(const Tensor& a, double) { return result_with_number(a); }
Tensor operator+(const Tensor& a, double) { return result_with_number(a); }
Tensor operator/(const Tensor& a, double) { return result_with_number(a); }
Tensor operator/(double, const Tensor& b) { return empty_like(b); }
Tensor operator/(const Tensor& a, const Tensor&) { return empty_like(a); }
Tensor Tensor::sqrt() const { return empty_like(*this); }
Tensor Tensor::clone() const { return empty_like(*this); }
Tensor Tensor::clamp_max(double) const { return empty_like(*this); }

const Tensor& Tensor::add_(double) const {
  in_place_with_number(*context_, type_);
  return *this;
}

Tensor Tensor::index_select(int64_t dim, const Tensor& indices) const {
  Sizes sizes = sizes_;
  sizes[index(dim)] = indices.numel();
  return pointwise(*context_, sizes, type_);
}

/// LibTorch makes a tensor of the number first.
Tensor Tensor::remainder(int64_t) const {
  const CallScope call(*context_);
  const Tensor number = empty(*context_, {1}, type_);
  return empty(*context_, broadcast(sizes_, number.sizes()), type_);
}

Tensor Tensor::argmax(int64_t dim) const {
  Sizes sizes = sizes_;
  sizes.erase(index(dim));
  return pointwise(*context_, sizes, Type::int64);
}

Tensor Tensor::eq(const Tensor&) const { return empty_like(*this, Type::boolean); }

/// LibTorch reads booleans in the sum's dtype.
Tensor Tensor::sum() const {
  const CallScope call(*context_);
  Tensor total = empty(*context_, {}, Type::int64);
  take_and_release(*context_, sizes_, Type::int64);
  return total;
}

/// LibTorch multiplies two comparisons: of the absolute value with infinity, of the input with
/// itself.
Tensor Tensor::isfinite() const {
  const CallScope call(*context_);
  const auto flags_of = [](const Tensor& a, const Tensor&) { return empty_like(a, Type::boolean); };
  const Tensor size = empty_like(*this);
  const Tensor is_bounded = compared_with_number(*context_, size.sizes(), size.scalar_type());
  const Tensor is_number = flags_of(*this, *this);
  return flags_of(is_bounded, is_number);
}

Tensor power(const Tensor& exponents) {
  Context& context = exponents.context();
  const CallScope call(context);
  Tensor output = empty_like(exponents);
  const Holder number(Number(context, exponents.scalar_type()));
  const Holder base(context.is_cuda() ? Tensor::empty(context, {}, Type::fp64) : Tensor());
  return output;
}

Tensor gelu(const Tensor& input) {
  const CallScope call(input.context());
  Tensor output = empty_like(input);
  return with_node(output, {&input}, {input},
                   [](Node& self, Tensors&&) -> Tensors { return {empty_like(self.saved[0])}; });
}

Tensor relu(const Tensor& input) {
  const CallScope call(input.context());
  Tensor output = empty_like(input);
  return with_node(output, {&input}, {output}, [](Node&, Tensors&& gradients) -> Tensors {
    return {empty_like(gradients[0])};
  });
}

Tensor Tensor::relu() const { return meta::relu(*this); }

// ---- moving -------------------------------------------------------------------------------------

Tensor cat(const Tensors& parts, int64_t dim) {
  Context& context = parts[0].context();
  const CallScope call(context);
  const auto at = static_cast<size_t>(dim);
  Sizes sizes = parts[0].sizes();
  sizes[at] = 0;
  for (const Tensor& part : parts) sizes[at] += part.sizes()[at];
  Tensor whole = Tensor::empty(context, sizes, parts[0].scalar_type());
  if (!needs_node({&parts[0], &parts[1]})) return whole;
  auto node = add_node(
      {&parts[0], &parts[1]}, {},
      [dim, first = parts[0].size(dim), second = parts[1].size(dim)](
          Node&, Tensors&& gradients) -> Tensors {
        return {gradients[0].narrow(dim, 0, first), gradients[0].narrow(dim, first, second)};
      });
  whole.set_edge({std::move(node), 0});
  return whole;
}

Tensor stack(const Tensors& parts, int64_t dim) {
  const auto defined =
      std::find_if(parts.begin(), parts.end(), [](const Tensor& part) { return part.defined(); });
  Sizes sizes = defined->sizes();
  sizes.insert(static_cast<size_t>(dim), static_cast<int64_t>(parts.size()));
  return Tensor::empty(defined->context(), sizes, defined->scalar_type());
}

Tensor embed_in_zeros(const Tensor& gradient, const Sizes& sizes) {
  return Tensor::empty(gradient.context(), sizes, gradient.scalar_type());
}

// ---- reductions ---------------------------------------------------------------------------------

Tensor sum_to(const Tensor& gradient, const Sizes& sizes) {
  if (gradient.sizes() == sizes) return gradient;
  const size_t lead = gradient.sizes().size() - sizes.size();
  std::vector<int64_t> dims(lead);
  std::iota(dims.begin(), dims.end(), int64_t{0});
  for (size_t i = lead; i < gradient.sizes().size(); ++i) {
    if (sizes[i - lead] == 1 && gradient.sizes()[i] != 1) dims.push_back(static_cast<int64_t>(i));
  }
  const Tensor total = sum(gradient, dims, gradient.scalar_type());
  return lead == 0 ? total : total.view(sizes);
}

// ---- layers -------------------------------------------------------------------------------------

Tensor linear(const Tensor& input, const Tensor& given_weight, const Tensor& given_bias,
              InputUse use) {
  const Tensor weight = given_weight.to(input.scalar_type());
  const Tensor bias = given_bias.to(input.scalar_type());
  return with_node(linear_forward(input, weight, library_with_bias(input, weight)),
                   {&input, &weight, &bias}, {input, weight},
                   [leaf = leaf_of(weight), use](Node& node, Tensors&& gradients) -> Tensors {
                     const Tensor gradient = as_matrix(gradients[0]);
                     Tensors results = product_gradients(node, gradient, leaf.get(), use);
                     Tensor& bias_gradient = results.emplace_back();
                     if (node.wants(2)) bias_gradient = bias_gradient_of(gradient);
                     return results;
                   });
}

Tensor project(const Tensor& input, const Tensor& given_weight, InputUse use) {
  const Tensor weight = given_weight.to(input.scalar_type());
  return with_node(linear_forward(input, weight, BlasLibrary::cublas), {&input, &weight},
                   {input, weight}, [leaf = leaf_of(weight), use](Node& node, Tensors&& gradients) {
                     return product_gradients(node, as_matrix(gradients[0]), leaf.get(), use);
                   });
}

}  // namespace shardlens::planner::meta
