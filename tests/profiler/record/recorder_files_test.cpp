// Tests which recorder a PyTorch gets, with made-up builds, installations and wheels.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "base/process/program_output.h"
#include "profiler/record/python_program.h"
#include "profiler/record/recorder_files.h"
#include "tests/support/setting.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace fs = std::filesystem;

namespace {

const std::string kSources = "0123456789abcdef0123456789abcdef";
const std::string kName = "2.10.0+cu128-feedfacecafe-0123456789ab";

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  tests::write_file(path.string(), text);
  fs::permissions(path, fs::perms::owner_all);
}

/// A build folder or an installation, with the files that all have. Of its Pythons only `sh` is
/// run.
struct SampleInstallation {
  tests::TemporaryFolder folder;
  fs::path root = fs::path(folder.path()) / "build";
  fs::path record = root / "record";
  PythonProgram program{.interpreter = "/bin/sh",
                        .torch = fs::path(folder.path()) / "site" / "torch",
                        .torch_version = "2.10.0+cu128",
                        .cuda_version = "12.8",
                        .wheel = "feedfacecafe"};

  SampleInstallation() {
    write(record / "libshardlens_python.so", "");
    write(record / "python" / "sitecustomize.py", "");
    write(record / "make_stubs.py", "exit 0\n");
    write(record / "sources.sha256", kSources + "  sources.list\n");
    fs::create_directories(root / "null_device");
  }

  /// A recorder for another PyTorch.
  void keep(const std::string& name) const {
    write(record / "pytorch" / name / "libshardlens_python.so", "");
    fs::create_directories(record / "pytorch" / name / "null_device");
    fs::permissions(record / "pytorch", fs::perms::owner_all);
  }

  void take_own_pytorch() {
    program.torch_version = SHARDLENS_TORCH_VERSION "+cu" SHARDLENS_CUDA_MAJOR "0";
    program.cuda_version = SHARDLENS_CUDA_MAJOR ".0";
  }

  /// Makes it a build folder, in which this script builds recorders.
  void build_with(const std::string& script) const {
    const fs::path sources = fs::path(folder.path()) / "sources";
    write(sources / ".setup" / "recorder", "#!/bin/sh\n" + script);
    write(root / "CMakeCache.txt",
          "A:BOOL=ON\nCMAKE_HOME_DIRECTORY:INTERNAL=" + sources.string() + "\nB:BOOL=ON\n");
  }

  RecordFiles recorder() const { return recorder_for(program, record); }

  template <class Exception>
  void check_refused(const std::string& part) const {
    CHECK_THROWS_MATCHES(recorder(), Exception, MessageMatches(ContainsSubstring(part)));
  }

  /// PyTorch's own history is recorded, with these stubs.
  void check_history(const std::string& why, const fs::path& stubs) const {
    const RecordFiles files = recorder();
    CHECK(files.library.empty());
    CHECK(files.python == record / "python");
    CHECK(files.stubs == stubs);
    REQUIRE(files.doubt);
    CHECK_THAT(*files.doubt,
               ContainsSubstring("memory history is recorded") && ContainsSubstring(why));
    CHECK(lines_of(*files.doubt).size() == 1);
  }
  void check_history(const std::string& why) const { check_history(why, root / "null_device"); }
};

std::string wheel_in(const fs::path& site, const std::string& record) {
  write(site / "torch" / "__init__.py", "raise ImportError('nobody imports it')\n");
  write(site / "torch" / "version.py", "__version__ = '2.10.0+cu128'\ncuda = '12.8'\n");
  write(site / "torch-2.10.0.dist-info" / "RECORD", record);
  const tests::Setting path("PYTHONPATH", site.string());
  return find_python({"python3"}).wheel;
}

}  // namespace

TEST_CASE("the PyTorch of the build has its recorder") {
  SampleInstallation made;
  made.take_own_pytorch();
  const RecordFiles files = made.recorder();
  CHECK(files.library == made.record / "libshardlens_python.so");
  CHECK(files.stubs == made.root / "null_device");
  CHECK(files.python == made.record / "python");
}

TEST_CASE("the build's stubs are compared once with each wheel") {
  SampleInstallation made;
  made.take_own_pytorch();
  const auto check = [&] { CHECK(made.recorder().stubs == made.root / "null_device"); };
  // It then needs its own recorder and stubs, which nothing here can build.
  const auto check_refused = [&] {
    made.check_refused<std::invalid_argument>(
        "cannot run on a simulated GPU: it calls cuMany; there is no recorder for PyTorch " +
        made.program.torch_version + " here, nor the sources to build it");
  };
  const std::string lacking = "echo it calls cuMany; exit 1\n";
  check();
  write(made.record / "make_stubs.py", lacking);
  check();

  SECTION("another wheel each time, until it passes") {
    made.program.wheel = "0ddba11";
    check_refused();
    check_refused();
  }
  SECTION("again when they were made of other sources") {
    write(made.record / "sources.sha256", "fedcba9876543210  sources.list\n");
    check_refused();
  }
  SECTION("never if there is a real GPU") {
    made.program.wheel = "0ddba11";
    CHECK(recorder_for(made.program, made.record, CudaProvider::gpu).stubs ==
          made.root / "null_device");
  }
}

TEST_CASE("another PyTorch has the recorder that was kept for its wheel and our sources") {
  SampleInstallation made;
  made.keep(kName);
  const RecordFiles files = made.recorder();
  CHECK(files.library == made.record / "pytorch" / kName / "libshardlens_python.so");
  CHECK(files.stubs == made.record / "pytorch" / kName / "null_device");
  CHECK(files.python == made.record / "python");

  SECTION("another wheel of that version has none") {
    made.program.wheel = "0ddba11";
    made.check_history("there is no recorder for PyTorch 2.10.0+cu128");
  }
  SECTION("nor is there one after our sources have changed") {
    write(made.record / "sources.sha256", "fedcba9876543210  sources.list\n");
    made.check_history("record where Shardlens is built from its sources");
  }
  SECTION("a recorder with a missing file does not count") {
    fs::remove(files.library);
    made.check_refused<std::runtime_error>("libshardlens_python.so is missing");
  }
}

TEST_CASE("an installation has one recorder for all wheels of a version and a CUDA") {
  SampleInstallation made;
  made.keep(kName);
  const fs::path kept = made.record / "pytorch" / kName;
  const auto check_taken = [&] { CHECK(made.recorder().stubs == kept / "null_device"); };
  write(kept / "null_device" / "libcudart.so.12", "");
  made.program.wheel = "0ddba11";  // for another Python

  SECTION("of its own version, and of its bug-fix releases") {
    check_taken();
    made.program.torch_version = "2.10.1+cu126";
    made.program.cuda_version = "12.6";
    check_taken();
  }
  SECTION("of no other version or CUDA") {
    made.program.torch_version = "2.1.0+cu128";
    made.check_history("there is no recorder for PyTorch 2.1.0+cu128", kept / "null_device");
    made.program.torch_version = "2.10.0+cu130";
    made.program.cuda_version = "13.0";
    made.check_history("there is no recorder for PyTorch 2.10.0+cu130");
  }
  SECTION("not if the wheel calls what its stubs lack") {
    write(made.record / "make_stubs.py",
          "case $3 in *pytorch*) echo it calls cuMany; exit 1;; esac\n");
    made.check_refused<std::invalid_argument>("it calls cuMany; there is no recorder");
    CHECK(recorder_for(made.program, made.record, CudaProvider::gpu).library ==
          kept / "libshardlens_python.so");
  }
  SECTION("a build makes each wheel its own") {
    made.build_with("echo building it needs cmake; exit 1\n");
    made.check_history("building it needs cmake", kept / "null_device");
  }
}

TEST_CASE("recorders are only loaded from the user's own folders") {
  SampleInstallation made;
  made.keep(kName);
  const fs::path cache = made.record / "pytorch";
  const auto set_mode = [&](int mode) { fs::permissions(cache, static_cast<fs::perms>(mode)); };
  const std::string path = cache.string();

  SECTION("of a build: mode 0700, nothing else") {
    made.build_with("exit 1\n");
    made.recorder();
    for (const int mode : {0750, 0705, 0755, 0711}) {
      set_mode(mode);
      made.check_history("not 0700; run chmod 700 " + path);
    }
    for (const int mode : {0770, 0707, 0777, 01777, 0720, 0702}) {
      set_mode(mode);
      made.check_history("others can write to it; run rm -r " + path);
    }
    for (const int mode : {0700, 02700}) {  // a folder's group may be its parent's
      set_mode(mode);
      made.recorder();
    }
  }
  SECTION("of an installation: nobody else writes to it") {
    set_mode(0755);
    made.recorder();
    set_mode(0775);
    made.check_history("others can write to it; install Shardlens again");
    // A user who can write beside it can have put the recorder there, too.
    fs::permissions(made.record, static_cast<fs::perms>(0775));
    made.recorder();
  }
  SECTION("of an installation: its owner") {
    if (::geteuid() != 0) SKIP("only root can make a folder of another user's");
    REQUIRE(::chown(cache.c_str(), 12345, 12345) == 0);
    REQUIRE(::chown(made.record.c_str(), 12345, 12345) == 0);
    made.recorder();
  }
  SECTION("a link to one does not count") {
    fs::rename(cache, made.record / "elsewhere");
    fs::create_directory_symlink(made.record / "elsewhere", cache);
    made.check_history("is not a folder; run rm " + path);
  }
  SECTION("another user's does not count") {
    if (::geteuid() != 0) SKIP("only root can make a folder of another user's");
    REQUIRE(::chown(cache.c_str(), 12345, 12345) == 0);
    made.check_history("belongs to user 12345, not to you");
  }
}

TEST_CASE("a receipt that others may have left is ignored, and our own is private") {
  SampleInstallation made;
  made.take_own_pytorch();
  made.build_with("exit 1\n");
  made.recorder();
  const fs::path cache = made.record / "pytorch";
  CHECK(fs::status(cache).permissions() == fs::perms::owner_all);
  write(made.record / "make_stubs.py", "exit 1\n");
  made.recorder();
  fs::permissions(cache, fs::perms::all);
  made.check_refused<std::invalid_argument>("others can write to it");
}

TEST_CASE("a build folder builds a recorder that is missing, once") {
  const SampleInstallation made;
  const std::string count = made.folder.file("count");
  made.build_with(
      "echo \"$@\" >>" + count +
      "\ncd \"$1/record\"\nmkdir -m 700 pytorch\nmkdir -p \"pytorch/$4/null_device\"\n" +
      "cp libshardlens_python.so \"pytorch/$4\"\n");
  for (int i = 0; i < 2; ++i) {
    CHECK(made.recorder().library == made.record / "pytorch" / kName / "libshardlens_python.so");
  }
  CHECK(tests::read_file(count) ==
        made.root.string() + " " + made.program.torch.string() + " 2.10.0+cu128 " + kName + "\n");
}

TEST_CASE("if no recorder can be built, PyTorch's history is recorded, and a line says why") {
  SampleInstallation made;
  made.build_with("echo something else; echo building it needs cmake; exit 1\n");
  made.check_history("there is no recorder for PyTorch 2.10.0+cu128: building it needs cmake");
  made.build_with("kill -9 $$\n");
  made.check_history("its build ended without a message");
  fs::remove_all(fs::path(made.folder.path()) / "sources");
  made.check_history("nor the sources to build it");
}

TEST_CASE("a history is recorded on stubs of the same CUDA that lack nothing") {
  SampleInstallation made;
  const fs::path kept = made.record / "pytorch" / "2.9.1+cu128-0ddba11-0123456789ab";
  made.keep(kept.filename());
  const std::string lacks_in_own =
      "case $3 in */build/null_device) echo it calls cuMany; exit 1;; esac\n";
  const auto is_for_cuda = [](const fs::path& stubs, const char* major) {
    write(stubs / (std::string("libcudart.so.") + major), "");
  };
  write(made.record / "make_stubs.py", lacks_in_own);
  const std::string refusal = "it calls cuMany; there is no recorder for PyTorch 2.10.0+cu128";

  SECTION("those of a kept recorder") {
    is_for_cuda(made.root / "null_device", "12");
    is_for_cuda(kept / "null_device", "12");
    made.check_history("there is no recorder", kept / "null_device");
    fs::permissions(made.record / "pytorch", fs::perms::all);  // others may have put them there
    CHECK_THROWS_AS(made.recorder(), std::invalid_argument);
  }
  SECTION("none for another CUDA") {
    is_for_cuda(kept / "null_device", "13");
    made.check_refused<std::invalid_argument>(refusal);
  }
  SECTION("none if all lack something") {
    is_for_cuda(kept / "null_device", "12");
    write(made.record / "make_stubs.py", "echo it calls cuMany; exit 1\n");
    made.check_refused<std::invalid_argument>(refusal);
  }
  SECTION("a GPU needs none") {
    const RecordFiles files = recorder_for(made.program, made.record, CudaProvider::gpu);
    CHECK(files.stubs.empty());
    CHECK(files.doubt);
  }
}

TEST_CASE("any PyTorch for CUDA gets a recorder, built from its own files") {
  for (const auto& [torch, cuda] : {std::pair{"2.8.0+cu128", "12.8"},
                                    {"2.16.0.dev20261120+cu133", "13.3"},
                                    {"2.10.0a0+git1234567", "12.6"},
                                    {SHARDLENS_TORCH_VERSION "+cu128", "12.8"}}) {
    SampleInstallation made;
    made.program.torch_version = torch;
    made.program.cuda_version = cuda;
    made.check_history("there is no recorder for PyTorch " + std::string(torch));
    const std::string name = std::string(torch) + "-feedfacecafe-0123456789ab";
    made.keep(name);
    CHECK(made.recorder().stubs == made.record / "pytorch" / name / "null_device");
  }
}

TEST_CASE("a PyTorch that was not tried is doubted") {
  const auto doubts = [](const char* torch, const char* cuda) {
    SampleInstallation made;
    made.program.torch_version = torch;
    made.program.cuda_version = cuda;
    return doubts_of(made.program);
  };
  CHECK(doubts("2.9.1+cu128", "12.8").empty());
  CHECK(doubts("2.11.0+cu130", "13.0").empty());
  CHECK_THAT(doubts("2.16.0.dev20261120+cu133", "13.3").at(0),
             ContainsSubstring("PyTorch 2.16.0.dev20261120+cu133 (CUDA 13.3) was not tried"));
  CHECK_FALSE(doubts("2.10.0+cu126", "12.6").empty());
  CHECK_FALSE(doubts("2.1.9+cu128", "12.8").empty());
}

TEST_CASE("a PyTorch without CUDA is refused, and so is an invalid version") {
  const auto check = [](const char* torch, const char* cuda, const char* why) {
    SampleInstallation made;
    made.program.torch_version = torch;
    made.program.cuda_version = cuda;
    made.check_refused<std::invalid_argument>(why);
  };
  check("2.15.0+cpu", "none", "PyTorch 2.15.0+cpu of /bin/sh is built without CUDA; record with");
  check("2.15.0+rocm6.4", "ROCm", "is built for ROCm; record with one that is built for CUDA");
  for (const char* version : {"", "banana", "../../evil", "2.15.0 ", "2.15.0\x1b[31m", "2/15"}) {
    check(version, "13.2", "', which is not a version; install it again");
  }
  check("2.15\x1b[31m", "13.2", "calls itself version '2.15\\u001b[31m'");
}

TEST_CASE("wheels are distinguished by their libraries and headers") {
  if (output_of({"python3", "-c", "pass"}).exit_code != 0) SKIP("there is no python3");
  const tests::TemporaryFolder folder;
  const fs::path site = fs::path(folder.path()) / "site";
  const std::string libraries =
      "torch/lib/libc10.so,sha256=a,1\ntorch/include/c10/a.h,sha256=b,2\n";
  const std::string wheel = wheel_in(site, libraries);
  CHECK(wheel.size() == 12);
  CHECK(wheel_in(site,
                 "torch/include/c10/a.h,sha256=b,2\ntorch/__pycache__/a.pyc,,\n"
                 "torch/lib/libc10.so,sha256=a,1\n") == wheel);
  CHECK(wheel_in(site, "torch/lib/libc10.so,sha256=c,1\ntorch/include/c10/a.h,sha256=b,2\n") !=
        wheel);
}

TEST_CASE("a PyTorch that pip has not installed is identified by its files") {
  if (output_of({"python3", "-c", "pass"}).exit_code != 0) SKIP("there is no python3");
  const tests::TemporaryFolder folder;
  const fs::path site = fs::path(folder.path()) / "site";
  const std::string none = "torch/__init__.py,sha256=a,1\n";
  const fs::path header = site / "torch" / "include" / "c10" / "a.h";
  const fs::path library = site / "torch" / "lib" / "libc10.so";
  write(header, "// 1\n");
  write(library, "1");
  const std::string wheel = wheel_in(site, none);
  CHECK(wheel.size() == 12);
  CHECK(wheel_in(site, none) == wheel);

  SECTION("written again, of the same size") {
    fs::last_write_time(library, fs::last_write_time(library) + std::chrono::seconds(1));
    CHECK(wheel_in(site, none) != wheel);
  }
  SECTION("of another size, of the same time") {
    const auto time = fs::last_write_time(header);
    write(header, "// 12\n");
    fs::last_write_time(header, time);
    CHECK(wheel_in(site, none) != wheel);
  }
  SECTION("with another file") {
    write(site / "torch" / "include" / "b.h", "");
    CHECK(wheel_in(site, none) != wheel);
  }
  SECTION("with the same files elsewhere") {
    const fs::path other = fs::path(folder.path()) / "other";
    fs::rename(site, other);
    CHECK(wheel_in(other, none) != wheel);
  }
}

TEST_CASE("a recorder is not built where CUDA's headers are missing") {
  const SampleInstallation made;
  fs::create_directories(made.program.torch);
  const std::string script = std::string(SHARDLENS_SOURCE_DIR) + "/.setup/recorder";
  const ProgramOutput said =
      output_of({script, made.root.string(), made.program.torch.string(), "2.10.0+cu128", kName});
  CHECK(said.exit_code == 1);
  CHECK_THAT(said.text, ContainsSubstring("building it needs "));
  CHECK(lines_of(said.text).size() == 1);
  CHECK_FALSE(fs::exists(made.record / "pytorch" / kName));
}
