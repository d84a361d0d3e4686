// Writes nested data as a pickle or as JSON while the caller goes through it, so that a long
// recording is never in memory twice.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string_view>

namespace shardlens {

/// Writes one value, which may be nested; in a map every value comes after its key. Texts are
/// UTF-8.
class DocumentWriter {
 public:
  virtual ~DocumentWriter() = default;

  virtual void begin_map() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void end_map() = 0;
  virtual void begin_list() = 0;
  virtual void end_list() = 0;
  virtual void text(std::string_view value) = 0;
  virtual void integer(int64_t value) = 0;
  virtual void boolean(bool value) = 0;
  virtual void real(double value) = 0;
  /// Ends the document. Call it once, after the value.
  virtual void finish() = 0;

  void field(std::string_view name, std::string_view value) { key(name), text(value); }
  void field(std::string_view name, const char* value) { key(name), text(value); }
  void field(std::string_view name, int64_t value) { key(name), integer(value); }
  void field(std::string_view name, bool value) { key(name), boolean(value); }
};

/// Returns a writer of protocol 2, in the opcodes that PyTorch's viewer knows; equal texts are
/// written once.
std::unique_ptr<DocumentWriter> pickle_writer(std::ostream& out);

std::unique_ptr<DocumentWriter> json_writer(std::ostream& out);

}  // namespace shardlens
