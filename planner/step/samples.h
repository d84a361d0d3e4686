// Does the work around a rank's steps, once for any kind of tensor: takes its samples, makes
// batches of them, sums losses and counts correct answers. `Ops` also has
//   kInt64, range(like, begin, end, step), to(device, tensor)   as tensors of LibTorch have them
#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/dtype.h"
#include "planner/config/training_data.h"

namespace shardlens::planner {

/// Returns rank's part [samples_per_rank] of an order [count]: pads by wrapping, then takes every
/// world_size-th from `rank` on.
template <class Ops, class Tensor = typename Ops::Tensor>
Tensor split(const Tensor& order, int64_t rank, int64_t world_size) {
  const int64_t count = order.numel();
  const int64_t padded = samples_per_rank(count, world_size) * world_size;
  const Tensor positions = Ops::range(order, rank, padded, world_size);
  return order.index_select(0, positions.remainder(count));
}

/// Converts [..] uint8 to fp32 from -1 to 1.
template <class Ops, class Tensor = typename Ops::Tensor>
Tensor normalised(const Tensor& pixels) {
  return pixels.to(Ops::type_of(DType::fp32)).div_(255).sub_(0.5).div_(0.5);
}

/// Gathers a batch out of images that are kept as bytes.
template <class Ops, class Tensor = typename Ops::Tensor>
typename Ops::Batch gather(const Tensor& pixels, const Tensor& labels, const Tensor& indices) {
  return {.input = normalised<Ops>(pixels.index_select(0, indices)),
          .targets = labels.index_select(0, indices).to(Ops::kInt64)};
}

/// Moves a batch to the device: pixels as bytes, labels in int64.
template <class Ops, class Device, class Tensor = typename Ops::Tensor>
typename Ops::Batch move_batch(Device& device, const Tensor& pixels, const Tensor& labels) {
  return {.input = normalised<Ops>(Ops::to(device, pixels)), .targets = Ops::to(device, labels)};
}

/// Counts the correct answers among the first `samples`, and returns what `read` makes of the
/// number, which lies on the device.
template <class Tensor, class Read>
auto count_correct(const Tensor& logits, const Tensor& targets, int64_t samples, const Read& read) {
  const Tensor answers = logits.argmax(1).eq(targets);
  return read(answers.narrow(0, 0, samples).sum());
}

/// Sums the losses of steps on the device.
template <class Tensor>
struct RunningLoss {
  Tensor sum;  // fp32 scalar; undefined: 0
  int64_t steps = 0;

  void add(const Tensor& loss) {
    sum = sum.defined() ? sum.add_(loss) : loss.clone();
    ++steps;
  }
};

}  // namespace shardlens::planner
