// Tests what follows from the accounts of a command's processes.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "profiler/record/accounts.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

/// Accounts of processes, in this order.
Accounts accounts_of(std::vector<AccountEntry> told) {
  double time_s = 0;
  for (AccountEntry& line : told) line.time_s = ++time_s;
  return {std::move(told)};
}

std::string why(std::vector<AccountEntry> told, const CommandEnd& end, bool is_attached = false) {
  return why_nothing(accounts_of(std::move(told)), end, {"program", "train.py"}, is_attached);
}

AccountEntry tells(int process, const std::string& what, const std::string& text = "") {
  return {.process = process, .what = what, .text = text};
}

const CommandEnd kWell{};
const CommandEnd kFailed{.exit_code = 1};

}  // namespace

TEST_CASE("accounts are read in the order in which they were written, without damaged ones") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("20"),
                    "{\"what\": \"started\", \"text\": \"python\", \"time\": 1.5}\n"
                    "{\"what\": \"raised\", \"text\": \"a\", \"time\": 3}\n{\"what\": \"rai");
  tests::write_file(folder.file("3"),
                    "7\n{}\n{\"what\": 1, \"text\": [], \"time\": \"x\"}\n"
                    "{\"what\": \"torch\", \"time\": 2}\n");
  tests::write_file(folder.file("notes.txt"),
                    "{\"what\": \"torch\", \"text\": \"\", \"time\": 0}\n");
  std::string order;
  for (const AccountEntry& told : read_accounts(folder.path()).told) {
    order += std::to_string(told.process) + told.what + told.text + " ";
  }
  CHECK(order == "20startedpython 3torch 20raiseda ");
  CHECK(read_accounts(folder.file("nowhere")).told.empty());
}

TEST_CASE("the cause is named if nothing was recorded") {
  const AccountEntry started = tells(1, "started"), torch = tells(1, "torch");
  CHECK(why({started, tells(1, "no_script", "/a/train.py")}, {.exit_code = 2}) ==
        "there is no script /a/train.py; check its path");
  CHECK(why({started, tells(1, "no_module", "train")}, kFailed) ==
        "there is no module train for python -m; check its name, or start it in its folder");
  CHECK(why({started, torch, tells(1, "refused", "no disk")}, kFailed) == "no disk");
  CHECK(why({started, torch}, kWell) == "the program has imported PyTorch and used no GPU");
  CHECK(why({started, torch}, kWell, /*is_attached=*/true) ==
        "the program has imported PyTorch and used no GPU (without a GPU, give --device, such as "
        "null:h100)");
  CHECK(why({started}, kWell) == "the program has not imported PyTorch");
  CHECK(why({started, tells(1, "import_error", "ImportError: x (a.py:1)")}, kFailed) ==
        "the program failed at an import, before it used a GPU: ImportError: x (a.py:1)");
  CHECK(why({started, torch, tells(1, "raised", "ValueError: x (a.py:1)")}, kFailed) ==
        "the program failed before it used a GPU: ValueError: x (a.py:1)");
  CHECK(why({started, torch, tells(1, "raised", "RuntimeError: no driver")}, kFailed,
            /*is_attached=*/true) ==
        "the program failed before it used a GPU (without a GPU, give --device, such as "
        "null:h100): RuntimeError: no driver");
  CHECK(why({started, torch}, kFailed) ==
        "the program ended before it used a GPU; its own output may say why");
  CHECK(why({started, torch}, {.exit_code = 137, .how = "the command was ended by Killed"}) ==
        "the command was ended by Killed, before it used a GPU");
  CHECK(why({}, kWell).starts_with("the recorder was not loaded: program has started no Python"));
}

TEST_CASE("an error that the program has survived is not a cause") {
  const std::vector<AccountEntry> helper_failed = {
      tells(1, "started"), tells(1, "raised", "OSError"), tells(2, "started"), tells(2, "torch")};
  CHECK(why(helper_failed, kWell) == "the program has imported PyTorch and used no GPU");
  CHECK_FALSE(failure_text(accounts_of(helper_failed), kWell));
}

TEST_CASE("a launcher's own account does not hide that its script is missing") {
  CHECK(why({tells(1, "started"), tells(1, "torch"), tells(1, "started"),
             tells(1, "no_script", "/a.py")},
            {.exit_code = 2}) == "there is no script /a.py; check its path");
  CHECK(why({tells(1, "started"), tells(1, "no_script", "/a.py"), tells(1, "torch"),
             tells(1, "raised", "OSError: b")},
            kFailed) == "the program failed before it used a GPU: OSError: b");
}

TEST_CASE("a program's failure is that of its first process with a GPU to end") {
  const Accounts accounts =
      accounts_of({tells(9, "raised", "OSError: of a helper"), tells(1, "gpu"), tells(2, "gpu"),
                   tells(2, "raised", "ValueError: b"), tells(3, "raised", "ChildFailedError: a")});
  CHECK(failure_text(accounts, kFailed) == "the program failed with exit code 1, ValueError: b");
  CHECK(failure_text(accounts, {.exit_code = 130, .how = "the command got Interrupt"}) ==
        "the command got Interrupt");
  CHECK(failure_text(accounts_of({tells(9, "raised", "OSError"), tells(1, "gpu")}), kFailed) ==
        "the program ended with exit code 1");
}
