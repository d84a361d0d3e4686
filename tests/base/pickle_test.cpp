#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "base/document/document_writer.h"
#include "base/document/read_document.h"

namespace {

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using namespace std::string_literals;

/// A document's values as nlohmann's.
json tree(const Document& document, Document::Index index) {
  const auto items = [&](auto add) {
    const auto& all = document.items(index);
    for (size_t i = 0; i < all.size(); ++i) add(i, all);
  };
  switch (document.type(index)) {
    case Document::Type::none:
      return nullptr;
    case Document::Type::boolean:
      return index == Document::kTrue;
    case Document::Type::integer:
      return document.integer(index);
    case Document::Type::real:
      return document.real(index);
    case Document::Type::text:
      return document.text(index);
    case Document::Type::list: {
      json list = json::array();
      items([&](size_t i, const auto& all) { list.push_back(tree(document, all[i])); });
      return list;
    }
    case Document::Type::map: {
      json map = json::object();
      items([&](size_t i, const auto& all) {
        if (i % 2 == 0) map[document.text(all[i])] = tree(document, all[i + 1]);
      });
      return map;
    }
    case Document::Type::global:
      return {{"global", document.text(index)}};
    case Document::Type::object: {
      json object = json::array();
      items([&](size_t i, const auto& all) { object.push_back(tree(document, all[i])); });
      return {{"object", object}};
    }
  }
  return nullptr;
}

json tree(const Document& document) { return tree(document, document.root); }

void write(DocumentWriter& out, const json& value) {
  if (value.is_object()) {
    out.begin_map();
    for (const auto& [key, item] : value.items()) {
      out.key(key);
      write(out, item);
    }
    return out.end_map();
  }
  if (value.is_array()) {
    out.begin_list();
    for (const json& item : value) write(out, item);
    return out.end_list();
  }
  if (value.is_string()) return out.text(value.get<std::string>());
  if (value.is_boolean()) return out.boolean(value.get<bool>());
  if (value.is_number_float()) return out.real(value.get<double>());
  out.integer(value.get<int64_t>());
}

std::string pickled(const json& value) {
  std::ostringstream out;
  const auto writer = pickle_writer(out);
  write(*writer, value);
  writer->finish();
  return out.str();
}

std::string as_json(const json& value) {
  std::ostringstream out;
  const auto writer = json_writer(out);
  write(*writer, value);
  writer->finish();
  return out.str();
}

json random_value(std::mt19937_64& engine, int depth) {
  switch (engine() % (depth > 0 ? 7 : 5)) {
    case 0:
      return static_cast<int64_t>(engine());
    case 1:
      return static_cast<int64_t>(engine()) >> (engine() % 64);
    case 2:
      return engine() % 2 == 0;
    case 3:
      return std::string(engine() % 400, static_cast<char>('a' + engine() % 26));
    case 4:
      return static_cast<double>(static_cast<int64_t>(engine())) / 1024;
    case 5: {
      json list = json::array();
      const size_t size = engine() % 10 == 0 ? engine() % 2500 : engine() % 6;
      for (size_t i = 0; i < size; ++i)
        list.push_back(random_value(engine, size > 6 ? 0 : depth - 1));
      return list;
    }
    default: {
      json map = json::object();
      for (size_t i = engine() % 40; i-- > 0;) {
        map["key" + std::to_string(i)] = random_value(engine, depth - 1);
      }
      return map;
    }
  }
}

}  // namespace

TEST_CASE("a pickle and JSON that we write read back equal") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 200; ++i) {
    const json value = random_value(engine, 4);
    CHECK(tree(read_pickle(pickled(value))) == value);
    CHECK(json::parse(as_json(value)) == value);
    CHECK(tree(read_json(as_json(value))) == value);
  }
}

TEST_CASE("integers of every width are written in opcodes that the viewer knows") {
  json values = json::array();
  for (int shift = 0; shift < 63; ++shift) {
    for (const int64_t near : {-1, 0, 1}) {
      values.push_back((int64_t{1} << shift) + near);
      values.push_back(-(int64_t{1} << shift) + near);
    }
  }
  values.push_back(std::numeric_limits<int64_t>::min());
  values.push_back(std::numeric_limits<int64_t>::max());
  CHECK(tree(read_pickle(pickled(values))) == values);
}

TEST_CASE("a pickle that we write has batches of at most 1000 and every text once") {
  const std::string pickle = pickled(json(2500, "the same text"));
  CHECK(std::ranges::count(pickle, 'e') == 3 + std::ranges::count("the same text"s, 'e'));
  CHECK(pickle.size() < 2 * 2500 + 100);
}

TEST_CASE("pickles of every protocol's opcodes are read") {
  // Written by hand, as Python's pickler of protocol 4 writes ({"a": (1, 2.5)}, [None], -3).
  const std::string pickle =
      "\x80\x04\x95\x1d\0\0\0\0\0\0\0}\x94\x8c\x01"
      "a\x94K\x01G@\x04\0\0\0\0\0\0\x86\x94s]\x94NaJ\xfd\xff\xff\xff\x87\x94."s;
  CHECK(tree(read_pickle(pickle)) == json::array({{{"a", {1, 2.5}}}, {nullptr}, -3}));
}

TEST_CASE("an unsigned integer of 64 bits is kept, as PyTorch writes lines that it does not know") {
  const Document document = read_pickle("\x80\x02\x8a\x09" + std::string(8, '\xff') + "\0."s);
  CHECK(document.integer(document.root) == -1);
}

TEST_CASE("opcodes that would make an object or call anything are refused by name and offset") {
  const auto check = [](const std::string& opcodes, const std::string& what) {
    CHECK_THROWS_WITH(read_pickle("\x80\x02" + opcodes), ContainsSubstring(what));
  };
  check("cos\nsystem\n(X\x02\0\0\0lstR."s, "byte 2: GLOBAL of os.system is refused");
  check("K\x01\x8c\x02os\x8c\x06system\x93.", "byte 16: STACK_GLOBAL of os.system is refused");
  check("NNR.", "byte 4: REDUCE is refused");
  check("}Nb.", "byte 4: BUILD is refused");
  check("(iposix\nsystem\n.", "byte 3: INST of posix.system is refused");
  check("N\x81.", "byte 3: NEWOBJ is refused");
  check("NQ.", "byte 3: BINPERSID is refused");
  check("\x82\x01.", "byte 2: EXT1 is refused");
  check("\xff", "byte 2: 0xff is not a known opcode");
}

TEST_CASE("classes that the reader names become data, and no others") {
  constexpr std::array<std::string_view, 2> kKnown = {"torch.Size", "collections.OrderedDict"};
  const auto read = [&](const std::string& opcodes) {
    return tree(read_pickle("\x80\x02" + opcodes, kKnown));
  };
  const std::string size = "ctorch\nSize\n", ordered = "ccollections\nOrderedDict\n";
  const json global = {{"global", "torch.Size"}};
  CHECK(read(size + "K\x03\x85R.") == json{{"object", {global, {3}}}});
  CHECK(read(size + ")\x81}b.") == json{{"object", {global, json::array(), json::object()}}});
  CHECK(read("K\x01Q.") == json{{"object", {nullptr, 1}}});
  CHECK(read(ordered + ")R(X\x01\0\0\0aK\x02u}b."s) == json{{"a", 2}});
  const auto check = [&](const std::string& opcodes, const std::string& what) {
    CHECK_THROWS_WITH(read(opcodes), ContainsSubstring(what));
  };
  check("cos\nsystem\n)R.", "byte 2: GLOBAL of os.system is refused");
  check("N)R.", "only a class can be called");
  check(size + "NR.", "the arguments are not a tuple");
  check(ordered + "K\x01\x85R.", "an OrderedDict is made with arguments");
  check("K\x01Nb.", "only an object can have a state");
  check("(iposix\nsystem\n.", "byte 3: INST of posix.system is refused");
  check("\x82\x01.", "byte 2: EXT1 is refused");
}

TEST_CASE("pickles that would take memory or make no sense are refused") {
  const auto check = [](const std::string& opcodes, const std::string& what) {
    CHECK_THROWS_WITH(read_pickle("\x80\x02" + opcodes), ContainsSubstring(what));
  };
  check("X\xff\xff\xff\xff", "byte 2: the pickle is cut off");
  check("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "byte 2: the pickle is cut off");
  check("Nr\xff\xff\xff\xff.", "byte 3: memo 4294967295 is put before 0");
  check("h\x05.", "byte 2: memo 5 was never put");
  check("\x8a\x09"s + std::string(9, '\x01') + ".", "byte 2: an integer of 9 bytes is too large");
  check(std::string(101, '('), "byte 102: more than 100 marks are open");
  check("e", "byte 2: a mark is missing");
  check("(e", "byte 3: a value is missing");
  check("NNNs", "byte 5: only a list or a map can be extended");
  check("}(Nu.", "byte 5: a key has no value");
  check("NN.", "byte 4: more than one value");
  check(".", "byte 2: a value is missing");
  CHECK_THROWS_WITH(read_pickle("PK\x03\x04"), ContainsSubstring("byte 0: no pickle"));
  CHECK_THROWS_WITH(read_pickle("\x80\x06N."), ContainsSubstring("protocol 6"));
  CHECK_THROWS_WITH(read_pickle(""), ContainsSubstring("cut off"));
}

TEST_CASE("a pickle that nests a million deep, or holds itself, costs no more than its bytes") {
  std::string nested = "\x80\x02";
  for (int i = 0; i < 1'000'000; ++i) nested += ']';
  for (int i = 1; i < 1'000'000; ++i) nested += 'a';
  CHECK(Value(read_pickle(nested + '.')).size() == 1);
  // Every list holds the previous one twice: 2^1000 values if they were copied.
  std::string doubling = "\x80\x04]\x94";
  for (int i = 0; i < 1000; ++i) doubling += "2\x86";
  CHECK(Value(read_pickle(doubling + '.')).size() == 2);
  CHECK(Value(read_pickle("\x80\x02]q\x01"s.replace(4, 1, "\0"s) + "h\0a."s)).size() == 1);
}

TEST_CASE("JSON that is damaged or nests too deep is refused") {
  CHECK_THROWS_WITH(read_json("{\"a\": [1, 2"), ContainsSubstring("not JSON"));
  CHECK_THROWS_WITH(read_json(std::string(1'000'000, '[')), ContainsSubstring("100 deep"));
  CHECK(Value(read_json("{\"a\":1,\"a\":2}"))["a"].integer() == 2);
  const Document large = read_json("18446744073709551615");
  CHECK(large.integer(large.root) == -1);
}
