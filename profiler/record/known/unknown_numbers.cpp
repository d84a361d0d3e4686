#include "profiler/record/known/unknown_numbers.h"

#include <ATen/ATen.h>

#include "profiler/record/known/unseen.h"

namespace shardlens::profiler {

namespace {

using Outputs = c10::ArrayRef<c10::IValue>;

void fill(KnownMemory& memory, const at::Tensor& tensor, bool value) {
  const UnobservedSection unseen;
  make_known(memory, tensor, empty_like_on_cpu(tensor).fill_(value));
}

}  // namespace

void take_to_be_finite(KnownMemory& memory, GivenBlocks& blocks, Finiteness asks, Outputs outputs) {
  if (asks == Finiteness::nothing || outputs.empty() || !outputs[0].isTensor()) return;
  const at::Tensor& answers = outputs[0].toTensor();
  if (!is_plain(answers)) return;
  const bool answer = asks == Finiteness::is_finite;
  if (!is_small(answers)) {
    if (const auto span = span_of(answers)) blocks.note_answer(span->address, answer);
    return;
  }
  if (!known_values(memory, answers)) fill(memory, answers, answer);
}

void take_to_succeed(KnownMemory& memory, int status, Outputs outputs) {
  if (status < 0 || outputs.size() <= static_cast<size_t>(status)) return;
  const c10::IValue& output = outputs[static_cast<size_t>(status)];
  if (output.isTensor() && is_plain(output.toTensor())) fill(memory, output.toTensor(), false);
}

std::optional<bool> answer_in(GivenBlocks& blocks, const c10::IValue& asked) {
  if (!asked.isTensor() || !is_plain(asked.toTensor())) return std::nullopt;
  const auto span = span_of(asked.toTensor());
  return span ? blocks.answer_in(span->address) : std::nullopt;
}

void give_answer(KnownMemory& memory, std::optional<bool> answer, Outputs outputs) {
  if (!answer || outputs.empty() || !outputs[0].isTensor()) return;
  const at::Tensor& output = outputs[0].toTensor();
  if (is_plain(output) && is_small(output)) fill(memory, output, *answer);
}

void drop_answer(GivenBlocks& blocks, const at::Tensor& written) {
  if (!blocks.has_answers() || !is_plain(written)) return;
  if (const auto span = span_of(written)) blocks.note_written(span->address);
}

bool is_empty_of_numbers(const c10::IValue& value) {
  bool is_empty = false;
  each_tensor(value, [&](const at::Tensor& tensor) {
    is_empty = is_empty || (tensor.numel() == 0 && tensor.is_floating_point());
  });
  return is_empty;
}

bool has_nan(const c10::IValue& value) {
  bool has = false;
  each_tensor(value, [&](const at::Tensor& tensor) {
    has = has || (tensor.is_floating_point() && at::isnan(tensor).any().item<bool>());
  });
  return has;
}

}  // namespace shardlens::profiler
