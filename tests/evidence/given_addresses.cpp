// Preloaded before the null device's libraries, it makes cudaMalloc return addresses that a GPU's
// driver has given: for tests/evidence/pytorch_replay.py. Nothing may read or write there.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

struct GivenAddresses {
  std::vector<uint64_t> addresses;
  size_t next = 0;
  std::unordered_map<uint64_t, void*> real;  // of the null device, by the given address

  bool has_next() const { return next < addresses.size() && !real.contains(addresses[next]); }
};

GivenAddresses& given() {
  static GivenAddresses* const instance = new GivenAddresses;  // outlives PyTorch's own statics
  return *instance;
}

template <class Function>
Function next_one(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

/// Sets the addresses for the segments to come, in their order.
void give_addresses(const uint64_t* addresses, size_t count) {
  given().addresses.assign(addresses, addresses + count);
  given().next = 0;
}

/// Returns how many of them were given.
size_t given_addresses() { return given().next; }

int cudaMalloc(void** address, size_t bytes) {
  static const auto real = next_one<int (*)(void**, size_t)>("cudaMalloc");
  if (real == nullptr) return kInvalidValue;
  const int error = real(address, bytes);
  if (error != 0 || !given().has_next()) return error;
  const uint64_t chosen = given().addresses[given().next++];
  given().real[chosen] = *address;
  *address = reinterpret_cast<void*>(chosen);
  return 0;
}

int cudaFree(void* address) {
  static const auto real = next_one<int (*)(void*)>("cudaFree");
  if (real == nullptr) return kInvalidValue;
  const auto found = given().real.find(reinterpret_cast<uint64_t>(address));
  if (found == given().real.end()) return real(address);
  void* const chosen = found->second;
  given().real.erase(found);
  return real(chosen);
}

}  // extern "C"
