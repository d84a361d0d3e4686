#include "profiler/recorder/python/compiled_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace shardlens::profiler {

namespace {

constexpr std::string_view kGraph = "# AOT ID: ";
constexpr std::string_view kNodes = "Source Nodes: [";
constexpr size_t kLeastHash = 50;  // letters of the hash that is a generated file's name

struct Sources {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, CompiledSource> of_node;  // by graph and node
};

Sources& sources() {
  static auto& all = *new Sources();
  return all;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Returns the text between `begin` and `end` in a line; empty if it has none.
std::string_view between(std::string_view line, std::string_view begin, char end) {
  const size_t at = line.find(begin);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = line.substr(at + begin.size());
  return rest.substr(0, rest.find(end));
}

/// Returns the nodes of the kernel that a line belongs to. A buffer is allocated before the comment
/// of the kernel that fills it; a kernel that allocates by itself comes after its comment.
std::string_view nodes_at(const std::vector<std::string_view>& lines, size_t index) {
  const bool is_buffer = lines[index].find("empty_strided") != std::string_view::npos;
  const auto is_end = [](std::string_view line) {
    return line.find("def ") != std::string_view::npos;
  };
  for (size_t i = index; i < lines.size() && !is_end(lines[i]); is_buffer ? ++i : --i) {
    if (const auto nodes = between(lines[i], kNodes, ']'); !nodes.empty()) return nodes;
  }
  return {};
}

/// Returns the source of the last node in the list "a, b" that has one: it makes what the kernel
/// gives.
const CompiledSource* source_of(const std::string& graph, std::string_view nodes) {
  Sources& all = sources();
  const std::lock_guard lock(all.mutex);
  while (!nodes.empty()) {
    const size_t comma = nodes.rfind(", ");
    const size_t begin = comma == std::string_view::npos ? 0 : comma + 2;
    const auto found = all.of_node.find({graph, std::string(nodes.substr(begin))});
    if (found != all.of_node.end()) return &found->second;
    nodes = nodes.substr(0, comma == std::string_view::npos ? 0 : comma);
  }
  return nullptr;
}

/// Returns "graph 0 forward" of "['0_forward']".
std::string graph_words(std::string_view graph) {
  const std::string_view name = between(graph, "'", '\'');
  const size_t cut = name.rfind('_');
  if (cut == std::string_view::npos) return "graph";
  return fmt::format("graph {} {}", name.substr(0, cut), name.substr(cut + 1));
}

std::string text_of_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace

bool is_compiled_code(std::string_view file) {
  const std::string_view name = file.substr(file.rfind('/') + 1);
  if (!name.ends_with(".py") || name.size() < kLeastHash) return false;
  return std::ranges::all_of(name.substr(0, name.size() - 3), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '2' && c <= '7');
  });
}

void tell_compiled_source(std::string_view graph, std::string_view node,
                          const CompiledSource& source) {
  Sources& all = sources();
  const std::lock_guard lock(all.mutex);
  all.of_node.try_emplace({std::string(graph), std::string(node)}, source);
}

CompiledLine compiled_line(std::string_view text, int line) {
  const std::vector<std::string_view> lines = lines_of(text);
  if (lines.empty() || !lines[0].starts_with(kGraph)) return {"compiled code", "", false};
  const std::string graph(lines[0].substr(kGraph.size()));
  const std::string words = "compiled " + graph_words(graph);
  const bool in_backward = words.ends_with("backward");
  const auto index = static_cast<size_t>(line) - 1;
  const std::string_view nodes = line > 0 && index < lines.size() ? nodes_at(lines, index) : "";
  const CompiledSource* const source = source_of(graph, nodes);
  if (source == nullptr) return {words, std::string(nodes), in_backward};
  const bool is_again = in_backward && !source->is_backward;
  return {fmt::format("{}, {}{}", source->place, is_again ? "recomputed in " : "", words),
          source->module, in_backward && !is_again};
}

const CompiledLine& compiled_line_of(const std::string& file, int line) {
  static auto& guard = *new std::mutex();
  static auto& files = *new std::map<std::string, std::string>();
  static auto& known = *new std::map<std::pair<std::string, int>, CompiledLine>();
  const std::lock_guard lock(guard);
  const auto found = known.find({file, line});
  if (found != known.end()) return found->second;
  auto [text, is_new] = files.try_emplace(file);
  if (is_new) text->second = text_of_file(file);
  return known.emplace(std::pair(file, line), compiled_line(text->second, line)).first->second;
}

}  // namespace shardlens::profiler
