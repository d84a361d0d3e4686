// Keeps undo and redo as whole states, which are small values.
#pragma once

#include <utility>
#include <vector>

#include "viewer/state/view_state.h"

namespace shardlens::viewer {

class History {
 public:
  /// Remembers a state; `before` is the state that a command is about to change.
  void remember(const ViewState& before) {
    if (!past_.empty() && past_.back() == before) return;
    past_.push_back(before);
    future_.clear();
    if (past_.size() > kMost) past_.erase(past_.begin());
  }
  /// Each goes back or forward by one state, and returns true if there was one.
  bool undo(ViewState& state) { return move(state, past_, future_); }
  bool redo(ViewState& state) { return move(state, future_, past_); }

 private:
  static constexpr size_t kMost = 500;

  static bool move(ViewState& state, std::vector<ViewState>& from, std::vector<ViewState>& to) {
    while (!from.empty() && from.back() == state) from.pop_back();
    if (from.empty()) return false;
    to.push_back(std::exchange(state, from.back()));
    from.pop_back();
    return true;
  }

  std::vector<ViewState> past_;
  std::vector<ViewState> future_;
};

}  // namespace shardlens::viewer
