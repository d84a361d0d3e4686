// Saves a session as a file: the opened paths and how they are shown. Paths are relative to the
// file, so that a folder of runs can be moved with its session.
#pragma once

#include <string>

#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// Returns the session as JSON with a newline at the end. `folder` is the folder that the file will
/// be in.
std::string session_text(const ViewState& state, const std::string& folder);

/// Parses a session: the result equals the saved state. Throws std::invalid_argument, with one
/// line, for a text that is not a session.
ViewState parse_session(const std::string& text, const std::string& folder);

/// Writes the session under another name and renames it. Throws std::runtime_error if that fails.
void save_session(const ViewState& state, const std::string& path);
/// Returns the command that opens a session, for a shell.
std::string link_to(const std::string& path);
/// Reads a session. Throws std::invalid_argument if the file does not exist or is not a session.
ViewState load_session(const std::string& path);

}  // namespace shardlens::viewer
