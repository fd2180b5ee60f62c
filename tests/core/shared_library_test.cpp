#include "core/support/shared_library.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/error.hpp"

namespace dflop {
namespace shared_library_test {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_device);
    return error.what();
  }
  return "";
}

TEST(SharedLibrary, CallsAFunctionOfTheFirstThatCanBeLoaded) {
  const SharedLibrary library({"libnone-of-that-name.so", "libm.so.6"}, {}, "roots");
  EXPECT_EQ(library.name(), "libm.so.6");
  double (*root)(double) = AnyFunction(library.symbol("sqrt"));
  EXPECT_EQ(root(9), 3);
}

struct Roots : FunctionTable {
  using FunctionTable::FunctionTable;
  double (*square)(double) = function("sqrt");
  double (*cube)(double) = function("cbrt");
};

TEST(FunctionTable, FindsItsFunctionsByTheirNames) {
  const Roots roots(SharedLibrary({"libm.so.6"}, {}, "roots"));
  EXPECT_EQ(roots.square(9), 3);
  EXPECT_DOUBLE_EQ(roots.cube(27), 3);
  EXPECT_EQ(Roots().square, nullptr);  // without a library
}

TEST(SharedLibrary, NamesTheLibrariesThatItTried) {
  const std::string message = message_of([] { SharedLibrary({"liba-b.so"}, {"/no/folder"}, "sums"); });
  EXPECT_NE(message.find("a library for sums"), std::string::npos) << message;
  EXPECT_NE(message.find("liba-b.so"), std::string::npos) << message;
  EXPECT_NE(message.find("/no/folder/liba-b.so"), std::string::npos) << message;
}

TEST(SharedLibrary, NamesTheMissingFunction) {
  const SharedLibrary library({"libm.so.6"}, {}, "roots");
  const std::string message = message_of([&] { library.symbol("no_such_function"); });
  EXPECT_NE(message.find("libm.so.6 has no 'no_such_function'"), std::string::npos) << message;
}

}  // namespace shared_library_test
}  // namespace dflop
