// Reads gzipped fixtures, and writes such files.
#pragma once

#include <zlib.h>

#include <array>
#include <stdexcept>
#include <string>

namespace shardlens::tests {

inline std::string read_gzip_file(const std::string& path) {
  const gzFile file = ::gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("cannot read " + path);
  std::string bytes;
  std::array<char, 1 << 16> part;
  int read = 0;
  while ((read = ::gzread(file, part.data(), part.size())) > 0) {
    bytes.append(part.data(), static_cast<size_t>(read));
  }
  if (::gzclose(file) != Z_OK || read < 0) throw std::runtime_error(path + ": damaged");
  return bytes;
}

inline void write_gzip_file(const std::string& path, const std::string& bytes) {
  const gzFile file = ::gzopen(path.c_str(), "wb");
  if (file == nullptr) throw std::runtime_error("cannot write " + path);
  const auto written =
      static_cast<size_t>(::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())));
  if (::gzclose(file) != Z_OK || written != bytes.size()) {
    throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace shardlens::tests
