#include "traces/text/text_file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace text_file_test {

TEST(TextFile, AnEndlessFileIsRejected) {
  expect_refused([] { read_text_file("/dev/zero", 1'000'000); }, "/dev/zero",
                 {"expected at most 1000000 bytes"});
  expect_refused([] { read_text_file("/dev/zero"); }, "/dev/zero", {"expected at most 512 MiB, found more"});
}

/// Returns the peak memory of this process, including all its tests so far, in KiB.
std::int64_t most_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/// A file that is known to be too long is rejected before it is read: its first GiB is never in memory.
TEST(TextFile, ALongFileIsRejectedUnread) {
  const std::string path = ::testing::TempDir() + "/dflop_text_file_test_long";
  write_file_atomically(path, "");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  const std::int64_t before = most_memory();
  expect_refused([&] { read_text_file(path); }, path, {"expected at most 1 GiB, found more"});
  EXPECT_LT(most_memory() - before, 1 << 20) << "KiB";
  std::filesystem::remove(path);
}

/// A pipe has nothing left for a second read.
TEST(TextFile, APipeIsReadOnce) {
  const std::string path = ::testing::TempDir() + "/dflop_text_file_test_pipe";
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::jthread writer([&] { std::ofstream(path) << "some text"; });
  EXPECT_EQ(read_text_file(path), "some text");
  std::filesystem::remove(path);
}

TEST(TextFile, TheLimitItselfIsAllowedAndGzipUnpacked) {
  const std::string path = ::testing::TempDir() + "/dflop_text_file_test.gz";
  write_file_atomically(path, "some text");
  EXPECT_EQ(read_text_file(path), "some text");
  const std::string plain = ::testing::TempDir() + "/dflop_text_file_test";
  write_file_atomically(plain, "12345");
  EXPECT_EQ(read_text_file(plain, 5), "12345");
  expect_refused([&] { read_text_file(plain, 4); }, plain, {"at most 4 bytes"});
}

}  // namespace text_file_test
}  // namespace dflop
