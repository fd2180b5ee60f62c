#include "traces/text/text_file.hpp"

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"

namespace dflop {
namespace gzip_test {

std::string random_bytes(std::size_t size, std::uint64_t seed, std::uint64_t values) {
  Random random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(values));
  return bytes;
}

TEST(Gzip, RoundTripOfRandomBytes) {
  // Sizes around the 2^18 bytes that are compressed at a time, from very compressible to incompressible.
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

TEST(Gzip, TruncatedIsRejectedAtEveryLength) {
  const std::string packed = gzip(random_bytes(500, 7, 64));
  for (std::size_t length = 2; length < packed.size(); ++length) {
    expect_refused([&] { gunzip_if_needed(packed.substr(0, length), "f.gz"); }, "f.gz",
                   {"expected a complete gzip file", "ends early"});
  }
}

TEST(Gzip, DamageIsRejected) {
  std::string packed = gzip(random_bytes(500, 7, 64));
  const auto read = [&] { gunzip_if_needed(packed, "f.gz"); };
  // The last 8 bytes are the checksum and the length of the text (RFC 1952).
  packed[packed.size() - 8] ^= 1;
  expect_refused(read, "f.gz", {"damage", "incorrect data check"});
  packed[packed.size() - 8] ^= 1;
  packed += "tail";
  expect_refused(read, "f.gz", {"damage"});
}

TEST(Gzip, ABombIsRejected) {
  const std::string packed = gzip(std::string(2'000'000, ' '));
  expect_refused([&] { gunzip_if_needed(packed, "f.gz", 1'000'000); }, "f.gz", {"more than 1000000 bytes"});
  EXPECT_EQ(gunzip_if_needed(packed, "f.gz", 2'000'000).size(), 2'000'000U);
}

}  // namespace gzip_test
}  // namespace dflop
