// Undo and redo over whole states: they are small values.
#pragma once

#include <utility>
#include <vector>

#include "viewer/state/view_state.h"

namespace shardlens::viewer {

class History {
 public:
  /// `before` is what a command is about to change.
  void remember(const ViewState& before) {
    if (!past_.empty() && past_.back() == before) return;
    past_.push_back(before);
    future_.clear();
    if (past_.size() > kMost) past_.erase(past_.begin());
  }
  /// Whether there was something to go back to.
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
