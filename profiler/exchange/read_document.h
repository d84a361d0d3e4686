// Reads pickles and JSON into a Document. Pickles are programs: what is read here is the part of
// that language that makes plain data. Whatever would make an object of a class, or call anything,
// is refused. Integers from 2^63 to 2^64 are kept as their 64 bits: addresses and PyTorch's -1.
#pragma once

#include <string_view>

#include "profiler/exchange/document.h"

namespace shardlens::profiler {

/// Protocols 2 to 5. Throws std::invalid_argument with the offset of the byte that is damaged or
/// asks for what is refused.
Document read_pickle(std::string_view bytes);

/// Throws std::invalid_argument with the offset of the byte that is no JSON.
Document read_json(std::string_view bytes);

}  // namespace shardlens::profiler
