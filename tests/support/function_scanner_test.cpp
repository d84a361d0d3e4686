#include "tests/support/function_scanner.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace shardlens::tests;

TEST_CASE("the function scanner is not misled by initialisers, literals and comments") {
  const std::vector<Function> found = functions_of(R"(
#define BRACE {
constexpr int kTable[] = {1, 2};  // }
const std::map<int, int> kMap = {{1, f(2)}};
const char* kText = "}{", kQuote = '{';
long big = 1'000'000;
struct Point {
  int x{0};
  bool operator==(const Point&) const = default;
};
A::A(int a)
    : a_{a}, b_(f({1})) {
  if (a) { g(); }
}
template <class T>
T twice(T t) {
  auto l = [&] { return t; };
  return l() + l();
}
void empty() {}
)");
  REQUIRE(found.size() == 3);
  CHECK(found[0].head.starts_with("A::A(int a)"));
  CHECK(found[0].lines == 4);
  CHECK(found[1].head.find("twice") != std::string::npos);
  CHECK(found[1].lines == 5);
  CHECK(found[2].lines == 1);
}

TEST_CASE("the scanner finds the names that namespaces declare") {
  const std::vector<Declaration> found = declared_in(R"(
namespace fs = std::filesystem;
namespace n::m {
namespace {
using Words = std::vector<std::string>;
enum class Kind { first, second };
struct Point final : Base {
  int x = 0;
  void move(int by) { x += by; }
};
template <class T, class U = std::map<int, T>>
T twice(T t) { return t + t; }
constexpr std::pair<int, int> kPair{1, 2}, kOther;
const auto kSquare = [](int x) { return x * x; };
bool operator==(const Point&, const Point&) { return true; }
}  // namespace
[[noreturn]] static void fail(const std::string& why);
A::A(int a) : a_{a}, b_(f(1)) {}
int shared() { return 1; }
}  // namespace n::m
)");
  std::string all;
  for (const Declaration& made : found) {
    CHECK(made.enclosing == "n::m");
    all += made.name + (made.is_local ? " " : "* ");
  }
  CHECK(all == "Kind Point twice kPair kSquare fail shared* ");
  CHECK(found[3].line == 13);
}
