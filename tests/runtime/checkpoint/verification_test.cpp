// Imported weights are verified against the manifest beside them, by one rule for all readers:
// checkpoint import here, train --init and infer in load_weights_test and infer_test.
#include "runtime/checkpoint/verification.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/fault.h"
#include "models/weights/safetensors.h"
#include "models/weights/torch_file.h"
#include "runtime/checkpoint/checkpoint_commands.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/support/memory_folder.h"
#include "tests/support/small_checkpoint.h"

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
namespace fs = std::filesystem;

namespace {

fs::path checkpoint_in(const tests::TemporaryFolder& folder) {
  const CheckpointStore store(folder.file("checkpoints"));
  tests::write_small_checkpoint({.store = store,
                                 .wanted = {.wanted = true},
                                 .rank = 0,
                                 .world_size = 1,
                                 .deadline = std::chrono::seconds(20)},
                                3);
  return store.list().back().path;
}

std::vector<std::string> weights_in(const fs::path& checkpoint) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (holds_weights(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  REQUIRE(names.size() > 1);
  return names;
}

void check_refused(const fs::path& weights, const std::string& file, const std::string& why) {
  INFO(weights);
  CHECK_THROWS_MATCHES(why_unverified(weights), std::invalid_argument,
                       MessageMatches(ContainsSubstring(file) && ContainsSubstring(why) &&
                                      ContainsSubstring("; give another checkpoint")));
}

/// `checkpoint import` of damaged weights makes nothing, least of all checksums.
void check_import_refused(const fs::path& source, const tests::TemporaryFolder& folder,
                          const std::string& why) {
  CHECK_THROWS_MATCHES(
      checkpoint_command({"import", source.string(), "--out", folder.file("imported")}),
      std::invalid_argument, MessageMatches(ContainsSubstring(why)));
  CHECK_FALSE(fs::exists(folder.file("imported")));
}

std::string imported(const fs::path& source, const tests::TemporaryFolder& folder) {
  const std::string said =
      checkpoint_command({"import", source.string(), "--out", folder.file("imported")}).out;
  fs::remove_all(folder.file("imported"));
  return said;
}

}  // namespace

TEST_CASE("weights whose manifest is beside them are verified, as a folder and as a file",
          "[weights]") {
  const tests::MemoryFolder folder;
  const fs::path checkpoint = checkpoint_in(folder);
  const fs::path file = checkpoint / weights_in(checkpoint)[0];
  CHECK_FALSE(why_unverified(checkpoint));
  CHECK_FALSE(why_unverified(file));
  CHECK_THAT(imported(checkpoint, folder),
             ContainsSubstring("verified by the manifest.json beside it"));
  fs::create_symlink(file, folder.file("link.safetensors"));
  CHECK_FALSE(why_unverified(folder.file("link.safetensors")));
}

TEST_CASE("any damage to weights is refused by file and bytes, and gets no new checksums",
          "[weights]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const tests::MemoryFolder folder;
  const fs::path checkpoint = checkpoint_in(folder);
  const std::vector<std::string> files = weights_in(checkpoint);
  for (int i = 0; i < 300; ++i) {
    const std::string& name = files[random() % files.size()];
    const std::string path = (checkpoint / name).string();
    CAPTURE(i, name);
    const std::string whole = tests::read_file(path);
    std::string bytes = whole;
    const bool is_cut = i % 3 == 0;
    if (is_cut) {
      bytes.resize(random() % bytes.size());
    } else {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    tests::write_file(path, bytes);
    const std::string why =
        is_cut ? "it ends at byte " + std::to_string(bytes.size()) + ", not "
               : "its bytes 0 to " + std::to_string(whole.size() - 1) + " have the checksum ";
    check_refused(checkpoint, name, why);
    check_refused(path, name, why);
    check_import_refused(checkpoint, folder, why);
    check_import_refused(path, folder, why);
    tests::write_file(path, whole);
  }
  fs::remove(checkpoint / files[0]);
  check_refused(checkpoint, files[0], "is missing, but manifest.json beside it names it");
}

TEST_CASE("damage to files without weights does not affect them", "[weights]") {
  const tests::MemoryFolder folder;
  const fs::path checkpoint = checkpoint_in(folder);
  fs::resize_file(checkpoint / "state.json", 10);
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().filename().string().starts_with("optimizer-")) fs::remove(entry);
  }
  CHECK_FALSE(why_unverified(checkpoint));
}

TEST_CASE("a damaged manifest is refused, and a manifest of other files is ignored", "[weights]") {
  const tests::MemoryFolder folder;
  const fs::path checkpoint = checkpoint_in(folder);
  const std::string manifest = (checkpoint / "manifest.json").string();
  const std::string whole = tests::read_file(manifest);
  tests::write_file(manifest, whole.substr(0, whole.size() / 2));
  check_refused(checkpoint, checkpoint.filename(), "manifest.json is damaged");
  check_import_refused(checkpoint, folder, "manifest.json is damaged");
  tests::write_file(manifest, R"({"name": "a web page", "icons": []})");
  CHECK(why_unverified(checkpoint) == "no manifest.json beside them says what they should be");
  // No single byte makes damaged weights pass: whatever the byte is, the damage is refused.
  const std::string damaged = weights_in(checkpoint)[0];
  fs::resize_file(checkpoint / damaged, 100);
  int told = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] ^= 1;
    tests::write_file(manifest, bytes);
    CAPTURE(i);
    try {
      const Problem why = why_unverified(checkpoint);
      CHECK_THAT(why.value_or(""), ContainsSubstring("does not name " + damaged));
      ++told;
    } catch (const std::invalid_argument&) {
    }
  }
  CHECK(told < 100);
}

TEST_CASE("weights without known checksums are taken, and reported as such", "[weights]") {
  const tests::MemoryFolder folder;
  const fs::path checkpoint = checkpoint_in(folder);
  const fs::path file = checkpoint / weights_in(checkpoint)[0];
  fs::copy(file, folder.file("alone.safetensors"));
  CHECK_THAT(imported(folder.file("alone.safetensors"), folder),
             ContainsSubstring("alone.safetensors: not verified: no manifest.json beside them"));
  fs::copy(file, checkpoint / "more.safetensors");
  CHECK(why_unverified(checkpoint) == "manifest.json beside them does not name more.safetensors");
  fs::remove(checkpoint / "manifest.json");
  CHECK(why_unverified(checkpoint));
  CHECK_FALSE(why_unverified(folder.file("none")));  // the reader refuses it
}

TEST_CASE("an import without floating-point values is refused, others are reported", "[weights]") {
  const tests::MemoryFolder folder;
  const std::vector<std::byte> bytes(8);
  const models::SafetensorsTensor count{"steps.count", "I64", {1}, bytes};
  const models::SafetensorsTensor mask{"mask", "U8", {8}, bytes};
  const models::SafetensorsTensor weight{"weight", "F32", {2}, bytes};
  const std::string file = folder.file("w.safetensors");
  models::write_safetensors(file, std::vector{mask, count});
  check_import_refused(file, folder, "\"mask\" (U8)");
  check_import_refused(file, folder, "save the weights as F32, BF16, F16 or F64");
  models::write_safetensors(file, std::vector{mask, weight});
  CHECK_THAT(imported(file, folder),
             ContainsSubstring("left out") && ContainsSubstring("\"mask\" (U8)"));
  const models::SafetensorsTensor small{"small", "F8_E4M3", {8}, bytes};
  models::write_safetensors(file, std::vector{small, weight});
  check_import_refused(file, folder, "small is F8_E4M3; only F32, BF16, F16 and F64 are supported");
  models::write_safetensors(file, {});
  check_import_refused(file, folder, "holds no tensors by name");
}
