// Reads pickles and JSON into a Document. Pickles are programs: this reader knows the part of their
// language that makes plain data, and never calls a function. Classes and functions that the caller
// names become data, too (see Document); a pickle that asks for any other is refused. Integers from
// 2^63 to 2^64 keep their 64 bits, as for addresses and PyTorch's -1.
#pragma once

#include <span>
#include <string_view>

#include "base/document/document.h"

namespace shardlens {

/// Reads a pickle of protocol 2 to 5. `globals` lists every "module.name" that it may ask for; if
/// there is any, it may use persistent ids, too. An OrderedDict becomes a map. Throws
/// std::invalid_argument with the offset of the byte that is damaged or asks for what is refused.
Document read_pickle(std::string_view bytes, std::span<const std::string_view> globals = {});

/// Reads JSON. Throws std::invalid_argument with the offset of the byte that is not JSON.
Document read_json(std::string_view bytes);

}  // namespace shardlens
