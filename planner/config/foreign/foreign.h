// Reads configurations of other programs, given as --config: DeepSpeed's JSON, accelerate's YAML
// and torchtitan's TOML. Each format has one table of its keys. A key that means something here
// sets our option of that meaning. A key that changes neither memory nor the order of a step is
// ignored, with the reason. A key that would change them, but is not supported here, is refused in
// one line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "planner/config/config.h"

namespace shardlens::planner {

enum class ForeignFormat { deepspeed, accelerate, torchtitan };
constexpr auto choice_words(ForeignFormat) {
  return words("DeepSpeed", "accelerate", "torchtitan");
}

enum class ForeignEffect { mapped, ignored, only_off };

class ForeignReader;

struct ForeignKey {
  std::string_view name;  // "zero_optimization.stage"; "tensorboard.*": the key and all below it
  ForeignEffect effect{};
  std::string_view text;        // mapped: our flags; ignored: why; only_off: why and how to fix it
  std::string_view fallback{};  // as JSON. mapped: what the program takes where the key is missing,
                                // empty: nothing. only_off: what turns it off
  void (*read)(ForeignReader& reading) = nullptr;  // of mapped
};

/// Returns the format's keys in the order in which they are read: later ones may look at earlier
/// ones and override them.
std::span<const ForeignKey> foreign_keys(ForeignFormat format);

/// The circumstances under which a file is read.
struct ForeignContext {
  int64_t world_size = 1;
  bool is_launched = false;        // by torchrun or the like, which has chosen the world size
  std::vector<std::string> flags;  // names of options that the command line overrides it with
};

/// Finds the format by the ending of the file's name, and for JSON files by their keys; nothing if
/// it is a file of our own options.
std::optional<ForeignFormat> foreign_format(std::string_view text, const std::string& file);

/// Sets the options that the file gives. Returns how each key was read, one line each; ignored keys
/// are grouped by reason. Throws std::invalid_argument with one line that names file and key.
std::vector<std::string> read_foreign(Config& config, ForeignFormat format, std::string_view text,
                                      const std::string& file, const ForeignContext& context);

}  // namespace shardlens::planner
