// A port of this machine on which no process listens, for programs that need to be given one. It is
// outside the range that the kernel uses for outgoing connections, so that it is likely to stay
// free.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <stdexcept>

namespace shardlens::tests {

inline bool is_free_port(uint16_t port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  const int result = ::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  ::close(listener);
  return result == 0;
}

inline uint16_t free_port() {
  std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const auto port = static_cast<uint16_t>(16'000 + random() % 16'000);
    if (is_free_port(port)) return port;
  }
  throw std::runtime_error("no port is free");
}

}  // namespace shardlens::tests
