// The user's editor is started with the exact name of the file, whatever a recording calls it.

#include "viewer/app/editor.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <stdexcept>

#include "tests/support/process.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a command is cut into words, and file and line are put into them") {
  CHECK(Editor("code -g {file}:{line}").words_for("/u/a b.py", 7) ==
        Words{"code", "-g", "/u/a b.py:7"});
  CHECK(Editor("'my editor' \"+{line}\"  {file} ''").words_for("/x", 3) ==
        Words{"my editor", "+3", "/x", ""});
  // A file's name is not parsed as part of the command.
  CHECK(Editor("vi {file}").words_for("/u/{line}';$(touch x) \"`y`", 1) ==
        Words{"vi", "/u/{line}';$(touch x) \"`y`"});
}

TEST_CASE("a command without a file, or with an open quote, is refused in one line") {
  for (const char* command : {"vi", "vi {line}", "vi '{file}", "vi \"{file}"}) {
    try {
      Editor{command};
      FAIL(command);
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      CHECK(std::string(error.what()).starts_with("--editor "));
    }
  }
}

TEST_CASE("the editor gets the file, and no shell sees its name") {
  const tests::TemporaryFolder folder;
  const std::string odd = folder.file("-rf; touch PWNED; $(touch PWNED) 'x'.py");
  tests::write_file(odd, "the file");
  Editor editor("cp {file} '" + folder.file("a copy") + "'");
  CHECK(editor.open({.name = "f", .file = odd, .line = 3}).starts_with("opened "));
  CHECK(tests::wait_until([&] { return fs::exists(folder.file("a copy")); }));
  CHECK(tests::wait_until([&] { return tests::read_file(folder.file("a copy")) == "the file"; }));
  CHECK_FALSE(fs::exists("PWNED"));
  CHECK_FALSE(fs::exists(folder.file("PWNED")));
}

TEST_CASE("a file that cannot be opened is reported, and nothing is started") {
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("a.py"), "");
  Editor editor("touch {file}.touched");
  for (const std::string& file : {folder.file("none.py"), folder.file("")}) {
    const std::string said = editor.open({.name = "f", .file = file, .line = 1});
    CHECK(said.find("no such file") != std::string::npos);
    CHECK_FALSE(fs::exists(file + ".touched"));
  }
  CHECK(Editor("").open({.name = "f", .file = folder.file("a.py")}).starts_with("no editor"));
  CHECK(Editor("no-such-editor-at-all {file}")
            .open({.name = "f", .file = folder.file("a.py")})
            .find("cannot be started") != std::string::npos);
}

}  // namespace shardlens::viewer
