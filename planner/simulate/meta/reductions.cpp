#include "planner/simulate/meta/reductions.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/units.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

/// One dimension of a loop over elements; strides are in elements.
struct Loop {
  int64_t count, input_stride, output_stride;

  bool is_reduced() const { return output_stride == 0; }
};

/// A reduction as TensorIterator lays it out: reduced dimensions first, each kind by rising stride;
/// dimensions that follow one another in memory are joined.
struct Layout {
  std::vector<Loop> loops;
  size_t reduced = 0;  // of them

  int64_t inputs_per_output() const { return product(0, reduced); }
  int64_t outputs() const { return product(reduced, loops.size()); }

 private:
  int64_t product(size_t from, size_t to) const {
    int64_t result = 1;
    for (size_t i = from; i < to; ++i) result *= loops[i].count;
    return result;
  }
};

/// Compares as TensorIteratorBase's reorder_dimensions does, which looks at the output first. Above
/// 0: `b` has to come before `a`; below: after it; 0: open.
int order_of(const Loop& a, const Loop& b) {
  if (a.is_reduced() != b.is_reduced()) return a.is_reduced() ? -1 : 1;
  if (a.output_stride != 0 && b.output_stride != 0) {
    if (a.output_stride != b.output_stride) return a.output_stride < b.output_stride ? -1 : 1;
    if (a.count > b.count) return 1;
  }
  if (a.input_stride == 0 || b.input_stride == 0) return 0;
  if (a.input_stride != b.input_stride) return a.input_stride < b.input_stride ? -1 : 1;
  return a.count > b.count ? 1 : 0;
}

void reorder(std::vector<Loop>& loops) {
  for (size_t i = 1; i < loops.size(); ++i) {
    size_t at = i;
    for (size_t before = i; before-- > 0;) {
      const int order = order_of(loops[before], loops[at]);
      if (order > 0) {
        std::swap(loops[before], loops[at]);
        at = before;
      } else if (order < 0) {
        break;
      }
    }
  }
}

/// Does what TensorIteratorBase::coalesce_dimensions does.
void join(std::vector<Loop>& loops) {
  if (loops.empty()) return;
  size_t last = 0;
  for (size_t i = 1; i < loops.size(); ++i) {
    Loop& a = loops[last];
    const Loop& b = loops[i];
    const bool follows =
        a.count * a.input_stride == b.input_stride && a.count * a.output_stride == b.output_stride;
    if (a.count == 1 || b.count == 1 || follows) {
      if (a.count == 1) a = {1, b.input_stride, b.output_stride};
      a.count *= b.count;
    } else {
      loops[++last] = b;
    }
  }
  loops.resize(last + 1);
}

size_t index_of(const Tensor& input, int64_t dim) {
  return static_cast<size_t>(dim < 0 ? dim + input.dim() : dim);
}

Sizes reduced_sizes(const Tensor& input, const std::vector<int64_t>& dims) {
  Sizes sizes = input.sizes();
  for (const int64_t dim : dims) sizes[index_of(input, dim)] = 1;
  return sizes;
}

Layout layout_of(const Tensor& input, const Tensor& output, const std::vector<int64_t>& dims) {
  Layout layout;
  for (size_t i = input.sizes().size(); i-- > 0;) {
    const bool is_reduced = std::any_of(dims.begin(), dims.end(),
                                        [&](int64_t dim) { return index_of(input, dim) == i; });
    layout.loops.push_back(
        {input.sizes()[i], input.strides()[i], is_reduced ? 0 : output.strides()[i]});
  }
  reorder(layout.loops);
  join(layout.loops);
  layout.reduced =
      static_cast<size_t>(std::count_if(layout.loops.begin(), layout.loops.end(),
                                        [](const Loop& loop) { return loop.is_reduced(); }));
  return layout;
}

/// The shape with which a kernel is started: ReduceConfig of native/cuda/Reduce.cuh, as far as it
/// decides memory.
struct Launch {
  int64_t block_width = 1, block_height = 1;
  int64_t vector = 1;  // outputs of a thread
  int64_t grid = 1;
  int64_t blocks_per_output = 1;
  bool reduces_in_rows = false;

  int64_t buffer_bytes(int64_t outputs, int64_t sum_bytes) const {
    return sum_bytes * outputs * blocks_per_output * (reduces_in_rows ? 1 : block_width * vector);
  }
};

int64_t floor_power_of_2(int64_t value) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

/// Applies get_output_vec_size of Reduce.cuh; all addresses are aligned.
int64_t outputs_of_thread(const Layout& layout) {
  constexpr int64_t kMost = 4;
  int64_t vector = kMost;
  const auto fit = [&](int64_t value) {
    while (value % vector != 0) vector /= 2;
  };
  fit(layout.loops[layout.reduced].count);
  for (size_t i = 0; i < layout.loops.size(); ++i) {
    if (i != layout.reduced) fit(layout.loops[i].input_stride);
  }
  return vector;
}

/// Does the first half of setReduceConfig of Reduce.cuh: chooses the shape of a block of threads.
Launch block_of(const Layout& layout) {
  constexpr int64_t kThreads = 512, kWarp = 32, kInputVector = 4, kLeastVectorized = 128;
  const int64_t outputs = layout.outputs(), inputs = layout.inputs_per_output();
  const std::vector<Loop>& loops = layout.loops;
  Launch launch;
  launch.reduces_in_rows =
      layout.reduced == loops.size() || loops[0].input_stride < loops[layout.reduced].input_stride;
  int64_t width = launch.reduces_in_rows ? inputs : outputs;
  const int64_t height = launch.reduces_in_rows ? outputs : inputs;
  const bool is_dense = loops[launch.reduces_in_rows ? 0 : layout.reduced].input_stride == 1;
  if (is_dense && !launch.reduces_in_rows) {
    launch.vector = outputs_of_thread(layout);
    width /= launch.vector;
  } else if (is_dense && width >= kLeastVectorized && layout.reduced == 1) {
    width /= kInputVector;
  }
  const int64_t threads = kThreads / launch.vector;
  const int64_t most_width = std::min(floor_power_of_2(width), threads);
  const int64_t most_height = std::min(floor_power_of_2(height), threads);
  launch.block_height = std::min(most_height, threads / std::min(most_width, kWarp));
  launch.block_width = std::min(most_width, threads / launch.block_height);
  return launch;
}

/// Does all of setReduceConfig of Reduce.cuh.
Launch launch_of(const Gpu& gpu, const Layout& layout) {
  constexpr int64_t kLeastValues = 16, kMostValues = 256;
  Launch launch = block_of(layout);
  const int64_t outputs = layout.outputs(), inputs = layout.inputs_per_output();
  int64_t input_step = launch.reduces_in_rows ? launch.block_width : 1;
  int64_t output_step = launch.reduces_in_rows ? 1 : launch.block_width;
  const bool splits_columns =
      ceil_div(inputs, input_step) >= std::min(launch.block_height * kLeastValues, kMostValues);
  (splits_columns ? input_step : output_step) *= launch.block_height;
  launch.grid = ceil_div(outputs / launch.vector, output_step);
  const int64_t values = ceil_div(inputs, input_step);
  const int64_t threads = launch.block_width * launch.block_height;
  const int64_t wanted = gpu.sm_count * (gpu.capability.max_threads_per_sm / threads);
  if (splits_columns && values >= kMostValues && launch.grid <= wanted) {
    launch.blocks_per_output =
        std::max(std::min(ceil_div(wanted, launch.grid), ceil_div(values, kLeastValues)),
                 ceil_div(values, kMostValues));
  }
  return launch;
}

/// The bytes of an element of the input, of the output, and of the type in which sums are kept.
struct ElementBytes {
  int64_t input, output, sum;
};

/// Returns the loop with the longest way through memory if a way is too long for 32 bits:
/// TensorIterator's can_use_32bit_indexing and get_dim_to_split.
std::optional<size_t> loop_to_split(const Layout& layout, const ElementBytes& bytes) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t input_end = 1, output_end = 1, longest = -1;
  size_t split = 0;
  for (size_t i = layout.loops.size(); i-- > 0;) {
    const Loop& loop = layout.loops[i];
    const int64_t input_way = (loop.count - 1) * loop.input_stride * bytes.input;
    const int64_t output_way = (loop.count - 1) * loop.output_stride * bytes.output;
    input_end += input_way;
    output_end += output_way;
    if (std::max(input_way, output_way) > longest) {
      longest = std::max(input_way, output_way);
      split = i;
    }
  }
  const int64_t elements = layout.outputs() * layout.inputs_per_output();
  if (std::max({elements, input_end, output_end}) <= kMost) return std::nullopt;
  return split;
}

/// Models gpu_reduce_kernel of Reduce.cuh, which runs one half after the other if 32 bits do not
/// suffice.
void run_kernel(Context& context, const Layout& layout, const ElementBytes& bytes) {
  if (const std::optional<size_t> split = loop_to_split(layout, bytes)) {
    Layout first = layout, rest = layout;
    first.loops[*split].count /= 2;
    rest.loops[*split].count -= first.loops[*split].count;
    run_kernel(context, first, bytes);
    return run_kernel(context, rest, bytes);
  }
  const Launch launch = launch_of(*context.gpu, layout);
  if (launch.blocks_per_output == 1) return;
  constexpr int64_t kSemaphoreBytes = 4;
  const int64_t buffer_bytes = launch.buffer_bytes(layout.outputs(), bytes.sum);
  const Holder buffer(Tensor::empty(context, {buffer_bytes}, Type::uint8));
  const Holder semaphores(Tensor::empty(context, {launch.grid * kSemaphoreBytes}, Type::uint8));
}

/// Takes the memory of the kernels while they run. Halves need memory of their own if they cannot
/// be added up in the output because its type is not precise enough.
void run_on_gpu(const Tensor& input, const Tensor& output, const std::vector<int64_t>& dims,
                int64_t sum_bytes) {
  Context& context = input.context();
  const Layout layout = layout_of(input, output, dims);
  const ElementBytes bytes = {.input = bytes_of(input.scalar_type()),
                              .output = bytes_of(output.scalar_type()),
                              .sum = sum_bytes};
  Tensor sums;
  if (sum_bytes > bytes.output && loop_to_split(layout, bytes)) {
    sums = Tensor::empty(context, {output.numel() * sum_bytes}, Type::uint8);
  }
  run_kernel(context, layout, bytes);
}

/// Joins the results of all threads on the CPU, as two_pass_reduction of TensorIteratorReduce.cpp
/// does, if the whole tensor is reduced to one number.
void join_threads(const Tensor& input, const Tensor& output) {
  constexpr int64_t kLeastParallel = 32768;
  const int64_t threads = input.context().threads;
  if (threads == 1 || output.numel() != 1 || input.numel() < kLeastParallel) return;
  const Holder parts(Tensor::empty(input.context(), {threads}, output.scalar_type()));
}

/// True for a sum in reduced precision on the CPU over memory with gaps: it is computed in fp32 and
/// copied. should_use_acc_buffer of ReduceOps.cpp decides so.
bool needs_wide_sum(const Tensor& input, const Tensor& output, const std::vector<int64_t>& dims) {
  return is_reduced(input.scalar_type()) && input.scalar_type() == output.scalar_type() &&
         layout_of(input, output, dims).reduced >= 2;
}

enum class Kind { sum, amax, norm };

Tensor reduce(const Tensor& input, const std::vector<int64_t>& dims, Type type, Kind kind) {
  Context& context = input.context();
  const CallScope call(context);
  const Tensor output = Tensor::empty(context, reduced_sizes(input, dims), type);
  if (input.is_cuda()) {
    const bool widens = kind != Kind::amax && is_reduced(input.scalar_type());
    run_on_gpu(input, output, dims, widens ? 4 : bytes_of(input.scalar_type()));
    return output;
  }
  if (kind == Kind::sum && needs_wide_sum(input, output, dims)) {
    const Tensor total = Tensor::empty(context, output.sizes(), Type::fp32);
    join_threads(empty_like(input, Type::fp32), total);
    return output;
  }
  // The input is read in the result's type.
  const Tensor read = input.scalar_type() == type ? input : empty_like(input, type);
  if (kind != Kind::norm) join_threads(read, output);
  return output;
}

}  // namespace

Tensor sum(const Tensor& input, const std::vector<int64_t>& dims, Type type) {
  return reduce(input, dims, type, Kind::sum);
}

Tensor amax(const Tensor& input, const std::vector<int64_t>& dims) {
  return reduce(input, dims, input.scalar_type(), Kind::amax);
}

Tensor vector_norm(const Tensor& input) {
  std::vector<int64_t> dims(static_cast<size_t>(input.dim()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  const Tensor norm = reduce(input, dims, Type::fp32, Kind::norm);
  return norm.view({});
}

}  // namespace shardlens::planner::meta
