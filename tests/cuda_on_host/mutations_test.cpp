// Kernels that are broken in one place must fail their tests; otherwise the emulation would miss errors.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>

namespace dflop::testing {
namespace mutations_test {

struct Mutation {
  const char* what;
  const char* tests;
};
constexpr Mutation kMutations[] = {
#include "mutations.inc"
};

std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

/// Runs tests of this program with a mutation and returns their output.
std::string run_tests(std::size_t number, const std::string& tests) {
  const std::string command =
      "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX DFLOP_MUTATION=" + std::to_string(number) + " " +
      this_program() + " --gtest_fail_fast --gtest_filter='" + tests + "' 2>&1";
  std::string text;
  std::FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) return text;
  char part[4096];
  for (std::size_t bytes; (bytes = std::fread(part, 1, sizeof part, output)) > 0;) text.append(part, bytes);
  pclose(output);
  return text;
}

class Mutations : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Mutations, IsSeen) {
  const Mutation& mutation = kMutations[GetParam() - 1];
  SCOPED_TRACE(mutation.what);
  const std::string text = run_tests(GetParam(), mutation.tests);
  ASSERT_NE(text.find("[ RUN      ]"), std::string::npos) << "no test ran: " << text;
  EXPECT_NE(text.find("[  FAILED  ]"), std::string::npos) << "no test failed: " << text;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Mutations, ::testing::Range(std::size_t{1}, std::size(kMutations) + 1));

}  // namespace mutations_test
}  // namespace dflop::testing
