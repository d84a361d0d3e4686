#include "viewer/ui/line_editor.h"

#include <algorithm>
#include <utility>

namespace shardlens::viewer {

namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Returns a character as UTF-8.
std::string utf8(unsigned character) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80U | (character >> static_cast<unsigned>(shift) & 0x3FU));
  };
  if (character < 0x80) return {static_cast<char>(character)};
  if (character < 0x800) return {static_cast<char>(0xC0U | character >> 6U), tail(0)};
  if (character < 0x10000) {
    return {static_cast<char>(0xE0U | character >> 12U), tail(6), tail(0)};
  }
  return {static_cast<char>(0xF0U | character >> 18U), tail(12), tail(6), tail(0)};
}

}  // namespace

void LineEditor::start(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
  is_selected_ = !text_.empty();
}

size_t LineEditor::position_before(size_t at) const {
  while (at > 0 && continues(text_[at - 1])) --at;
  return at > 0 ? at - 1 : 0;
}

size_t LineEditor::position_behind(size_t at) const {
  if (at < text_.size()) ++at;
  while (at < text_.size() && continues(text_[at])) ++at;
  return at;
}

bool LineEditor::erase(size_t begin, size_t end) {
  if (std::exchange(is_selected_, false)) {
    begin = 0;
    end = text_.size();
  }
  text_.erase(begin, end - begin);
  cursor_ = begin;
  return begin != end;
}

bool LineEditor::move_to(size_t at) {
  cursor_ = at;
  is_selected_ = false;
  return false;
}

void LineEditor::put(std::string_view text) {
  std::string clean(text);
  std::erase_if(clean, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; });
  if (is_selected_) erase(0, 0);
  text_.insert(cursor_, clean);
  cursor_ += clean.size();
}

bool LineEditor::press(const KeyPress& press) {
  const auto is = [&](std::string_view key) { return press.chord == parse_chord(key); };
  if (is("Backspace")) return erase(position_before(cursor_), cursor_);
  if (is("Delete")) return erase(cursor_, position_behind(cursor_));
  if (is("Left")) return move_to(position_before(cursor_));
  if (is("Right")) return move_to(position_behind(cursor_));
  if (is("Home")) return move_to(0);
  if (is("End")) return move_to(text_.size());
  if (is("Ctrl+A")) is_selected_ = !text_.empty();
  if (press.character < ' ' || press.chord.ctrl || press.chord.alt) return false;
  put(utf8(press.character));
  return true;
}

}  // namespace shardlens::viewer
