#include "traces/text/growing_file.hpp"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace growing_file_test {

std::string fresh(const std::string& name) {
  const std::string path = ::testing::TempDir() + "dflop_growing_" + name;
  std::filesystem::remove(path);
  return path;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(GrowingFiles, GrowAndAreOpenedAgain) {
  const std::string path = fresh("again");
  {
    GrowingFile first(path, GrowingFile::Mode::create);
    first.add("one ");
    EXPECT_EQ(read(path), "one ");
    GrowingFile moved(std::move(first));
    moved.add("two ");
  }
  GrowingFile(path, GrowingFile::Mode::append).add("three");
  EXPECT_EQ(read(path), "one two three");
  EXPECT_EQ(error_of([&] { GrowingFile(path, GrowingFile::Mode::create); }).kind(), ErrorKind::output);
}

/// The limit is reached in the middle of the second piece, as when a disk fills up.
TEST(GrowingFiles, DropAPieceThatDoesNotFit) {
  const std::string path = fresh("full");
  GrowingFile file(path, GrowingFile::Mode::append);
  file.add("12345\n");
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  rlimit small = usual;
  small.rlim_cur = 8;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const Error error = error_of([&] { file.add("67890\n"); });
  setrlimit(RLIMIT_FSIZE, &usual);
  EXPECT_EQ(error.kind(), ErrorKind::output);
  EXPECT_EQ(error.context(), path);
  EXPECT_EQ(error.message(), "cannot be written: File too large");
  EXPECT_EQ(read(path), "12345\n");
  file.add("67890\n");
  EXPECT_EQ(read(path), "12345\n67890\n");
}

TEST(GrowingFiles, SayThatADeviceIsFull) {
  GrowingFile file("/dev/full", GrowingFile::Mode::append);
  EXPECT_EQ(error_of([&] { file.add("x"); }).message(), "cannot be written: No space left on device");
}

}  // namespace growing_file_test
}  // namespace dflop
