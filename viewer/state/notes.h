// The user's notes: each belongs to a moment in one alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "viewer/state/facts.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// Goes to a note, in the alignment in which it was made.
void show_note(ViewState& state, size_t note);
/// Goes to the next or the previous of all notes, in order of time, alignment by alignment.
void go_to_note(ViewState& state, int64_t forward);
/// Removes the note of this alignment that is nearest to the cursor.
void remove_nearest_note(ViewState& state, const Facts& facts);

}  // namespace shardlens::viewer
