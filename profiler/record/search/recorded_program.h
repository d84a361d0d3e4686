// Reads from a recording how its program was run, so that it can be recorded again with levers, and
// finds its variants that were recorded already.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/record/accounts.h"
#include "profiler/record/levers/levers.h"
#include "profiler/record/record_verdict.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct RecordedProgram {
  std::vector<std::string> command{};  // empty: the recording is not of a Python program
  std::vector<std::string> flags{};    // of `shardlens record`, without levers; empty: not kept
  std::string directory{};             // in which it was started
  std::string python{};                // that ran it
  std::vector<Lever> levers{};         // with which it was recorded
  std::optional<Accounts> sites{};     // where levers act; nothing: it was not watched for that
  std::string recording{};             // rankR.slp
  /// The folder that holds variants, a folder each. It is that of `advise`, or else "with" in the
  /// run's folder.
  std::string variants{};
};

/// Reads the recording's header, and rankR.json beside it. Throws as Reader does.
RecordedProgram read_recorded_program(const std::string& recording);

/// Returns in one line why the program cannot be recorded again on this machine; nothing if it can.
Problem why_not_again(const RecordedProgram& program);

/// Returns the arguments of `shardlens record` that record the program with more levers into a
/// folder; without any they find out which levers apply. They are to be given in its directory.
std::vector<std::string> arguments_with(const RecordedProgram& program,
                                        const std::vector<Lever>& more, const std::string& out);

/// A variant of a program that was recorded.
struct RecordedVariant {
  std::vector<Lever> added{};  // levers beside those of the program
  std::string folder{};
  KeptVerdict verdict{};
};

/// Returns the folder of the variant with these levers added.
std::string folder_with(const RecordedProgram& program, const std::vector<Lever>& added);

/// Returns why a recording is not of the same program; nothing if only levers tell them apart.
Problem why_no_variant(const RecordedProgram& program, const RecordedProgram& other);

/// Returns the variants of a program, in the order of their folders' names.
std::vector<RecordedVariant> variants_of(const RecordedProgram& program);

}  // namespace shardlens::profiler
