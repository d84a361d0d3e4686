// Answers what programs ask of numbers that are not known: they are finite, and a factorisation has
// succeeded. Of too many numbers to know one by one the answer is kept with their block.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

#include "profiler/record/known/given_blocks.h"
#include "profiler/record/known/operators.h"
#include "profiler/record/known/tensors.h"

namespace shardlens::profiler {

/// Answers for numbers that are not known that they are finite.
void take_to_be_finite(KnownMemory& memory, GivenBlocks& blocks, Finiteness asks,
                       c10::ArrayRef<c10::IValue> outputs);

/// Answers for a factorisation that was not computed that it has succeeded.
void take_to_succeed(KnownMemory& memory, int status, c10::ArrayRef<c10::IValue> outputs);

/// Returns the answer that all elements of the tensor are, if its block has one.
std::optional<bool> answer_in(GivenBlocks& blocks, const c10::IValue& asked);

/// Answers whether all or any elements are true, where all of them are `answer`.
void give_answer(KnownMemory& memory, std::optional<bool> answer,
                 c10::ArrayRef<c10::IValue> outputs);

/// Drops the answer in the block of a tensor that is written.
void drop_answer(GivenBlocks& blocks, const at::Tensor& written);

/// True if one of the value's tensors has numbers, but none of them.
bool is_empty_of_numbers(const c10::IValue& value);

bool has_nan(const c10::IValue& value);

}  // namespace shardlens::profiler
