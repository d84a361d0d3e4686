// Reads the parameters of kernels from modules laid out here field by field, and from damaged ones.
#include "profiler/null_device/driver/kernel_parameters.h"

#include <elf.h>

#include <catch2/catch_all.hpp>
#include <cstring>
#include <random>

using namespace shardlens;
using profiler::ParameterSizes;

namespace {

using Bytes = std::vector<std::byte>;

template <class Value>
void append(Bytes& bytes, const Value& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

/// Returns the facts of a kernel as ptxas writes them: its parameters, the last one first, between
/// facts of other forms and kinds.
Bytes facts_of(const ParameterSizes& sizes, uint16_t end) {
  Bytes facts;
  append(facts, uint32_t{0x00041b03});           // a value of two bytes: the registers
  append(facts, uint32_t{0x00040000 | 0x3704});  // four bytes follow
  append(facts, uint32_t{0x86});
  std::vector<uint16_t> offsets;
  for (uint16_t offset = 0; const uint32_t size : sizes) {
    offset = static_cast<uint16_t>((offset + size - 1) / size * size);
    offsets.push_back(offset);
    offset = static_cast<uint16_t>(offset + size);
  }
  for (size_t i = sizes.size(); i-- > 0;) {
    append(facts, uint32_t{0x000c0000 | 0x1704});
    append(facts, uint32_t{0});
    append(facts, static_cast<uint16_t>(i));
    append(facts, offsets[i]);
    append(facts, sizes[i] << 18 | 0x1f000);
  }
  append(facts, uint32_t{0x1903} | uint32_t{end} << 16);
  return facts;
}

/// Returns a file with a section ".nv.info.NAME" for every kernel.
Bytes module_of(const std::vector<std::pair<std::string, Bytes>>& kernels) {
  Bytes file(sizeof(Elf64_Ehdr));
  std::string names("\0.names\0", 8);
  std::vector<Elf64_Shdr> sections(1);
  for (const auto& [name, facts] : kernels) {
    Elf64_Shdr section{};
    section.sh_name = static_cast<Elf64_Word>(names.size());
    section.sh_type = 0x70000000;
    section.sh_offset = file.size();
    section.sh_size = facts.size();
    sections.push_back(section);
    names += ".nv.info." + name + '\0';
    file.insert(file.end(), facts.begin(), facts.end());
  }
  Elf64_Shdr table{};
  table.sh_name = 1;
  table.sh_type = SHT_STRTAB;
  table.sh_offset = file.size();
  table.sh_size = names.size();
  sections.push_back(table);
  for (const char c : names) append(file, c);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident,
              "\x7f"
              "ELF\x02\x01\x01",
              7);
  header.e_shoff = file.size();
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = static_cast<Elf64_Half>(sections.size() - 1);
  for (const Elf64_Shdr& section : sections) append(file, section);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

}  // namespace

TEST_CASE("a module describes the parameters of each of its kernels") {
  const Bytes file = module_of({{"add", facts_of({8, 8, 8, 4}, 28)},
                                {"nothing", facts_of({}, 0)},
                                {"descriptor", facts_of({128, 4, 8}, 144)}});
  CHECK(profiler::bytes_of_elf(file.data()) == file.size());
  const auto kernels = profiler::parameters_of_kernels(file);
  CHECK(kernels.size() == 3);
  CHECK(kernels.at("add") == ParameterSizes{8, 8, 8, 4});
  CHECK(kernels.at("nothing").empty());
  CHECK(kernels.at("descriptor") == ParameterSizes{128, 4, 8});
}

TEST_CASE("a kernel whose parameters are not all described is left out") {
  const Bytes file = module_of({{"more_behind", facts_of({8, 8}, 24)},
                                {"no_parameter_told", facts_of({}, 8)},
                                {"whole", facts_of({8}, 8)}});
  const auto kernels = profiler::parameters_of_kernels(file);
  CHECK(kernels.size() == 1);
  CHECK(kernels.contains("whole"));
}

TEST_CASE("a file that is not machine code has no kernels") {
  CHECK(profiler::bytes_of_elf("") == 0);
  CHECK(profiler::bytes_of_elf(".version 8.8") == 0);
  CHECK(profiler::parameters_of_kernels({}).empty());
}

TEST_CASE("a damaged module never crashes its reader") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const Bytes whole = module_of({{"a", facts_of({8, 4, 8}, 24)}, {"b", facts_of({8, 8}, 16)}});
  for (int round = 0; round < 20'000; ++round) {
    Bytes file = whole;
    file.resize(random() % 4 == 0 ? random() % (file.size() + 1) : file.size());
    for (uint64_t i = random() % 8; i > 0 && !file.empty(); --i) {
      file[random() % file.size()] = static_cast<std::byte>(random());
    }
    CHECK(profiler::parameters_of_kernels(file).size() <= 60'000);
  }
}
