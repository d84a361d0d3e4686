#include "base/process/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace shardlens {

namespace {

namespace fs = std::filesystem;

/// Returns the R of "rankR.slp".
std::optional<int32_t> rank_of_file(const fs::path& path) {
  const std::string stem = path.stem().string();
  constexpr std::string_view kPrefix = "rank";
  if (!stem.starts_with(kPrefix) || path.extension() != ".slp") return std::nullopt;
  int32_t rank = 0;
  const char* const end = stem.data() + stem.size();
  const auto [stop, error] = std::from_chars(stem.data() + kPrefix.size(), end, rank);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return rank;
}

using RankFiles = std::vector<std::pair<int32_t, std::string>>;  // by rank

RankFiles files_of_run(const fs::path& run) {
  const fs::path inside = run / "profiles";
  RankFiles files;
  for (const auto& entry : fs::directory_iterator(fs::is_directory(inside) ? inside : run)) {
    if (const auto rank = rank_of_file(entry.path())) {
      files.emplace_back(*rank, entry.path().string());
    }
  }
  if (files.empty()) {
    throw std::invalid_argument(fmt::format(
        "{}: no recording profiles/rank0.slp; train with --profile to make one", run.string()));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string parse_program(CLI::App& app, const std::vector<std::string>& arguments) {
  try {
    // CLI11 takes the arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(fmt::format("{}; see --help", error.what()));
  }
  return {};
}

void parse_flags(CLI::App& app, const std::vector<std::string>& arguments) {
  app.set_help_flag();
  parse_program(app, arguments);
}

CLI::Validator positive_number() {
  const auto problem = [](std::string& text) -> std::string {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && number > 0) return {};
    return fmt::format("give a number above 0, not {}", text);
  };
  return {problem, "POSITIVE"};
}

std::vector<std::string> recordings_of(const std::string& run_or_file,
                                       std::optional<int32_t> rank) {
  if (!fs::exists(run_or_file)) {
    throw std::invalid_argument(
        fmt::format("{}: no such file or folder; give a run's folder or a .slp file", run_or_file));
  }
  if (!fs::is_directory(run_or_file)) return {run_or_file};
  std::vector<std::string> files;
  for (const auto& [of_rank, path] : files_of_run(run_or_file)) {
    if (!rank || *rank == of_rank) files.push_back(path);
  }
  return files;
}

double parse_percent(std::string_view flag, std::string_view text) {
  double percent = 0;
  std::string_view number = text;
  if (number.ends_with('%')) number.remove_suffix(1);
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, percent);
  if (error != std::errc{} || stop != end || !(percent >= 0) || std::isinf(percent)) {
    throw std::invalid_argument(
        fmt::format("{} {}: not a percentage; give one such as 2%", flag, text));
  }
  return percent;
}

std::string free_path(const std::string& path) {
  std::string free = path;
  std::error_code unreadable;
  for (int i = 2; std::filesystem::exists(free, unreadable); ++i)
    free = fmt::format("{}-{}", path, i);
  return free;
}

std::string default_folder(const std::vector<std::string>& command) {
  std::string name = std::filesystem::path(command.front()).stem();
  for (const std::string& word : command) {
    if (word.ends_with(".py")) name = std::filesystem::path(word).stem();
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  return free_path(fmt::format("runs/{}-{}", name, time));
}

std::string shell_word(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-_=+:,./@%").find(char(c)) != std::string::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace shardlens
