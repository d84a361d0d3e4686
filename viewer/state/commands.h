// The table of all commands, from which menus, keys, palette, help sheet and tests are made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "viewer/state/facts.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// A command's request to the program around the state.
enum class Request : uint8_t {
  none,
  open_file,
  reload,
  save_session,
  copy_link,
  export_picture,
  export_figure,
  export_page,
  export_table,
  search,
  add_note,
  list_notes,
  rename_lane,
  copy_pick,
  copy_record_line,
  edit_pick,
  run_levers,
  stop_levers,
  palette,
  help,
  undo,
  redo,
  quit,
};

struct Command {
  std::string_view id;     // "layout.columns"; stable, as tests and scripts use it
  std::string_view key;    // "Shift+P"
  std::string_view menu;   // "View"
  std::string_view title;  // in words, for menu, palette and help
  void (*apply)(ViewState& state, const Facts& facts) = nullptr;  // or
  Request request = Request::none;
};

std::span<const Command> commands();

/// Each returns nullptr if there is no such command.
const Command* find_command(std::string_view id);
const Command* command_of_key(std::string_view key);

/// Returns the commands that have all words of a text in their title, id or key: first those with a
/// title that begins with the text, then the others, in the table's order.
std::vector<const Command*> matching_commands(std::string_view text);

/// Scrolls the list of live allocations by rows, never past its last.
void scroll_alive(ViewState& state, const Facts& facts, int64_t rows);
/// Scrolls the list of places by rows, never past its last.
void scroll_places(ViewState& state, const Facts& facts, int64_t rows);
/// Scrolls the table of categories by rows, never past its last.
void scroll_table(ViewState& state, const Facts& facts, int64_t rows);
/// Scrolls the panel of the tree by rows, never past its last.
void scroll_tree(ViewState& state, const Facts& facts, int64_t rows);
/// Makes a place of the tree fill the panel's width.
void zoom_tree(ViewState& state, std::vector<std::string> path);

}  // namespace shardlens::viewer
