// Things that may be found under a file's name and are not files.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace shardlens::tests {

inline void make_pipe(const std::string& path) {
  if (::mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("cannot make " + path);
}

inline void make_device(const std::string& path) {
  std::filesystem::create_symlink("/dev/zero", path);
}

inline void make_folder(const std::string& path) { std::filesystem::create_directory(path); }

inline void make_socket(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) throw std::runtime_error(path + " is too long");
  std::strcpy(address.sun_path, path.c_str());
  const bool is_made =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  if (!is_made) throw std::runtime_error("cannot make " + path);
}

}  // namespace shardlens::tests
