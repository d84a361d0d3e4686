#include "profiler/null_device/driver/kernel_parameters.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

namespace shardlens::profiler {

namespace {

using File = std::span<const std::byte>;

constexpr std::string_view kKernelFacts = ".nv.info.";  // a section's name, before the kernel's

/// A fact has a head of four bytes: form, kind, and a value or the length of the bytes that follow.
constexpr uint8_t kFollowedByBytes = 4;    // a form
constexpr uint8_t kParameter = 0x17;       // a kind: number, place and size of one parameter
constexpr uint8_t kParameterBytes = 0x19;  // a kind: where the last parameter ends

struct Fact {
  uint8_t form = 0;
  uint8_t kind = 0;
  uint16_t value = 0;
};

struct Parameter {
  uint32_t unused = 0;
  uint16_t number = 0;
  uint16_t offset = 0;
  uint32_t packed = 0;  // the upper 14 bits are the size

  uint32_t bytes() const { return packed >> 18; }
};

template <class Value>
std::optional<Value> value_at(File file, size_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

File part_of(File file, size_t offset, size_t bytes) {
  if (offset > file.size() || file.size() - offset < bytes) return {};
  return file.subspan(offset, bytes);
}

std::string text_at(File file, size_t offset) {
  if (offset >= file.size()) return {};
  const auto* const begin = reinterpret_cast<const char*>(file.data()) + offset;
  return {begin, std::find(begin, reinterpret_cast<const char*>(file.data()) + file.size(), '\0')};
}

std::optional<Elf64_Shdr> section_of(File file, const Elf64_Ehdr& header, size_t index) {
  return value_at<Elf64_Shdr>(file, header.e_shoff + index * sizeof(Elf64_Shdr));
}

/// Returns the sizes in order if the parameters are numbered from 0 on and the last ends at `end`.
std::optional<ParameterSizes> sizes_of(std::vector<Parameter> parameters, size_t end) {
  std::ranges::sort(parameters, {}, &Parameter::number);
  ParameterSizes sizes;
  for (const Parameter& parameter : parameters) {
    if (parameter.number != sizes.size()) return std::nullopt;
    sizes.push_back(parameter.bytes());
  }
  const bool is_whole =
      parameters.empty() ? end == 0 : parameters.back().offset + parameters.back().bytes() == end;
  return is_whole ? std::optional(sizes) : std::nullopt;
}

std::optional<ParameterSizes> parameters_in(File facts) {
  std::vector<Parameter> parameters;
  size_t end = 0;
  for (size_t at = 0; at < facts.size();) {
    const auto fact = value_at<Fact>(facts, at);
    if (!fact) return std::nullopt;
    at += sizeof(Fact);
    if (fact->kind == kParameterBytes) end = fact->value;
    if (fact->form != kFollowedByBytes) continue;
    if (fact->kind == kParameter) {
      const auto parameter = value_at<Parameter>(facts, at);
      if (!parameter) return std::nullopt;
      parameters.push_back(*parameter);
    }
    at += fact->value;
  }
  return sizes_of(std::move(parameters), end);
}

}  // namespace

size_t bytes_of_elf(const void* image) {
  const auto* const bytes = static_cast<const unsigned char*>(image);
  const unsigned char begin[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64};
  for (size_t i = 0; i < sizeof begin; ++i) {
    if (bytes[i] != begin[i]) return 0;  // data that is not an ELF file may end here
  }
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  size_t end = std::max<size_t>(header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr),
                                header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr));
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, bytes + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  return end;
}

std::map<std::string, ParameterSizes> parameters_of_kernels(File file) {
  std::map<std::string, ParameterSizes> kernels;
  const auto header = value_at<Elf64_Ehdr>(file, 0);
  if (!header) return {};
  const auto names = section_of(file, *header, header->e_shstrndx);
  if (!names) return {};
  for (size_t i = 0; i < header->e_shnum; ++i) {
    const auto section = section_of(file, *header, i);
    if (!section) return {};
    const std::string name = text_at(file, names->sh_offset + section->sh_name);
    if (!name.starts_with(kKernelFacts)) continue;
    auto sizes = parameters_in(part_of(file, section->sh_offset, section->sh_size));
    if (sizes) kernels[name.substr(kKernelFacts.size())] = std::move(*sizes);
  }
  return kernels;
}

}  // namespace shardlens::profiler
