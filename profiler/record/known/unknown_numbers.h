// Answers what programs ask about unknown numbers: they are finite, and a factorisation has
// succeeded. If there are too many numbers to know each, the answer is kept with their block.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

#include "profiler/record/known/given_blocks.h"
#include "profiler/record/known/operators.h"
#include "profiler/record/known/tensors.h"

namespace shardlens::profiler {

/// Answers that unknown numbers are finite.
void take_to_be_finite(KnownMemory& memory, GivenBlocks& blocks, Finiteness asks,
                       c10::ArrayRef<c10::IValue> outputs);

/// Answers that a factorisation succeeded which was not computed.
void take_to_succeed(KnownMemory& memory, int status, c10::ArrayRef<c10::IValue> outputs);

/// Returns the answer that is the value of all elements of the tensor, if its block has one.
std::optional<bool> answer_in(GivenBlocks& blocks, const c10::IValue& asked);

/// Answers whether all or any elements are true, if all of them are `answer`.
void give_answer(KnownMemory& memory, std::optional<bool> answer,
                 c10::ArrayRef<c10::IValue> outputs);

/// Drops the answer in the block of a tensor that is written.
void drop_answer(GivenBlocks& blocks, const at::Tensor& written);

/// True if one of the value's tensors is a floating-point tensor without elements.
bool is_empty_of_numbers(const c10::IValue& value);

bool has_nan(const c10::IValue& value);

}  // namespace shardlens::profiler
