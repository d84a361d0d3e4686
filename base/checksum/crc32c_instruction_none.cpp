#include "base/checksum/crc32c_instruction.h"

namespace shardlens {

Crc32cUpdate find_crc32c_instruction() { return nullptr; }

}  // namespace shardlens
