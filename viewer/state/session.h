// A session as a file: what was opened and how it was looked at. Paths are kept relative to the
// file, so that a folder of runs can be moved with its session.
#pragma once

#include <string>

#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// JSON with a newline at the end. `folder` is where the file will lie.
std::string session_text(const ViewState& state, const std::string& folder);

/// load(save(state)) is the state. Throws std::invalid_argument, one line, for what is no session.
ViewState parse_session(const std::string& text, const std::string& folder);

/// Written under another name and renamed. Throws std::runtime_error where that fails.
void save_session(const ViewState& state, const std::string& path);
/// Throws std::invalid_argument where there is no such file or it is no session.
ViewState load_session(const std::string& path);

}  // namespace shardlens::viewer
