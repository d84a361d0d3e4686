#include "viewer/ui/interface.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "viewer/state/choices.h"

namespace shardlens::viewer {

namespace {

constexpr std::array kMenus = {"File", "View",   "Align",  "Go",     "Lanes",
                               "Find", "Select", "Panels", "What if"};

constexpr ImGuiWindowFlags kSheet = ImGuiWindowFlags_NoTitleBar | ImGuiWindowFlags_NoResize |
                                    ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings;

ImVec4 vec(const Color& c) {
  return {static_cast<float>(c.r) / 255, static_cast<float>(c.g) / 255,
          static_cast<float>(c.b) / 255, static_cast<float>(c.a) / 255};
}

/// Places the next window in the upper middle, as wide as `part` of the whole window.
void place_sheet(float part, float height) {
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({size.x * (1 - part) / 2, size.y * 0.12F});
  ImGui::SetNextWindowSize({size.x * part, height});
}

}  // namespace

Request Interface::take_request() { return std::exchange(request_, Request::none); }

void Interface::ask(Prompt what) {
  asking_ = what;
  chosen_ = 0;
  browsed_for_.reset();
  const ViewState& state = presenter_.state();
  const bool renames = what == Prompt::rename && state.focus < presenter_.runs().size();
  line_.start(what == Prompt::search ? state.search
              : renames              ? presenter_.runs()[state.focus].name
                                     : "");
}

void Interface::run(const Command& command) {
  said_.clear();
  asking_ = Prompt::nothing;
  const Request request = presenter_.perform(command);
  switch (request) {
    case Request::palette:
      return ask(Prompt::palette);
    case Request::help:
      return ask(Prompt::help);
    case Request::search:
      return ask(Prompt::search);
    case Request::add_note:
      return ask(Prompt::note);
    case Request::list_notes:
      return ask(Prompt::notes);
    case Request::rename_lane:
      return ask(Prompt::rename);
    case Request::open_file:
      return ask(Prompt::open);
    case Request::copy_pick:
      return copy(presenter_.pick_text(),
                  "nothing is selected: click a block, a row or a frame, or press S");
    case Request::copy_record_line: {
      const auto& what_if = presenter_.state().what_if;
      const bool is_program = what_if && what_if_kind_of(*what_if) == WhatIfKind::recording;
      return copy(is_program ? record_line(*what_if) : "",
                  "there is no command to copy: open What if (Alt+I) on a recorded program");
    }
    default:
      request_ = request;
  }
}

void Interface::copy(const std::string& text, const char* otherwise) {
  if (text.empty()) return say(otherwise);
  ImGui::SetClipboardText(text.c_str());
  say("copied: " + text.substr(0, text.find('\n')));
}

void Interface::apply_theme() {
  const Colors& colors = colors_of(presenter_.state().theme);
  ImGuiStyle& style = ImGui::GetStyle();
  style.WindowRounding = 4;
  style.Colors[ImGuiCol_Text] = vec(colors.text);
  style.Colors[ImGuiCol_TextDisabled] = vec(colors.muted);
  style.Colors[ImGuiCol_WindowBg] = vec(colors.card);
  style.Colors[ImGuiCol_PopupBg] = vec(colors.card);
  style.Colors[ImGuiCol_MenuBarBg] = vec(colors.card);
  style.Colors[ImGuiCol_Border] = vec(colors.card_edge);
  style.Colors[ImGuiCol_FrameBg] = vec(colors.plot);
  style.Colors[ImGuiCol_Header] = vec(colors.accent.with_alpha(90));
  style.Colors[ImGuiCol_HeaderHovered] = vec(colors.accent.with_alpha(120));
  style.Colors[ImGuiCol_HeaderActive] = vec(colors.accent.with_alpha(150));
  style.Colors[ImGuiCol_TextSelectedBg] = vec(colors.accent.with_alpha(110));
}

void Interface::draw(const Frame& frame) {
  apply_theme();
  if (frame.has_menu) draw_menu();
  take_inputs();
  if (asking_ == Prompt::nothing) draw_tooltip();
  const Canvas canvas{frame.width, frame.height,
                      frame.has_menu ? static_cast<int>(menu_height_) : 0, frame.scale,
                      frame.is_figure};
  const Picture& picture = presenter_.picture(canvas, fonts_.metrics());
  viewer::draw(picture, presenter_.ground(), fonts_, backdrop_, *ImGui::GetBackgroundDrawList());
  draw_question();
}

void Interface::draw_menu() {
  if (!ImGui::BeginMainMenuBar()) return;
  for (const char* menu : kMenus) {
    if (!ImGui::BeginMenu(menu)) continue;
    for (const Command& command : commands()) {
      if (command.menu != menu) continue;
      const std::string title(command.title);
      const std::string key(command.key);
      const bool is_marked = is_on(command.id, presenter_.state()).value_or(false);
      if (ImGui::MenuItem(title.c_str(), key.c_str(), is_marked)) run(command);
    }
    if (closes_menu_) ImGui::CloseCurrentPopup();
    ImGui::EndMenu();
  }
  closes_menu_ = false;
  menu_height_ = ImGui::GetWindowSize().y;
  draw_hint();
  ImGui::EndMainMenuBar();
}

/// Says at the right of the menu what was just done, or else how to find everything: there it
/// covers nothing.
void Interface::draw_hint() {
  const std::string text = said_.empty() ? "F1: keys, Ctrl+P: find a command" : said_;
  const float width = ImGui::CalcTextSize(text.c_str()).x + 2 * ImGui::GetStyle().ItemSpacing.x;
  ImGui::SetCursorPosX(std::max(ImGui::GetCursorPosX(), ImGui::GetWindowWidth() - width));
  if (said_.empty()) {
    ImGui::TextDisabled("%s", text.c_str());
  } else {
    ImGui::TextUnformatted(text.c_str());
  }
}

void Interface::say(std::string text) {
  said_ = std::move(text);
  said_at_ = std::chrono::steady_clock::now();
}

bool Interface::forgets() {
  constexpr std::chrono::seconds kLong(8);
  if (said_.empty() || std::chrono::steady_clock::now() - said_at_ < kLong) return false;
  said_.clear();
  return true;
}

/// Takes inputs in their order: a key may open a prompt, and those after it are the prompt's text.
/// Inputs after a request wait for the next frame, when the request has been served: they may need
/// what it opened, and a second request would replace it.
void Interface::take_inputs() {
  size_t taken = 0;
  while (taken < inputs_.size() && request_ == Request::none) {
    const Input input = inputs_[taken++];
    std::visit([this](const auto& one) { take_input(one); }, input);
  }
  inputs_.erase(inputs_.begin(), inputs_.begin() + static_cast<std::ptrdiff_t>(taken));
}

void Interface::take_input(const KeyPress& key) {
  asking_ == Prompt::nothing ? take_command_key(key.chord) : take_question_key(key);
}

void Interface::take_command_key(const KeyChord& chord) {
  closes_menu_ = is_menu_open() && chord == parse_chord("Escape");
  if (closes_menu_) return;
  const auto fits = [&](const Command& command) { return parse_chord(command.key) == chord; };
  const auto at = std::ranges::find_if(commands(), fits);
  if (at != commands().end()) run(*at);
}

void Interface::take_question_key(const KeyPress& key) {
  const auto is = [&](std::string_view name) { return key.chord == parse_chord(name); };
  if (is("Escape")) return (void)(asking_ = Prompt::nothing);
  if (asking_ == Prompt::help) return;
  if (is("Enter")) return answer();
  if (is("Down")) return (void)++chosen_;
  if (is("Up")) return (void)(chosen_ -= std::min<size_t>(1, chosen_));
  if (asking_ == Prompt::notes) {
    if (is("Delete")) presenter_.remove_note(chosen_);
    return;
  }
  if (is("Ctrl+C")) return ImGui::SetClipboardText(line_.text().c_str());
  if (is("Ctrl+V")) {
    const char* const pasted = ImGui::GetClipboardText();
    return line_.put(pasted == nullptr ? "" : pasted);
  }
  if (line_.press(key)) chosen_ = 0;
}

/// Returns true if no sheet or open menu takes the pointer.
bool Interface::is_over_picture(float y) const {
  return asking_ == Prompt::nothing && y >= menu_height_ && !is_menu_open();
}

bool Interface::is_menu_open() {
  constexpr ImGuiPopupFlags kAny = ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel;
  return ImGui::IsPopupOpen("", kAny);
}

void Interface::take_input(const PointerMove& move) {
  if (is_dragging_) presenter_.drag(move.x);
  if (is_panning_) presenter_.pan(move.x, move.y, move.x - pointer_.x, pointer_.y - move.y);
  pointer_ = move;
}

void Interface::take_input(const ButtonChange& change) {
  take_input(PointerMove{change.x, change.y});
  bool& is_held = change.button == Button::left ? is_dragging_ : is_panning_;
  const bool was_held = std::exchange(is_held, change.is_down && is_over_picture(change.y));
  if (change.button != Button::left) return;
  if (is_held) presenter_.press(change.x, change.y);
  if (was_held && !is_held) presenter_.release();
}

void Interface::take_input(const WheelTurn& turn) {
  if (!is_over_picture(turn.y)) return;  // ImGui scrolls sheets by itself
  if (turn.shift) presenter_.pan(turn.x, turn.y, 60 * turn.notches, 0);
  if (turn.alt) presenter_.wheel_heights(turn.x, turn.y, turn.notches);
  if (turn.shift || turn.alt) return;
  presenter_.wheel(turn.x, turn.y, turn.ctrl ? turn.notches / 4 : turn.notches);
}

void Interface::draw_tooltip() {
  const ImVec2 at = ImGui::GetIO().MousePos;
  if (!is_over_picture(at.y)) return;
  const std::string text = presenter_.hover_text(at.x, at.y);
  if (text.empty()) return;
  ImGui::BeginTooltip();
  ImGui::PushTextWrapPos(ImGui::GetFontSize() * 40);
  ImGui::TextUnformatted(text.c_str());
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

void Interface::draw_question() {
  switch (asking_) {
    case Prompt::palette:
      draw_palette();
      break;
    case Prompt::help:
      draw_help();
      break;
    case Prompt::search:
      draw_text_question("Search allocations",
                         "mlp3 >64MiB rank:3 life>2steps alive@peak, then Enter");
      break;
    case Prompt::note:
      draw_text_question("Note at the cursor", "text of the note, then Enter");
      break;
    case Prompt::notes:
      draw_notes_list();
      break;
    case Prompt::rename:
      draw_text_question("Name of the focused run",
                         "a new name, then Enter; empty: its original name");
      break;
    case Prompt::open:
      draw_open();
      break;
    case Prompt::nothing:
      break;
  }
}

void Interface::draw_text_question(const char* title, const char* hint) {
  place_sheet(0.5F, 3.2F * ImGui::GetFrameHeightWithSpacing());
  ImGui::Begin("question", nullptr, kSheet);
  ImGui::TextUnformatted(title);
  draw_line(hint);
  ImGui::End();
}

/// Draws the line that is being typed, scrolled to the left if its cursor would be outside.
void Interface::draw_line(const char* hint) const {
  const float pad = ImGui::GetStyle().FramePadding.x;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 size{ImGui::GetContentRegionAvail().x, ImGui::GetFrameHeight()};
  const ImVec2 end{at.x + size.x, at.y + size.y};
  const std::string& text = line_.text();
  const float cursor = ImGui::CalcTextSize(text.c_str(), text.c_str() + line_.cursor()).x;
  const float left = at.x + pad - std::max(0.F, cursor - (size.x - 3 * pad));
  const float top = at.y + ImGui::GetStyle().FramePadding.y;
  const float bottom = top + ImGui::GetTextLineHeight();
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled(at, end, ImGui::GetColorU32(ImGuiCol_FrameBg));
  list.PushClipRect({at.x + pad / 2, at.y}, {end.x - pad / 2, end.y}, true);
  if (line_.is_selected()) {
    list.AddRectFilled({left, top}, {left + ImGui::CalcTextSize(text.c_str()).x, bottom},
                       ImGui::GetColorU32(ImGuiCol_TextSelectedBg));
  }
  if (text.empty()) {
    list.AddText({left + pad, top}, ImGui::GetColorU32(ImGuiCol_TextDisabled), hint);
  } else {
    list.AddText({left, top}, ImGui::GetColorU32(ImGuiCol_Text), text.c_str());
  }
  list.AddLine({left + cursor, top}, {left + cursor, bottom}, ImGui::GetColorU32(ImGuiCol_Text));
  list.PopClipRect();
  ImGui::Dummy(size);
}

void Interface::answer() {
  const std::string& text = line_.text();
  try {
    switch (std::exchange(asking_, Prompt::nothing)) {
      case Prompt::palette:
        if (const auto found = matching_commands(text); !found.empty()) {
          run(*found[std::min(chosen_, found.size() - 1)]);
        }
        break;
      case Prompt::search:
        presenter_.set_search(text);
        break;
      case Prompt::note:
        presenter_.add_note(text);
        break;
      case Prompt::notes:
        presenter_.go_to_note(chosen_);
        break;
      case Prompt::rename:
        presenter_.rename(text);
        break;
      case Prompt::open:
        take_path();
        break;
      default:
        break;
    }
  } catch (const std::invalid_argument& error) {
    say(error.what());
  }
}

/// Returns what matches the typed path. The folder is read again only if another one is typed.
const std::vector<BrowsedPath>& Interface::browsed_paths() {
  if (browsed_for_ == line_.text()) return browsed_;
  browsed_for_ = line_.text();
  browsed_ = browse(line_.text(), recent_);
  return browsed_;
}

/// Opens the chosen path, or the typed one if nothing matches.
void Interface::take_path() {
  const auto& found = browsed_paths();
  if (found.empty()) {
    path_ = line_.text();
    request_ = Request::open_file;
    return;
  }
  take_browsed(BrowsedPath(found[std::min(chosen_, found.size() - 1)]));
}

/// Opens a path, or goes into a folder that is not a run.
void Interface::take_browsed(const BrowsedPath& chosen) {
  if (chosen.is_entered) {
    ask(Prompt::open);
    return line_.put(chosen.path);
  }
  asking_ = Prompt::nothing;
  path_ = chosen.path;
  request_ = Request::open_file;
}

void Interface::draw_open() {
  const float line = ImGui::GetFrameHeightWithSpacing();
  place_sheet(0.6F, std::min(ImGui::GetIO().DisplaySize.y * 0.7F, 20 * line));
  ImGui::Begin("open", nullptr, kSheet);
  ImGui::TextUnformatted("Open");
  ImGui::SameLine();
  ImGui::TextDisabled("runs, folders of runs, recordings, plans, snapshots; Escape closes this");
  draw_line("part of a name or a path, then Enter; Up and Down choose");
  const auto& found = browsed_paths();
  chosen_ = found.empty() ? 0 : std::min(chosen_, found.size() - 1);
  std::optional<BrowsedPath> wanted;
  ImGui::BeginChild("paths");
  if (found.empty()) ImGui::TextDisabled("nothing here matches; Enter opens what you typed");
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string text = fmt::format("{}##{}", found[i].name, i);
    if (ImGui::Selectable(text.c_str(), i == chosen_)) wanted = found[i];
    if (i == chosen_) ImGui::SetScrollHereY();
    ImGui::SameLine(ImGui::GetWindowWidth() * 0.78F);
    ImGui::TextDisabled("%s", found[i].what.empty() ? "opened before" : found[i].what.c_str());
  }
  ImGui::EndChild();
  ImGui::End();
  if (wanted) take_browsed(*wanted);
}

void Interface::draw_palette() {
  const float line = ImGui::GetFrameHeightWithSpacing();
  place_sheet(0.5F, std::min(ImGui::GetIO().DisplaySize.y * 0.7F, 18 * line));
  ImGui::Begin("palette", nullptr, kSheet);
  draw_line("words of a command, then Enter");
  const auto found = matching_commands(line_.text());
  chosen_ = found.empty() ? 0 : std::min(chosen_, found.size() - 1);
  const Command* wanted = nullptr;
  if (found.empty()) ImGui::TextDisabled("no command has these words; F1 lists all");
  ImGui::BeginChild("found");
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string title = fmt::format("{}##{}", found[i]->title, found[i]->id);
    if (ImGui::Selectable(title.c_str(), i == chosen_)) wanted = found[i];
    ImGui::SameLine(ImGui::GetWindowWidth() * 0.8F);
    ImGui::TextDisabled("%s", std::string(found[i]->key).c_str());
  }
  ImGui::EndChild();
  ImGui::End();
  if (wanted != nullptr) run(*wanted);
}

void Interface::draw_notes_list() {
  const auto& notes = presenter_.state().notes;
  place_sheet(
      0.5F, std::min(ImGui::GetIO().DisplaySize.y * 0.7F, 14 * ImGui::GetFrameHeightWithSpacing()));
  ImGui::Begin("notes", nullptr, kSheet);
  ImGui::TextUnformatted("Notes");
  ImGui::SameLine();
  ImGui::TextDisabled("Enter goes there, Delete removes, Escape closes this");
  ImGui::Separator();
  if (notes.empty()) ImGui::TextDisabled("none yet: M makes one at the cursor");
  chosen_ = notes.empty() ? 0 : std::min(chosen_, notes.size() - 1);
  std::optional<size_t> wanted;
  for (size_t i = 0; i < notes.size(); ++i) {
    const std::string line = notes[i].text.substr(0, notes[i].text.find('\n'));
    if (ImGui::Selectable(fmt::format("{}##{}", line, i).c_str(), i == chosen_)) wanted = i;
    ImGui::SameLine(ImGui::GetWindowWidth() * 0.7F);
    ImGui::TextDisabled(
        "%s", fmt::format("{:.6g}, {}", notes[i].x, axis_title(notes[i].alignment)).c_str());
  }
  ImGui::End();
  if (!wanted) return;
  asking_ = Prompt::nothing;
  presenter_.go_to_note(*wanted);
}

namespace {

/// Returns the width of the longest key, with a gap after it.
float key_width() {
  float width = 0;
  for (const Command& command : commands()) {
    width = std::max(width, ImGui::CalcTextSize(std::string(command.key).c_str()).x);
  }
  return width + ImGui::GetFontSize();
}

/// Returns how many columns of keys and whole titles fit on the sheet, one to three.
int key_columns() {
  float title = 0;
  for (const Command& command : commands()) {
    title = std::max(title, ImGui::CalcTextSize(std::string(command.title).c_str()).x);
  }
  const float column = title + key_width();
  return std::clamp(static_cast<int>(ImGui::GetContentRegionAvail().x / column), 1, 3);
}

}  // namespace

void Interface::draw_help() {
  place_sheet(0.94F, ImGui::GetIO().DisplaySize.y * 0.8F);
  ImGui::Begin("keys", nullptr, kSheet);
  ImGui::TextUnformatted("Keys");
  ImGui::SameLine();
  ImGui::TextDisabled("wheel: zoom, with Alt the y axis, right drag: move, drag: select");
  ImGui::Separator();
  if (ImGui::BeginTable("keys", key_columns())) {
    for (const char* menu : kMenus) {
      ImGui::TableNextColumn();
      ImGui::TextDisabled("%s", menu);
      for (const Command& command : commands()) {
        if (command.menu != menu) continue;
        ImGui::TextUnformatted(std::string(command.key).c_str());
        ImGui::SameLine(key_width());
        ImGui::TextUnformatted(std::string(command.title).c_str());
      }
      ImGui::Spacing();
    }
    ImGui::EndTable();
  }
  ImGui::End();
}

void draw_progress(double part, const Colors& colors) {
  const ImVec2 size = ImGui::GetIO().DisplaySize;
  ImGui::GetBackgroundDrawList()->AddRectFilled({0, 0}, size,
                                                ImGui::GetColorU32(vec(colors.background)));
  const float line = ImGui::GetFrameHeightWithSpacing();
  place_sheet(0.3F, 2.4F * line);
  ImGui::PushStyleColor(ImGuiCol_WindowBg, vec(colors.card));
  ImGui::PushStyleColor(ImGuiCol_Border, vec(colors.card_edge));
  ImGui::PushStyleColor(ImGuiCol_Text, vec(colors.text));
  ImGui::PushStyleColor(ImGuiCol_FrameBg, vec(colors.plot));
  ImGui::PushStyleColor(ImGuiCol_PlotHistogram, vec(colors.accent.with_alpha(110)));
  ImGui::Begin("progress", nullptr, kSheet);
  ImGui::TextUnformatted("Reading recordings; Escape stops");
  const std::string percent = fmt::format("{:.0f} %", 100 * part);
  ImGui::ProgressBar(static_cast<float>(part), {-1, 0}, percent.c_str());
  ImGui::End();
  ImGui::PopStyleColor(5);
}

}  // namespace shardlens::viewer
