// Every act of the user: one table that menus, keys, palette, help sheet and tests are made from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "viewer/state/facts.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// What a command asks of the program around the state.
enum class Request : uint8_t {
  none,
  open_file,
  reload,
  save_session,
  export_picture,
  export_table,
  search,
  add_note,
  palette,
  help,
  undo,
  redo,
  quit,
};

struct Command {
  std::string_view id;     // "layout.columns", stable: tests and scripts say it
  std::string_view key;    // "Shift+P"
  std::string_view menu;   // "View"
  std::string_view title;  // in words, for menu, palette and help
  void (*apply)(ViewState& state, const Facts& facts) = nullptr;  // or
  Request request = Request::none;
};

std::span<const Command> commands();

/// nullptr where there is none.
const Command* find_command(std::string_view id);
const Command* command_of_key(std::string_view key);

/// The commands that have all words of a text in their title, id or key: those whose title begins
/// with it, then the others, in the table's order.
std::vector<const Command*> matching_commands(std::string_view text);

/// Zooms so that `x` stays where it is; `factor` below 1 shows less. Never below a few columns of
/// width 1e-9 of everything, never beyond the extent.
void zoom_at(ViewState& state, const Facts& facts, double x, double factor);
/// Moves the list of what is alive by rows, never past its last.
void scroll_alive(ViewState& state, const Facts& facts, int64_t rows);
void pan_by(ViewState& state, const Facts& facts, double x);

}  // namespace shardlens::viewer
