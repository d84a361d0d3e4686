// An environment variable that has a value for the lifetime of an object.
#pragma once

#include <cstdlib>
#include <string>

namespace shardlens::tests {

class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

}  // namespace shardlens::tests
