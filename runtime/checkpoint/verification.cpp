#include "runtime/checkpoint/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/durable_files.h"
#include "base/strict_json.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/checkpoint/measure_file.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

void check_file(const fs::path& folder, const ManifestFile& written, Look look) {
  const fs::path path = folder / written.name;
  const bool is_read = look == Look::every_byte || !holds_tensors(written);
  const ManifestFile found =
      is_read ? measure_file(path) : ManifestFile{written.name, size_of(path), written.crc32c};
  if (found.bytes != written.bytes) {
    throw std::runtime_error(
        fmt::format("{} has {} bytes, not {}", written.name, found.bytes, written.bytes));
  }
  if (const Problem fault = checksum_fault(written, found.crc32c)) {
    throw std::runtime_error(*fault);
  }
}

void check_folder(const fs::path& folder, Look look) {
  const Manifest manifest = read_manifest(folder);
  const std::optional<int64_t> step = step_of(folder);
  if (step && *step != manifest.step) {
    throw std::runtime_error(fmt::format("manifest.json is of step {}", manifest.step));
  }
  if (manifest.files.empty()) throw std::runtime_error("manifest.json names no file");
  for (const ManifestFile& file : manifest.files) check_file(folder, file, look);
}

// --- weights that come in ----------------------------------------------------------------------

[[noreturn]] void refuse_file(const fs::path& file, const std::string& why) {
  throw std::invalid_argument(
      fmt::format("{}: {}; give another checkpoint, or copy this one again from a whole copy "
                  "(shardlens checkpoint verify says which are)",
                  file.string(), why));
}

/// True if the manifest belongs to another kind of program: many kinds use a file of that name.
/// Ours has a schema and lists files, so no single damaged byte makes it look like another
/// program's.
bool is_of_others(const fs::path& manifest) {
  const auto json = find_json(read_whole_file(manifest));
  return json && !json->contains("schema") && !json->contains("files");
}

/// Returns nothing if there is no manifest, or another program's.
std::optional<Manifest> manifest_beside(const fs::path& folder) {
  if (!fs::exists(folder / kManifest) || is_of_others(folder / kManifest)) return std::nullopt;
  try {
    return read_manifest(folder);
  } catch (const std::runtime_error& error) {
    refuse_file(folder.empty() ? "." : folder, error.what());
  }
}

/// Returns the names of the weights that exist, and of those that should.
std::set<std::string> names_of_weights(const fs::path& folder, const Manifest& manifest) {
  std::set<std::string> names;
  for (const ManifestFile& file : manifest.files) {
    if (holds_weights(file.name)) names.insert(file.name);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (holds_weights(name)) names.insert(std::move(name));
  }
  return names;
}

void expect_as_written(const fs::path& path, const ManifestFile& written) {
  if (!fs::exists(path)) refuse_file(path, "is missing, but manifest.json beside it names it");
  if (const int64_t bytes = size_of(path); bytes != written.bytes) {
    refuse_file(path,
                fmt::format("is damaged: it ends at byte {}, not {}, as manifest.json beside it "
                            "says",
                            bytes, written.bytes));
  }
  const uint32_t found = measure_file(path).crc32c;
  if (found == written.crc32c) return;
  refuse_file(path,
              fmt::format("is damaged: its bytes 0 to {} have the checksum {:08x}, not {:08x}, as "
                          "manifest.json beside it says",
                          written.bytes - 1, found, written.crc32c));
}

}  // namespace

Manifest read_manifest(const fs::path& folder) {
  if (!fs::exists(folder / kManifest)) throw std::runtime_error("has no manifest.json");
  try {
    Manifest manifest = parse_manifest(read_whole_file(folder / kManifest));
    for (const ManifestFile& file : manifest.files) {
      if (file.name.empty() || file.name.find('/') != std::string::npos) {
        throw std::runtime_error("is damaged (a file's name)");
      }
    }
    return manifest;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("manifest.json {}", error.what()));
  }
}

bool holds_weights(std::string_view name) {
  return name.ends_with(".safetensors") && !name.starts_with("optimizer-");
}

Problem fault_of(const fs::path& folder, Look look) {
  try {
    check_folder(folder, look);
  } catch (const std::exception& error) {
    return error.what();
  }
  return std::nullopt;
}

Problem why_unverified(const fs::path& weights) {
  if (!fs::exists(weights)) return std::nullopt;
  const bool is_folder = fs::is_directory(weights);
  // A link may be in another folder than the file that was written.
  const bool is_beside = fs::exists(weights.parent_path() / kManifest);
  const fs::path path = is_folder || is_beside ? weights : fs::canonical(weights);
  const fs::path folder = is_folder ? path : path.parent_path();
  const std::optional<Manifest> manifest = manifest_beside(folder);
  if (!manifest) return "no manifest.json beside them says what they should be";
  const std::set<std::string> names =
      is_folder ? names_of_weights(folder, *manifest) : std::set{path.filename().string()};
  if (names.empty()) return "manifest.json beside them names no weights";
  Problem unknown;
  for (const std::string& name : names) {
    const auto written = std::ranges::find(manifest->files, name, &ManifestFile::name);
    if (written == manifest->files.end()) {
      unknown = fmt::format("manifest.json beside them does not name {}", name);
    } else {
      expect_as_written(folder / name, *written);
    }
  }
  return unknown;
}

}  // namespace shardlens::runtime
