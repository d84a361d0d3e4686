// Packs a lane for a page: all of its changes, in about a byte each, as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/report/alive_tree.h"
#include "viewer/model/lane.h"

namespace shardlens::viewer {

constexpr int64_t kNsPerUs = 1000;  // a page counts microseconds

/// Blocks of the same group and the same size have the same kind.
struct BlockKind {
  uint32_t group = 0;
  int64_t given_bytes = 0;
  int64_t asked_bytes = 0;
};

struct LaneKinds {
  std::vector<profiler::AliveGroup> groups;  // in order of appearance; bytes and count are 0
  std::vector<BlockKind> kinds;              // in the same order
  std::vector<uint32_t> of_block;
};

LaneKinds kinds_of(const Lane& lane);

/// [Note: columns of a page]
/// A page has all changes of a lane, and none twice: a block's birth and death follow from the
/// lengths of lives, since what does not end a life begins one. Numbers are varints of 7 bits,
/// lowest first, and stand in this order:
///   changes, blocks, kinds, samples of reserved memory
///   of each kind its group, given bytes and asked bytes
///   of each change the microseconds since the one before
///   of each block its kind, as a guess: 0 if the guess is right, else the kind + 1
///   of each block its life in changes (0: it never ends) less the guess, zigzag
///   of each sample the microseconds and, zigzag, the bytes since the one before
/// The guess is what followed when the same kContext kinds were last born one after the other: a
/// step of a training is the one before, so nearly all guesses are right, whatever its length.
/// page_data.js reads this.
std::string packed_changes(const Lane& lane, const LaneKinds& kinds);

std::string base64(std::string_view bytes);
/// Returns the text, deflated and then encoded in base64.
std::string packed_text(std::string_view text);

}  // namespace shardlens::viewer
