// How a program was run, as its recording keeps that; why it cannot be run again; and which other
// recordings are its variants.

#include "profiler/record/search/recorded_program.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/device.h"
#include "profiler/record/levers/lever_sites.h"
#include "profiler/record/search/command_again.h"
#include "tests/support/recordings/recorded_program.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {

namespace {

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using tests::ProgramFolder;

std::string obstacle_of(const ProgramFolder& folder) {
  return why_not_again(read_recorded_program(folder.recording())).value_or("");
}

}  // namespace

TEST_CASE("the flags that are kept make the same options again") {
  const std::vector<std::vector<std::string>> all = {
      {"--device", "null:h100"},
      {"--device", "null:l4", "--capacity", "1782579200", "--beside", "0", "--steps", "3"},
      {"--device", "null:h100", "--world", "64", "--rank", "5", "--gpus-per-node", "4"},
      {"--device", "null:h100", "--routing", "skewed:2.5", "--true", "a b.py:3", "--true",
       "c.py:4"},
      {"--device", "null:h100", "--routing", "worst", "--gpu-index", "0"},
      {"--device", "cuda", "--gpu-index", "1", "--steps", "2"}};
  for (std::vector<std::string> flags : all) {
    const std::vector<std::string> wanted = flags;
    flags.insert(flags.end(), {"--out", "out", "--", "python", "train.py"});
    const RecordOptions options = parse_record_options(flags);
    const int64_t memory = options.is_attached() ? 0 : memory_bytes_of(options.device);
    std::vector<std::string> found = flags_again(options, memory);
    found.insert(found.end(), {"--out", "out", "--", "python", "train.py"});
    CHECK(flags_again(parse_record_options(found), memory) == flags_again(options, memory));
    for (const std::string& word : wanted) {
      CAPTURE(word);
      CHECK(std::ranges::find(found, word) != found.end());
    }
  }
}

TEST_CASE("what a program says about its levers is kept, and read again") {
  const Accounts told{.told = {{.process = 1, .what = "lever", .text = R"({"lever":"compile"})"},
                               {.process = 1, .what = "torch"},
                               {.process = 1,
                                .what = "lever_cannot",
                                .text = R"({"lever":"fsdp2","why":"it has one rank"})"}}};
  const Accounts read = read_lever_accounts(json::parse(lever_accounts_json(told).dump()));
  CHECK(read.told.size() == 2);
  for (const char* lever : {"compile", "fsdp2", "recompute"}) {
    CHECK(why_not(parse_levers(lever).front(), read) == why_not(parse_levers(lever).front(), told));
  }
  CHECK(read_lever_accounts(json::parse(R"([1,{"what":"lever"},{"text":"a"}])")).told.empty());
  CHECK(read_lever_accounts(json::parse("{}")).told.empty());
}

TEST_CASE("a recording says why its program cannot be run again") {
  const tests::TemporaryFolder folder;
  struct Case {
    std::function<void(ProgramFolder&)> change;
    std::string why;
  };
  const std::vector<Case> cases = {
      {[](auto&) {}, ""},
      {[](auto& one) { one.config.erase("command"); }, "does not say which command made it"},
      {[](auto& one) { one.config = json::array({1}); }, "does not say which command made it"},
      {[](auto& one) { one.config.erase("flags"); }, "an older version of Shardlens"},
      {[](auto& one) { one.config.erase("directory"); }, "an older version of Shardlens"},
      {[](auto& one) {
         one.config["flags"] = {"--device", "cuda"};
       },
       "it ran on a real GPU"},
      {[](auto& one) { one.config["directory"] = "/nowhere/at/all"; }, "no folder /nowhere/at/all"},
      {[](auto& one) { one.config["python"] = "/nowhere/python"; }, "no /nowhere/python"},
      {[](auto& one) {
         one.config["command"] = {"./gone", "train.py"};
       },
       "gone"},
      {[](auto& one) { one.config["command"] = {"no-such-program-at-all"}; },
       "no no-such-program-at-all"},
      {[](auto& one) {
         one.config["command"] = {"sh", "other.py"};
       },
       "other.py"},
      {[](auto& one) {
         one.config["command"] = {"sh", "-m", "module"};
       },
       ""}};
  for (const Case& one : cases) {
    ProgramFolder program(folder.file("run"));
    one.change(program);
    program.write();
    CAPTURE(one.why);
    const std::string why = obstacle_of(program);
    CHECK(why.empty() == one.why.empty());
    CHECK_THAT(why, ContainsSubstring(one.why));
    CHECK(why.find('\n') == std::string::npos);
  }
}

TEST_CASE("a program is recorded with more levers by its own flags, or to find out which apply") {
  const tests::TemporaryFolder folder;
  ProgramFolder one(folder.file("run"));
  one.config["levers"] = {{"recompute", "full"}};
  one.write();
  const RecordedProgram program = read_recorded_program(one.recording());
  const std::vector<Lever> more = parse_levers("optimizer=fused,empty-cache");
  using Words = std::vector<std::string>;
  CHECK(arguments_with(program, more, "o") == Words{"--device", "null:h100", "--with",
                                                    "recompute=full,optimizer=fused,empty-cache",
                                                    "--out", "o", "--", "sh", "train.py"});
  CHECK(arguments_with(program, {}, "o") == Words{"--device", "null:h100", "--find-levers",
                                                  "--with", "recompute=full", "--out", "o", "--",
                                                  "sh", "train.py"});
  CHECK(folder_with(program, more) == folder.file("run/with/optimizer=fused+empty-cache"));
  CHECK(folder_with(program, {}) == folder.file("run/with/as_it_is"));
}

TEST_CASE("variants are recordings of the same program that differ only in levers") {
  const tests::TemporaryFolder folder;
  ProgramFolder base(folder.file("run"));
  base.facts["sources"] = {{"train.py", "aaaa"}, {"model.py", "bbbb"}};
  base.write();
  const auto add = [&](const std::string& name, const std::function<void(ProgramFolder&)>& change) {
    ProgramFolder one(folder.file("run/with/" + name));
    one.config["levers"] = {{"recompute", "full"}};
    one.facts["sources"] = base.facts["sources"];
    change(one);
    one.write();
  };
  add("1 usual", [](auto&) {});
  add("2 two levers", [](auto& one) { one.config["levers"]["optimizer"] = "fused"; });
  add("3 more memory", [](auto& one) {
    one.config["flags"] = {"--device", "null:h100", "--capacity", "1099511627776", "--steps", "2"};
  });
  add("4 another GPU", [](auto& one) { one.config["flags"] = {"--device", "null:l4"}; });
  add("5 a GPU by a lever", [](auto& one) {
    one.config["flags"] = {"--device", "null:l4"};
    one.config["levers"] = {{"gpu", "l4"}};
  });
  add("6 another command", [](auto& one) { one.config["command"] = {"sh", "train.py", "-v"}; });
  add("7 edited", [](auto& one) { one.facts["sources"]["train.py"] = "cccc"; });
  add("8 killed", [](auto& one) { one.facts.erase("verdict"); });
  add("9 other files", [](auto& one) { one.facts["sources"] = {{"kernel.py", "dddd"}}; });
  std::filesystem::create_directories(folder.file("run/with/empty"));
  std::vector<std::string> found;
  for (const RecordedVariant& one : variants_of(read_recorded_program(base.recording()))) {
    found.push_back(std::filesystem::path(one.folder).filename().string() + ": " +
                    levers_text(one.added));
  }
  CHECK(found == std::vector<std::string>{
                     "1 usual: recompute=full", "2 two levers: optimizer=fused,recompute=full",
                     "3 more memory: recompute=full", "5 a GPU by a lever: gpu=l4",
                     "9 other files: recompute=full"});
  const auto program = read_recorded_program(base.recording());
  const auto edited = read_recorded_program(folder.file("run/with/7 edited/profiles/rank0.slp"));
  CHECK_THAT(why_no_variant(program, edited).value_or(""),
             ContainsSubstring("train.py has changed since"));
}

TEST_CASE("the variants of a search lie beside its program, and say where levers act") {
  const tests::TemporaryFolder folder;
  ProgramFolder base(folder.file("advice/as_it_is"));
  base.facts["lever_sites"] =
      json::array({{{"what", "lever"}, {"text", R"({"lever":"recompute"})"}}});
  base.write();
  const RecordedProgram program = read_recorded_program(base.recording());
  CHECK(program.variants == folder.file("advice"));
  REQUIRE(program.sites);
  CHECK_FALSE(why_not(parse_levers("recompute").front(), *program.sites));
  CHECK(why_not(parse_levers("compile").front(), *program.sites));
  // A plain recording learns it from the run that has found it out.
  ProgramFolder plain(folder.file("plain"));
  plain.write();
  CHECK_FALSE(read_recorded_program(plain.recording()).sites);
  ProgramFolder found(folder.file("plain/with/as_it_is"));
  found.facts["lever_sites"] = base.facts["lever_sites"];
  found.write();
  CHECK(read_recorded_program(plain.recording()).sites);
}

TEST_CASE("a verdict is kept beside the recording, and read again") {
  const tests::TemporaryFolder folder;
  ProgramFolder one(folder.file("run"));
  one.write();
  keep_verdict(one.recording(), {.line = "does not fit: ...",
                                 .exit_code = kDoesNotFit,
                                 .is_out_of_memory = true,
                                 .allocated_bytes = 5,
                                 .reserved_bytes = 7,
                                 .beside_bytes = 11});
  const auto read = read_verdict(one.recording());
  REQUIRE(read);
  CHECK(read->line == "does not fit: ...");
  CHECK((read->exit_code == kDoesNotFit && read->is_out_of_memory));
  CHECK((read->allocated_bytes == 5 && read->reserved_bytes == 7 && read->device_bytes() == 18));
  CHECK_FALSE(read_verdict(folder.file("nothing.slp")));
}

}  // namespace shardlens::profiler
