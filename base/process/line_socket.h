// Lines that two processes exchange over a stream socket.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace shardlens {

/// Owns one end of a socket.
class LineSocket {
 public:
  explicit LineSocket(int socket) : socket_(socket) {}
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept;

  /// Sends a line, which has no newline. Returns false if the other end is closed.
  bool send(const std::string& line);

  /// Returns the next line, or nothing if none comes in time or the other end is closed.
  std::optional<std::string> receive(std::chrono::milliseconds patience);

  /// False once the other end was found closed.
  bool is_open() const { return socket_ >= 0; }

 private:
  void close();

  int socket_ = -1;
  std::string received_;  // after the last line
};

}  // namespace shardlens
