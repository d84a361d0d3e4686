#include "base/process/line_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace shardlens {

LineSocket::~LineSocket() { close(); }

LineSocket::LineSocket(LineSocket&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}

void LineSocket::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool LineSocket::send(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t sent = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return close(), false;
    at += static_cast<size_t>(sent);
  }
  return true;
}

std::optional<std::string> LineSocket::receive(std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  while (is_open()) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd wanted{.fd = socket_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    std::array<char, 4096> part{};
    const ssize_t bytes = ::recv(socket_, part.data(), part.size(), 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) close();
    if (bytes > 0) received_.append(part.data(), static_cast<size_t>(bytes));
  }
  return std::nullopt;
}

}  // namespace shardlens
