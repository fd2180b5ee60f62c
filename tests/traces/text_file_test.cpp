#include "traces/text_file.hpp"

#include "tests/traces/file_fixtures.hpp"
#include "traces/output_file.hpp"

namespace dflop {
namespace {

TEST(TextFile, AnEndlessFileIsRefused) {
  expect_refused([] { read_text_file("/dev/zero", 1'000'000); }, "/dev/zero",
                 {"expected at most 1000000 bytes"});
}

TEST(TextFile, TheLimitItselfIsAllowedAndGzipUnpacked) {
  const std::string path = testing::TempDir() + "/dflop_text_file_test.gz";
  write_file_atomically(path, "some text");
  EXPECT_EQ(read_text_file(path), "some text");
  const std::string plain = testing::TempDir() + "/dflop_text_file_test";
  write_file_atomically(plain, "12345");
  EXPECT_EQ(read_text_file(plain, 5), "12345");
  expect_refused([&] { read_text_file(plain, 4); }, plain, {"at most 4 bytes"});
}

}  // namespace
}  // namespace dflop
