// Reads configurations of other programs: every key of every table, whole files in the style of
// their documentation, and damaged ones.
#include "planner/config/foreign/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "planner/config/arguments.h"
#include "planner/config/options.h"
#include "planner/plan_command.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using shardlens::tests::TemporaryFolder;
using shardlens::tests::write_file;

namespace {

constexpr std::array kFormats = {ForeignFormat::deepspeed, ForeignFormat::accelerate,
                                 ForeignFormat::torchtitan};

struct ForeignOutcome {
  Config config;
  std::vector<std::string> notes;
  std::string refusal;

  bool has(const std::string& note) const { return std::ranges::find(notes, note) != notes.end(); }
  std::string text() const {
    std::string all;
    for (const std::string& note : notes) all += note + "\n";
    return all;
  }
};

ForeignOutcome read(ForeignFormat format, const std::string& text, const std::string& file,
                    const ForeignContext& context = {}) {
  ForeignOutcome result;
  try {
    result.notes = read_foreign(result.config, format, text, file, context);
  } catch (const std::invalid_argument& error) {
    result.refusal = error.what();
    CHECK(result.refusal.find('\n') == std::string::npos);
  }
  return result;
}

std::string toml_of(const json& value) {
  if (!value.is_object()) return value.dump();
  std::string text;
  for (const auto& [key, below] : value.items()) {
    text += (text.empty() ? "" : ", ") + key + " = " + toml_of(below);
  }
  return "{" + text + "}";
}

/// Writes the format's own notation; JSON is YAML, too.
ForeignOutcome read(ForeignFormat format, const json& document,
                    const ForeignContext& context = {}) {
  if (format == ForeignFormat::deepspeed) return read(format, document.dump(), "ds.json", context);
  if (format == ForeignFormat::accelerate) return read(format, document.dump(), "a.yaml", context);
  std::string text;
  for (const auto& [key, value] : document.items()) text += key + " = " + toml_of(value) + "\n";
  return read(format, text, "t.toml", context);
}

/// "a.b" as {"a": {"b": value}}.
json nested(std::string key, const json& value) {
  if (key.ends_with(".*")) key.resize(key.size() - 2);
  const size_t dot = key.rfind('.');
  if (dot == std::string::npos) return {{key, value}};
  return nested(key.substr(0, dot), {{key.substr(dot + 1), value}});
}

std::string plain(std::string_view name) {
  return std::string(name.ends_with(".*") ? name.substr(0, name.size() - 2) : name);
}

struct Case {
  std::string key;
  json value;
  json beside;           // the file's other keys
  std::string expected;  // after the line's value; "!...": of a refusal
  int64_t world_size = 1;
};

/// Written by hand from the programs' documentation, not from our tables.
const std::vector<Case>& deepspeed_cases() {
  static const json kFp16 = {{"fp16", {{"enabled", true}}}};
  static const std::vector<Case> kCases = {
      {"train_micro_batch_size_per_gpu", 4, {}, "--batch 4"},
      {"gradient_accumulation_steps", 8, {}, "--accumulate 8"},
      {"train_batch_size", 64, {}, "--batch 8", 8},
      {"train_batch_size", 64, {{"gradient_accumulation_steps", 2}}, "--batch 4", 8},
      {"train_batch_size", 64, {{"train_micro_batch_size_per_gpu", 2}}, "--accumulate 4", 8},
      {"train_batch_size", 60, {}, "!not a multiple of 8 ranks", 8},
      {"train_batch_size",
       64,
       {{"train_micro_batch_size_per_gpu", 2}, {"gradient_accumulation_steps", 2}},
       "!not 8 ranks x batch 2 x 2 microbatches",
       8},
      {"zero_optimization.stage", 0, {}, "--strategy ddp"},
      {"zero_optimization.stage", 1, {}, "--strategy fsdp --reshard-after-forward false"},
      {"zero_optimization.stage", 2, {}, "--strategy fsdp --reshard-after-forward false"},
      {"zero_optimization.stage", 3, {}, "--strategy fsdp --reshard-after-forward true"},
      {"zero_optimization.stage", 4, {}, "!stages 0 to 3"},
      {"zero_optimization.zero_hpz_partition_size",
       8,
       {{"zero_optimization", {{"stage", 3}}}},
       "--reshard-after-forward 8"},
      {"zero_optimization.zero_hpz_partition_size", 8, {}, "!only applies to ZeRO stage 3"},
      {"zero_optimization.mics_shard_size", 4, {}, "--strategy hsdp --replicas 2", 8},
      {"zero_optimization.mics_shard_size", 3, {}, "!not a divisor of 8 ranks", 8},
      {"zero_optimization.cpu_offload", true, {}, "--offload optimizer"},
      {"zero_optimization.cpu_offload_params", true, {}, "--offload params"},
      {"zero_optimization.cpu_offload_param",
       true,
       {{"zero_optimization", {{"cpu_offload", true}}}},
       "--offload all"},
      {"zero_optimization.offload_optimizer.device", "cpu", {}, "--offload optimizer"},
      {"zero_optimization.offload_optimizer.device", "none", {}, "--offload none"},
      {"zero_optimization.offload_optimizer.device", "nvme", {}, "!offloading to disks"},
      {"zero_optimization.offload_param.device", "cpu", {}, "--offload params"},
      {"zero_optimization.offload_param.device",
       "cpu",
       {{"zero_optimization", {{"offload_optimizer", {{"device", "cpu"}}}}}},
       "--offload all"},
      {"bf16.enabled", true, {}, "--param-dtype bf16 --reduce-dtype bf16"},
      {"bfloat16.enabled", true, {}, "--param-dtype bf16 --reduce-dtype bf16"},
      {"fp16.enabled", true, {}, "--param-dtype fp16 --reduce-dtype fp16"},
      {"fp16.enabled", true, {{"bf16", {{"enabled", true}}}}, "!bf16 is enabled, too"},
      {"fp16.loss_scale", 0, kFp16, "--loss-scale auto"},
      {"fp16.loss_scale", 128, kFp16, "--loss-scale 128"},
      {"communication_data_type", "fp32", {}, "--reduce-dtype fp32"},
      {"gradient_clipping", 1.0, {}, "--clip-norm 1"},
      {"optimizer.type", "AdamW", {}, "--optimizer adamw"},
      {"optimizer.type", "Adam", {}, "--optimizer adamw"},
      {"optimizer.type",
       "Adam",
       {{"optimizer", {{"params", {{"adam_w_mode", false}}}}}},
       "--optimizer adam"},
      {"optimizer.type", "SGD", {}, "--optimizer sgd"},
      {"optimizer.type", "OneBitAdam", {}, "!give Adam, AdamW or SGD"},
      {"optimizer.params.lr", 3e-4, {}, "--lr 0.0003"},
      {"optimizer.params.weight_decay", 0.01, {}, "--weight-decay 0.01"},
      {"optimizer.params.momentum", 0.9, {}, "--momentum 0.9"},
      {"optimizer.params.max_grad_norm", 0.5, {}, "--clip-norm 0.5"},
  };
  return kCases;
}

const std::vector<Case>& accelerate_cases() {
  static const json kFsdp = {{"distributed_type", "FSDP"}};
  static const json kFsdp2 = {{"distributed_type", "FSDP"}, {"fsdp_config", {{"fsdp_version", 2}}}};
  static const json kDeepSpeed = {{"distributed_type", "DEEPSPEED"}};
  static const std::string kSharding = "fsdp_config.fsdp_sharding_strategy";
  static const std::vector<Case> kCases = {
      {"num_processes", 8, {}, "--workers 8"},
      {"distributed_type", "FSDP", {}, "--strategy fsdp"},
      {"distributed_type", "MULTI_GPU", {}, "--strategy ddp"},
      {"distributed_type", "MULTI_CPU", {}, "--strategy ddp --device cpu"},
      {"distributed_type", "NO", {}, "--strategy single"},
      {"distributed_type", "MEGATRON_LM", {}, "!give FSDP, DEEPSPEED"},
      {"use_cpu", true, {}, "--device cpu"},
      {"mixed_precision", "bf16", kFsdp, "--param-dtype bf16 --reduce-dtype bf16"},
      {"mixed_precision", "fp16", {}, "--param-dtype fp16"},
      {"mixed_precision", "fp8", {}, "!FP8 is not supported yet"},
      {kSharding, "FULL_SHARD", kFsdp, "--strategy fsdp --reshard-after-forward true"},
      {kSharding, "SHARD_GRAD_OP", kFsdp, "--strategy fsdp --reshard-after-forward false"},
      {kSharding, 2, kFsdp, "--strategy fsdp --reshard-after-forward false"},
      {kSharding, "NO_SHARD", kFsdp, "--strategy ddp"},
      {kSharding,
       "HYBRID_SHARD",
       {{"distributed_type", "FSDP"}, {"num_machines", 4}},
       "--strategy hsdp --replicas 4 --reshard-after-forward true"},
      {kSharding, 5, kFsdp, "--strategy hsdp --replicas 1 --reshard-after-forward false"},
      {kSharding, "HALF", kFsdp, "!give FULL_SHARD"},
      {"fsdp_config.fsdp_reshard_after_forward", false, kFsdp2, "--reshard-after-forward false"},
      {"fsdp_config.fsdp_reshard_after_forward", "SHARD_GRAD_OP", kFsdp,
       "--strategy fsdp --reshard-after-forward false"},
      {"fsdp_config.fsdp_reshard_after_forward", "FULL_SHARD", kFsdp2, "!give true or false"},
      {"fsdp_config.fsdp_offload_params", true, kFsdp, "--offload all"},
      {"fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", kFsdp, "--wrap block"},
      {"fsdp_config.fsdp_auto_wrap_policy", "NO_WRAP", kFsdp, "--wrap root"},
      {"fsdp_config.fsdp_auto_wrap_policy",
       "SIZE_BASED_WRAP",
       {{"distributed_type", "FSDP"}, {"fsdp_config", {{"fsdp_min_num_params", 2000}}}},
       "--wrap size:2000"},
      {"fsdp_config.fsdp_backward_prefetch", "BACKWARD_PRE", kFsdp, "--backward-prefetch 1"},
      {"fsdp_config.fsdp_backward_prefetch_policy", "NO_PREFETCH", kFsdp, "--backward-prefetch 0"},
      {"fsdp_config.fsdp_forward_prefetch", true, kFsdp, "--forward-prefetch 1"},
      {"fsdp_config.fsdp_activation_checkpointing", true, kFsdp, "--recompute full"},
      {"fsdp_config.fsdp_ignored_modules", "head", kFsdp, "--ignore module:head"},
      {"parallelism_config.parallelism_config_dp_replicate_size",
       2,
       {{"parallelism_config", {{"parallelism_config_dp_shard_size", 4}}}},
       "--strategy hsdp --replicas 2"},
      {"parallelism_config.parallelism_config_dp_replicate_size", 2, {}, "--strategy ddp"},
      {"deepspeed_config.zero_stage", 3, kDeepSpeed,
       "--strategy fsdp --reshard-after-forward true"},
      {"deepspeed_config.offload_optimizer_device", "cpu", kDeepSpeed, "--offload optimizer"},
      {"deepspeed_config.offload_param_device", "cpu", kDeepSpeed, "--offload params"},
      {"deepspeed_config.gradient_accumulation_steps", 4, kDeepSpeed, "--accumulate 4"},
      {"deepspeed_config.gradient_clipping", 1.5, kDeepSpeed, "--clip-norm 1.5"},
  };
  return kCases;
}

const std::vector<Case>& torchtitan_cases() {
  static const json kShards = {{"parallelism", {{"data_parallel_shard_degree", 4}}}};
  static const json kOne = {{"parallelism", {{"data_parallel_shard_degree", 1}}}};
  static const std::string kReplicate = "parallelism.data_parallel_replicate_degree";
  static const std::string kRecompute = "activation_checkpoint.mode";
  static const std::vector<Case> kCases = {
      {"model.flavor", "8B", {}, "--model llama-8b"},
      {"model.flavor", "70B", {}, "--model llama-70b"},
      {"model.flavor", "405B", {}, "!only 8B and 70B"},
      {"model.flavor", "8B", {{"model", {{"name", "qwen3"}}}}, "!only 8B and 70B"},
      {"training.seq_len", 8192, {}, "--seq 8192"},
      {"training.local_batch_size", 2, {}, "--batch 2"},
      {"training.batch_size", 2, {}, "--batch 2"},
      {"training.max_norm", 0.5, {}, "--clip-norm 0.5"},
      {"training.steps", 1000, {}, "--steps 1000"},
      {"training.seed", 42, {}, "--seed 42"},
      {"debug.seed", 42, {}, "--seed 42"},
      {"training.enable_cpu_offload", true, {}, "--offload all"},
      {"training.mixed_precision_param", "float32", {}, "--param-dtype fp32"},
      {"training.mixed_precision_reduce", "bfloat16", {}, "--reduce-dtype bf16"},
      {"optimizer.name", "Adam", {}, "--optimizer adam"},
      {"optimizer.lr", 3e-4, {}, "--lr 0.0003"},
      {"optimizer.weight_decay", 0.2, {}, "--weight-decay 0.2"},
      {kReplicate, 1, {}, "--strategy fsdp", 64},
      {kReplicate, 1, kOne, "--workers 1 --strategy single"},
      {kReplicate, 2, kOne, "--workers 2 --strategy ddp"},
      {kReplicate, 2, kShards, "--workers 8 --strategy hsdp --replicas 2"},
      {"parallelism.fsdp_reshard_after_forward", "default", {}, "--reshard-after-forward auto"},
      {"parallelism.fsdp_reshard_after_forward", "always", {}, "--reshard-after-forward true"},
      {"parallelism.fsdp_reshard_after_forward", "never", {}, "--reshard-after-forward false"},
      {"training.global_batch_size",
       64,
       {{"training", {{"local_batch_size", 2}}}},
       "--accumulate 4",
       8},
      {"training.global_batch_size", 60, {}, "!not a multiple of 64 samples", 8},
      {kRecompute, "full", {}, "--recompute full"},
      {kRecompute, "none", {}, "--recompute none"},
      {kRecompute, "selective", {}, "--recompute every:2"},
      {kRecompute,
       "selective",
       {{"activation_checkpoint", {{"selective_ac_option", "4"}}}},
       "--recompute every:4"},
      {kRecompute,
       "selective",
       {{"activation_checkpoint", {{"selective_ac_option", "op"}}}},
       "!give --recompute none"},
      {kRecompute, "memory_budget", {}, "!give \"none\" or \"full\""},
      {"metrics.log_freq", 5, {}, "--log-every 5"},
  };
  return kCases;
}

const std::vector<Case>& cases_of(ForeignFormat format) {
  return format == ForeignFormat::deepspeed    ? deepspeed_cases()
         : format == ForeignFormat::accelerate ? accelerate_cases()
                                               : torchtitan_cases();
}

ForeignContext ranks(int64_t world_size) {
  return {.world_size = world_size,
          .is_launched = false,
          .flags = world_size > 1 ? std::vector<std::string>{"world"} : std::vector<std::string>{}};
}

/// The tables of docs/strategies.md.
std::string section_of(ForeignFormat format) {
  std::string rows, refused;
  for (const ForeignKey& key : foreign_keys(format)) {
    if (key.effect == ForeignEffect::mapped) {
      rows += fmt::format("| `{}` | `{}` |\n", key.name, key.text);
    } else if (key.effect == ForeignEffect::only_off) {
      refused += fmt::format("- `{}`: {}\n", key.name, key.text);
    }
  }
  return fmt::format("### {}\n\n| key | flags |\n|---|---|\n{}\nRefused unless they are off:\n\n{}",
                     to_string(format), rows, refused);
}

/// A value that turns on the setting that `off`, JSON or nothing, turns off.
json on_value(std::string_view off) {
  if (off.empty()) return {{"enabled", true}};
  const json value = json::parse(off);
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value == 0 ? json(0.5) : json(2);
  if (value.is_array()) return json::array({"other"});
  return "other";
}

}  // namespace

TEST_CASE("every key of another program that has a meaning here is read as its documentation says",
          "[foreign]") {
  for (const ForeignFormat format : kFormats) {
    for (const Case& wanted : cases_of(format)) {
      json document = wanted.beside.is_null() ? json::object() : wanted.beside;
      document.merge_patch(nested(wanted.key, wanted.value));
      const ForeignOutcome result = read(format, document, ranks(wanted.world_size));
      CAPTURE(to_string(format), document.dump(), result.text(), result.refusal);
      if (wanted.expected.starts_with("!")) {
        CHECK_THAT(result.refusal, ContainsSubstring(wanted.expected.substr(1)));
        CHECK_THAT(result.refusal, ContainsSubstring(wanted.key));
        continue;
      }
      const bool is_read = std::ranges::any_of(result.notes, [&](const std::string& note) {
        return note.starts_with(wanted.key + " ") && note.ends_with(" -> " + wanted.expected);
      });
      CHECK(is_read);
    }
  }
}

TEST_CASE("the tables of other programs' keys are tested key by key", "[foreign]") {
  for (const ForeignFormat format : kFormats) {
    for (const ForeignKey& key : foreign_keys(format)) {
      CAPTURE(to_string(format), key.name);
      const auto is_case = [&](const Case& one) { return one.key == key.name; };
      CHECK(std::ranges::any_of(cases_of(format), is_case) ==
            (key.effect == ForeignEffect::mapped));
      CHECK(std::ranges::count(foreign_keys(format), key.name, &ForeignKey::name) == 1);
      CHECK((key.read != nullptr) == (key.effect == ForeignEffect::mapped));
      CHECK_FALSE(key.text.empty());
    }
  }
}

TEST_CASE("keys without a meaning here change nothing and are reported with a reason",
          "[foreign]") {
  for (const ForeignFormat format : kFormats) {
    const Config without = read(format, json::object()).config;
    for (const ForeignKey& key : foreign_keys(format)) {
      if (key.effect != ForeignEffect::ignored) continue;
      const bool is_section = key.name.ends_with(".*");
      const json value = is_section ? json{{"some_key", 3}} : json(3);
      const ForeignOutcome result = read(format, nested(std::string(key.name), value));
      CAPTURE(to_string(format), key.name, result.text(), result.refusal);
      CHECK(result.refusal.empty());
      const bool is_of_another = key.text.starts_with("read with ");
      if (!is_of_another) CHECK(to_json(result.config) == to_json(without));
      const std::string line = fmt::format("ignored, {}: {} ", key.text, plain(key.name));
      CHECK(std::ranges::any_of(result.notes,
                                [&](const auto& note) { return note.starts_with(line); }));
    }
  }
}

TEST_CASE("unsupported keys that would change memory are refused by name unless they are off",
          "[foreign]") {
  for (const ForeignFormat format : kFormats) {
    const Config without = read(format, json::object()).config;
    for (const ForeignKey& key : foreign_keys(format)) {
      if (key.effect != ForeignEffect::only_off) continue;
      const std::string name(key.name);
      const ForeignOutcome on = read(format, nested(name, on_value(key.fallback)));
      CAPTURE(to_string(format), key.name, on.refusal);
      CHECK_THAT(on.refusal, ContainsSubstring(plain(key.name) + " "));
      CHECK_THAT(on.refusal, ContainsSubstring(std::string(key.text)));
      if (key.fallback == "null" || (key.fallback.empty() && format == ForeignFormat::torchtitan)) {
        continue;
      }
      const json off_value =
          key.fallback.empty() ? json{{"enabled", false}} : json::parse(key.fallback);
      const ForeignOutcome off = read(format, nested(name, off_value));
      CHECK(off.refusal.empty());
      CHECK(to_json(off.config) == to_json(without));
    }
  }
}

TEST_CASE("a flag beside the file takes the place of what the file says", "[foreign]") {
  const ForeignOutcome result =
      read(ForeignFormat::torchtitan, json{{"model", {{"flavor", "405B"}}}},
           {.world_size = 1, .is_launched = false, .flags = {"model"}});
  CHECK(result.refusal.empty());
  CHECK(result.has("model.flavor 405B: overridden by --model"));
}

TEST_CASE("under a launcher its ranks count, not those of the file", "[foreign]") {
  const TemporaryFolder folder;
  write_file(folder.file("a.yaml"), "distributed_type: MULTI_GPU\nnum_processes: 4\n");
  CHECK(parse_arguments({"--config", folder.file("a.yaml")}).config.workers == 4);
  const Arguments launched = parse_arguments({"--config", folder.file("a.yaml")}, 8);
  CHECK(launched.config.workers == 1);
  CHECK(std::ranges::find(launched.notes,
                          "ignored, the launcher has started the ranks: num_processes 4") !=
        launched.notes.end());
  write_file(folder.file("ds.json"), R"({"train_batch_size": 64})");
  CHECK(parse_arguments({"--config", folder.file("ds.json")}, 8).config.batch == 8);
  CHECK(parse_arguments({"--config", folder.file("ds.json"), "--workers", "4"}).config.batch == 16);
  CHECK(parse_arguments({"--config", folder.file("ds.json"), "--batch", "3"}).config.batch == 3);
}

TEST_CASE("what another program chooses is taken and reported", "[foreign]") {
  const ForeignOutcome result =
      read(ForeignFormat::deepspeed, json{{"train_micro_batch_size_per_gpu", "auto"},
                                          {"train_batch_size", "auto"},
                                          {"bf16", {{"enabled", "auto"}}},
                                          {"zero_optimization", {{"reduce_bucket_size", "auto"}}}});
  CAPTURE(result.text(), result.refusal);
  CHECK(result.refusal.empty());
  CHECK(result.config.batch == Config{}.batch);
  CHECK_THAT(result.text(), ContainsSubstring("train_micro_batch_size_per_gpu auto -> --batch 64"));
  CHECK_THAT(result.text(), ContainsSubstring("bf16.enabled auto -> --param-dtype fp32"));
}

TEST_CASE("an unknown key of another program is refused with its neighbour", "[foreign]") {
  CHECK_THAT(read(ForeignFormat::deepspeed, json{{"gradient_cliping", 1}}).refusal,
             ContainsSubstring("did you mean \"gradient_clipping\"?"));
  CHECK_THAT(
      read(ForeignFormat::accelerate, json{{"fsdp_config", {{"fsdp_colour", "red"}}}}).refusal,
      ContainsSubstring("unknown key \"fsdp_config.fsdp_colour\""));
}

TEST_CASE("a key that another program's file gives twice is refused", "[foreign]") {
  CHECK_THAT(
      read(ForeignFormat::deepspeed, R"({"steps_per_print": 1, "steps_per_print": 2})", "x.json")
          .refusal,
      ContainsSubstring("the key \"steps_per_print\" is given twice"));
  CHECK_THAT(
      read(ForeignFormat::accelerate, "num_processes: 1\nnum_processes: 2\n", "x.yaml").refusal,
      ContainsSubstring("the key \"num_processes\" is given twice"));
  CHECK_FALSE(
      read(ForeignFormat::torchtitan, "[model]\nflavor = \"8B\"\nflavor = \"70B\"\n", "x.toml")
          .refusal.empty());
}

TEST_CASE("a key without a name is refused", "[foreign]") {
  const auto refused = ContainsSubstring("unknown key \"\"");
  CHECK_THAT(read(ForeignFormat::deepspeed, R"({"": 1})", "x.json").refusal, refused);
  CHECK_THAT(read(ForeignFormat::accelerate, "'': no\n", "x.yaml").refusal, refused);
  CHECK_THAT(read(ForeignFormat::torchtitan, "\"\" = \"\"\n", "x.toml").refusal, refused);
  CHECK_THAT(read(ForeignFormat::deepspeed, R"({"": {"zero_optimization": 1}})", "x.json").refusal,
             ContainsSubstring("unknown key \".zero_optimization\""));
}

TEST_CASE("letters outside ASCII are read in TOML's strings, and refused elsewhere", "[foreign]") {
  const std::string model = "[model]\nflavor = \"8B\"\n";
  const auto refusal = [](const std::string& text) {
    return read(ForeignFormat::torchtitan, text, "x.toml").refusal;
  };
  for (const std::string letter : {"\u00e9", "\u0434", "\u1690", "\u2030", "\u3001", "\ufe70"}) {
    INFO(letter);
    CHECK(refusal(model + "# " + letter + "\n").empty());
    CHECK_THAT(refusal(model + letter + " = 1\n"), ContainsSubstring("not TOML: line 3"));
    CHECK_THAT(refusal("[model]\nflavor = \"8B\" " + letter + "\n"),
               ContainsSubstring("not TOML: line 2"));
    CHECK_THAT(refusal("[model]\nflavor = \"\"\"\\\n  " + letter + "\"\"\"\n"),
               ContainsSubstring(letter));
  }
}

TEST_CASE("the format of a file follows from its name, and for JSON from its keys", "[foreign]") {
  CHECK(foreign_format("", "x.yaml") == ForeignFormat::accelerate);
  CHECK(foreign_format("", "x.toml") == ForeignFormat::torchtitan);
  CHECK(foreign_format(R"({"train_batch_size": 8})", "x.json") == ForeignFormat::deepspeed);
  CHECK(foreign_format(R"({"optimizer": {"type": "Adam"}})", "x.json") == ForeignFormat::deepspeed);
  CHECK(foreign_format(R"({"distributed_type": "FSDP"})", "x.json") == ForeignFormat::accelerate);
  CHECK_FALSE(foreign_format(to_json(Config{}), "config.json"));
  CHECK_FALSE(foreign_format("{not JSON", "config.json"));
}

TEST_CASE("damaged configurations of other programs never crash", "[foreign]") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const std::vector<std::pair<ForeignFormat, std::string>> files = {
      {ForeignFormat::deepspeed,
       R"({"train_batch_size": 64, "fp16": {"enabled": true, "loss_scale": 0},)"
       R"( "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},)"
       R"( "mics_shard_size": 4}})"},
      {ForeignFormat::accelerate,
       "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: 'no'\nfsdp_config: &a\n"
       "  fsdp_version: 2\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\ncommands: [*a, [1, ~]]\n"},
      {ForeignFormat::torchtitan,
       "[model]\nflavor = \"8B\"\n[parallelism]\ndata_parallel_replicate_degree = 2\n"
       "data_parallel_shard_degree = 4\n[training]\nglobal_batch_size = 64\nlocal_batch_size = "
       "1\n"},
  };
  int refused = 0;
  constexpr int kTries = 4000;
  for (int i = 0; i < kTries; ++i) {
    const auto& [format, text] = files[engine() % files.size()];
    std::string damaged = text;
    for (uint64_t edits = 1 + engine() % 3; edits > 0; --edits) {
      constexpr std::string_view kUseful = "0123456789{}[]\":,-.'=\n&*eE~";
      const size_t at = engine() % damaged.size();
      const char c = engine() % 4 == 0 ? static_cast<char>(engine() % 256)
                                       : kUseful[engine() % kUseful.size()];
      if (engine() % 3 == 0) damaged.insert(at, 1 + engine() % 20, c);
      if (engine() % 3 == 0) damaged.erase(at, 1 + engine() % 8);
      if (damaged.empty()) damaged = "x";
      damaged[engine() % damaged.size()] = c;
    }
    const std::string file = format == ForeignFormat::deepspeed    ? "x.json"
                             : format == ForeignFormat::accelerate ? "x.yaml"
                                                                   : "x.toml";
    foreign_format(damaged, file);
    refused += read(format, damaged, file, ranks(1 + engine() % 9)).refusal.empty() ? 0 : 1;
  }
  fmt::print("seed {}: {} damaged configurations, {} refused\n", seed, kTries, refused);
  CHECK(refused > kTries / 2);
}

TEST_CASE("hostile sizes in another program's file are refused", "[foreign]") {
  const std::string deep(5000, '[');
  std::string laughs = "a0: &a0 [1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 12; ++i) {
    laughs += fmt::format("a{}: &a{} [*a{},*a{},*a{},*a{},*a{},*a{},*a{},*a{}]\n", i, i, i - 1,
                          i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
  }
  CHECK_FALSE(read(ForeignFormat::accelerate, deep, "x.yaml").refusal.empty());
  CHECK_THAT(read(ForeignFormat::accelerate, laughs, "x.yaml").refusal,
             ContainsSubstring("too many values"));
  CHECK_FALSE(read(ForeignFormat::torchtitan, "a = " + deep, "x.toml").refusal.empty());
  CHECK_THAT(read(ForeignFormat::deepspeed, std::string(2 << 20, ' '), "x.json").refusal,
             ContainsSubstring("not a configuration"));
}

TEST_CASE("the strategies page has the tables of other programs' keys", "[foreign]") {
  const std::string page =
      shardlens::tests::read_file(std::string(SHARDLENS_SOURCE_DIR) + "/docs/strategies.md");
  for (const ForeignFormat format : kFormats) {
    const std::string section = section_of(format);
    if (page.find(section) == std::string::npos) fmt::print("{}", section);
    CHECK(page.find(section) != std::string::npos);
  }
}

TEST_CASE("a plan from DeepSpeed's file is the plan of the flags that it is read as", "[foreign]") {
  const TemporaryFolder folder;
  write_file(
      folder.file("ds.json"),
      R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_optimizer":)"
      R"( {"device": "cpu"}}, "train_batch_size": 64, "gradient_clipping": 1.0,)"
      R"( "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "steps_per_print": 10})");
  const std::vector<std::string> base = {"--model", "vit-b16", "--world", "8", "--gpu", "h100"};
  auto from_file = base;
  from_file.insert(from_file.end(), {"--config", folder.file("ds.json")});
  auto from_flags = base;
  from_flags.insert(from_flags.end(), {"--batch", "8", "--param-dtype", "bf16", "--reduce-dtype",
                                       "bf16", "--reshard-after-forward", "true", "--offload",
                                       "optimizer", "--clip-norm", "1", "--optimizer", "adamw"});
  const PlanOutcome of_file = plan_command(from_file, "");
  CHECK(of_file.out == plan_command(from_flags, "").out);
  CHECK_THAT(of_file.notes,
             ContainsSubstring(
                 "zero_optimization.stage 3 -> --strategy fsdp --reshard-after-forward true\n"));
  CHECK(plan_command(from_flags, "").notes.empty());
}
