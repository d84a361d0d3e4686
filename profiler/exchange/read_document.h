// Reads pickles and JSON into a Document. Pickles are programs: what is read here is the part of
// that language that makes plain data. Nothing is ever called. Classes and functions that the
// caller names become data, too (see Document); a pickle that asks for any other is refused.
// Integers from 2^63 to 2^64 are kept as their 64 bits: addresses and PyTorch's -1.
#pragma once

#include <span>
#include <string_view>

#include "profiler/exchange/document.h"

namespace shardlens::profiler {

/// Protocols 2 to 5. `globals`: "module.name" of all that may be asked for; with any, persistent
/// ids may be, too. An OrderedDict becomes a map. Throws std::invalid_argument with the offset of
/// the byte that is damaged or asks for what is refused.
Document read_pickle(std::string_view bytes, std::span<const std::string_view> globals = {});

/// Throws std::invalid_argument with the offset of the byte that is no JSON.
Document read_json(std::string_view bytes);

}  // namespace shardlens::profiler
