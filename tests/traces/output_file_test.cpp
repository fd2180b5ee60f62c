#include "traces/output_file.hpp"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace {

namespace fs = std::filesystem;

class OutputFile : public testing::Test {
 protected:
  OutputFile() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("dflop_output_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~OutputFile() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

std::string random_bytes(std::size_t size, std::uint64_t seed, std::uint64_t values) {
  Random random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(values));
  return bytes;
}

TEST_F(OutputFile, WritesAndReplacesLeavingNothingElse) {
  write_file_atomically(path("a.json"), "first and longer");
  write_file_atomically(path("a.json"), "second");
  EXPECT_EQ(read(path("a.json")), "second");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, FailureNamesPathAndReasonAndLeavesNothing) {
  const Error missing = error_of([&] { write_file_atomically(path("no/such/a.json"), "x"); });
  EXPECT_EQ(missing.kind(), ErrorKind::output);
  EXPECT_EQ(missing.context(), path("no/such/a.json"));
  EXPECT_EQ(missing.message(), "cannot write: No such file or directory");

  fs::create_directory(path("folder"));
  EXPECT_EQ(error_of([&] { write_file_atomically(path("folder"), "x"); }).message(),
            "cannot write: it is a directory");
  EXPECT_EQ(files(), 1);  // the folder
}

TEST_F(OutputFile, FailureInTheMiddleKeepsWhatWasThere) {
  write_file_atomically(path("a"), "old");
  // Files of this process may not grow beyond 1000 bytes; the write of 100,000 stops there.
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const rlimit small{1000, usual.rlim_max};
  const auto usual_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = error_of([&] { write_file_atomically(path("a"), std::string(100'000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, usual_handler);
  EXPECT_EQ(error.message(), "cannot write: File too large");
  EXPECT_EQ(read(path("a")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, DevicesAreWrittenToAndNotReplaced) {
  // /dev/full takes no byte: the write itself must be seen to fail.
  EXPECT_EQ(error_of([] { write_file_atomically("/dev/full", "x"); }).message(),
            "cannot write: No space left on device");
  EXPECT_NO_THROW(write_file_atomically("/dev/null", "x"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(OutputFile, ASymbolicLinkStaysOne) {
  write_file_atomically(path("real"), "old");
  fs::create_symlink(path("real"), path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read(path("real")), "new");
}

TEST_F(OutputFile, CompressesByName) {
  const std::string text(10'000, 'x');
  write_file_atomically(path("a.json.gz"), text);
  const std::string packed = read(path("a.json.gz"));
  EXPECT_LT(packed.size(), 200U);
  // RFC 1952: bytes 4 to 7 are the time stamp.
  EXPECT_EQ(packed.substr(4, 4), std::string(4, '\0'));
  EXPECT_EQ(gunzip_if_needed(packed, "a.json.gz"), text);
}

TEST(Gzip, RoundTripOfRandomBytes) {
  // Sizes around the 2^18 bytes that are packed at a time, from very compressible to not at all.
  for (const std::size_t size : {0, 1, 1000, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 1'000'000}) {
    for (const std::uint64_t values : {1, 3, 256}) {
      const std::string bytes = random_bytes(size, size + values, values);
      EXPECT_TRUE(gunzip_if_needed(gzip(bytes), "f.gz") == bytes) << size << " of " << values;
    }
  }
}

TEST(Gzip, PlainTextIsLeftAlone) {
  EXPECT_EQ(gunzip_if_needed("{}", "f"), "{}");
  EXPECT_EQ(gunzip_if_needed("", "f"), "");
}

TEST(Gzip, JoinedStreamsAreJoinedTexts) {
  EXPECT_EQ(gunzip_if_needed(gzip("one ") + gzip("two"), "f.gz"), "one two");
}

TEST(Gzip, TruncatedIsRefusedAtEveryLength) {
  const std::string packed = gzip(random_bytes(500, 7, 64));
  for (std::size_t length = 2; length < packed.size(); ++length) {
    expect_refused([&] { gunzip_if_needed(packed.substr(0, length), "f.gz"); }, "f.gz",
                   {"expected a complete gzip file", "ends early"});
  }
}

TEST(Gzip, DamageIsRefused) {
  std::string packed = gzip(random_bytes(500, 7, 64));
  const auto read = [&] { gunzip_if_needed(packed, "f.gz"); };
  // The last 8 bytes are the checksum and the length of the text (RFC 1952).
  packed[packed.size() - 8] ^= 1;
  expect_refused(read, "f.gz", {"damage", "incorrect data check"});
  packed[packed.size() - 8] ^= 1;
  packed += "tail";
  expect_refused(read, "f.gz", {"damage"});
}

TEST(Gzip, ABombIsRefused) {
  const std::string packed = gzip(std::string(2'000'000, ' '));
  expect_refused([&] { gunzip_if_needed(packed, "f.gz", 1'000'000); }, "f.gz", {"more than 1000000 bytes"});
  EXPECT_EQ(gunzip_if_needed(packed, "f.gz", 2'000'000).size(), 2'000'000U);
}

}  // namespace
}  // namespace dflop
