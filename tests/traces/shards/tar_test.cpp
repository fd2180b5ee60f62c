#include "traces/shards/tar.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/traces/file_fixtures.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace tar_test {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 512;

/// Pads with zeros to whole blocks.
std::string in_blocks(std::string bytes) {
  bytes.resize((bytes.size() + kBlock - 1) / kBlock * kBlock);
  return bytes;
}

/// The checksum of a header is the sum of its bytes, with spaces in place of the checksum.
std::string with_checksum(std::string header) {
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  return header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

/// A ustar header.
std::string header(const std::string& name, std::size_t size, char type = '0',
                   const std::string& prefix = "") {
  std::string bytes(kBlock, '\0');
  bytes.replace(0, name.size(), name);
  bytes.replace(100, 7, "0000644");
  bytes.replace(124, 11, fmt::format("{:011o}", size));
  bytes[156] = type;
  bytes.replace(257, 8, std::string("ustar\0", 6) + "00");
  bytes.replace(345, prefix.size(), prefix);
  return with_checksum(bytes);
}

std::string entry(const std::string& name, const std::string& bytes, char type = '0') {
  return header(name, bytes.size(), type) + in_blocks(bytes);
}

const std::string kEnd(2 * kBlock, '\0');

class Tars : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("dflop_tar_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "a.tar") const { return (folder_ / name).string(); }

  TarFile opened(const std::string& bytes) const {
    write_file_atomically(path(), bytes);
    return TarFile(path());
  }

  void expect_tar_refused(const std::string& bytes, std::size_t offset,
                          std::initializer_list<std::string_view> words) const {
    expect_refused([&] { opened(bytes); }, fmt::format("{}: offset {}", path(), offset), words);
  }

 private:
  fs::path folder_;
};

/// Python's tarfile wrote this shard: an image and a JSON file for each of three samples.
TEST_F(Tars, HaveTheWrittenMembers) {
  const std::string golden = DFLOP_SOURCE_DIR "/tests/golden/io/";
  const TarFile tar(golden + "shard-000000.tar");
  const std::string jpeg = read_text_file(golden + "photo.jpg");
  const std::string png = read_text_file(golden + "wide.png");
  ASSERT_EQ(tar.samples().size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const TarSample& sample = tar.samples()[i];
    EXPECT_EQ(sample.key, fmt::format("sample_000{}", i));
    ASSERT_EQ(sample.members.size(), 2u);
    const TarMember* picture = sample.find(i == 1 ? "png" : "jpg");
    ASSERT_NE(picture, nullptr);
    EXPECT_EQ(tar.read(*picture), i == 1 ? png : jpeg);
    ASSERT_NE(sample.find("json"), nullptr);
    EXPECT_TRUE(nlohmann::json::accept(tar.read(*sample.find("json"))));
    EXPECT_EQ(sample.find("txt"), nullptr);
  }
}

TEST_F(Tars, GiveBackAnyMembersInAnyOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::string bytes;
    std::vector<std::string> written;
    std::vector<TarSample> expected;
    const std::size_t samples = random() % 5;
    for (std::size_t s = 0; s < samples; ++s) {
      expected.push_back({fmt::format("train/{:03}", s), {}});
      for (const std::string extension : {"jpg", "seg.png", "json"}) {
        if (random() % 3 == 0 && extension != "jpg") continue;
        // These sizes include whole blocks and empty members.
        std::string content(random() % 3 * 256 + random() % 3 / 2, '\0');
        for (char& byte : content) byte = static_cast<char>(random());
        expected.back().members.push_back({extension, bytes.size() + kBlock, content.size()});
        bytes += entry(expected.back().key + "." + extension, content);
        written.push_back(content);
      }
    }
    const TarFile tar = opened(bytes + kEnd);
    ASSERT_EQ(tar.samples(), expected);
    std::size_t m = written.size();
    for (auto sample = expected.rbegin(); sample != expected.rend(); ++sample) {
      for (auto member = sample->members.rbegin(); member != sample->members.rend(); ++member)
        EXPECT_EQ(tar.read(*member), written[--m]);
    }
  }
}

TEST_F(Tars, SplitPathsAtTheFirstDotOfTheName) {
  const TarFile tar = opened(entry("v1.0/", "", '5') + entry("v1.0/a.left.JPG", "x") + entry("README", "x") +
                             entry("v1.0/.hidden.jpg", "x") + entry("v1.0/a.json", "x") + kEnd);
  ASSERT_EQ(tar.samples().size(), 1u);
  EXPECT_EQ(tar.samples()[0].key, "v1.0/a");
  ASSERT_EQ(tar.samples()[0].members.size(), 2u);
  EXPECT_EQ(tar.samples()[0].members[0].extension, "left.jpg");
  EXPECT_EQ(tar.samples()[0].members[1].extension, "json");
}

/// A path of more than 100 bytes is stored in a prefix (ustar), in a preceding entry (GNU) or in pax records.
TEST_F(Tars, KnowLongPaths) {
  const std::string folder(120, 'd');
  const std::string file(90, 'f');
  const std::string path = folder + "/" + file + ".txt";
  // "226 path=" and the newline have 10 bytes, and the path has 120 + 1 + 90 + 4 = 215.
  const std::string record = "225 path=" + path + "\n";
  ASSERT_EQ(record.size(), 225u);
  const std::string cut = entry(path.substr(0, 100), "x");
  for (const std::string& bytes : {header(file + ".txt", 1, '0', folder) + in_blocks("x"),
                                   entry("././@LongLink", path + '\0', 'L') + cut,
                                   entry("PaxHeader", "18 comment=nobody\n" + record, 'x') + cut}) {
    const TarFile tar =
        opened(entry("pax_global_header", "18 comment=nobody\n", 'g') + bytes + entry("b.txt", "y") + kEnd);
    ASSERT_EQ(tar.samples().size(), 2u);
    EXPECT_EQ(tar.samples()[0].key, folder + "/" + file);
    EXPECT_EQ(tar.read(tar.samples()[0].members[0]), "x");
    EXPECT_EQ(tar.samples()[1].key, "b");
  }
}

/// Sizes of at least 8 GiB do not fit in 11 octal digits.
TEST_F(Tars, KnowSizesInOtherForms) {
  std::string base_256 = header("a.txt", 0);
  base_256.replace(124, 12, "\x80" + std::string(9, '\0') + "\x02\x01");  // 2 * 256 + 1
  const std::string content(513, 'c');
  const std::string pax = entry("PaxHeader", "12 size=513\n", 'x') + header("a.txt", 0);
  for (const std::string& head : {with_checksum(base_256), pax}) {
    const TarFile tar = opened(head + in_blocks(content) + entry("b.txt", "y") + kEnd);
    ASSERT_EQ(tar.samples().size(), 2u);
    EXPECT_EQ(tar.read(tar.samples()[0].members[0]), content);
    EXPECT_EQ(tar.read(tar.samples()[1].members[0]), "y");
  }
}

/// A sparse file with 9 GiB of zeros.
TEST_F(Tars, MayBeLargerThanOffsetsOf32Bits) {
  const std::uint64_t size = std::uint64_t{9} << 30;
  std::string head = header("a.bin", 0);
  head.replace(124, 12, "\x80" + std::string(6, '\0') + "\x02\x40" + std::string(3, '\0'));  // 0x240000000
  write_file_atomically(path(), with_checksum(head));
  fs::resize_file(path(), kBlock + size);
  {
    std::FILE* file = std::fopen(path().c_str(), "ab");
    const std::string rest = entry("b.txt", "behind") + kEnd;
    std::fwrite(rest.data(), 1, rest.size(), file);
    std::fclose(file);
  }
  const TarFile tar(path());
  ASSERT_EQ(tar.samples().size(), 2u);
  EXPECT_EQ(tar.samples()[0].members[0].size, size);
  EXPECT_EQ(tar.read(tar.samples()[1].members[0]), "behind");
}

TEST_F(Tars, AreRejectedIfAHeaderIsDamaged) {
  const std::string first = entry("a.txt", "x");
  std::string flipped = entry("b.txt", "y");
  flipped[1] ^= 1;
  expect_tar_refused(first + flipped + kEnd, 1024, {"checksum"});
  std::string letters = header("b.txt", 1);
  letters.replace(124, 11, "0000000000x");
  expect_tar_refused(first + with_checksum(letters) + kEnd, 1024, {"a size", "0000000000x"});
  std::string negative = header("b.txt", 1);
  negative.replace(124, 12, 12, '\xff');
  expect_tar_refused(first + with_checksum(negative) + kEnd, 1024, {"a size"});
  std::string huge = header("b.txt", 1);
  huge.replace(124, 12, "\x80" + std::string(11, '\xff'));
  expect_tar_refused(first + with_checksum(huge) + kEnd, 1024, {"a size"});
  // The header is followed by the 1,024 bytes of the end.
  expect_tar_refused(first + header("b.txt", 1025) + kEnd, 1024, {"at most 1024", "found 1025"});
}

TEST_F(Tars, AreRejectedIfRecordsAreDamaged) {
  for (const std::string record : {"12 path=b.txt\n", "14 path=b.txt", "path=b.txt\n", "9 pathb\n", "0 a=b\n",
                                   "99999999999999999999 a=b\n", " 6 a=b\n", "12 size=-12\n"}) {
    expect_tar_refused(entry("PaxHeader", record, 'x') + entry("a.txt", "x") + kEnd, 512, {"expected a"});
  }
  expect_tar_refused(entry("PaxHeader", "22 GNU.sparse.major=1\n", 'x') + kEnd, 512, {"sparse"});
  expect_tar_refused(entry("PaxHeader", "14 path=b.txt\n", 'g') + kEnd, 0, {"of one file"});
  expect_tar_refused(entry("PaxHeader", "14 path=b.txt\n", 'x') + kEnd, 1024, {"the end"});
  expect_tar_refused(header("././@LongLink", (1 << 20) + 1, 'L'), 0, {"at most 1048576 bytes"});
}

TEST_F(Tars, AreRejectedIfTheirEndIsMissing) {
  const std::string whole = entry("a.txt", "x") + entry("b.txt", std::string(700, 'y')) + kEnd;
  EXPECT_EQ(opened(whole).samples().size(), 2u);
  EXPECT_EQ(opened(whole + std::string(9000, '\0')).samples().size(), 2u);
  for (std::size_t size = 0; size < whole.size(); size += 64) {
    const Error error = error_of([&] { opened(whole.substr(0, size)); });
    EXPECT_EQ(error.kind(), ErrorKind::input) << size;
    EXPECT_NE(error.context().find(": offset "), std::string::npos) << error.what();
  }
  expect_tar_refused("", 0, {"found 0 bytes", "cut off"});
  // The second member's bytes begin at 1536; the end follows two blocks later.
  expect_tar_refused(whole.substr(0, 2560), 2560, {"found 0 bytes", "cut off"});
  expect_tar_refused(whole + whole, 3584, {"zeros"});
}

TEST_F(Tars, AreRejectedWithMembersThatAreNoFiles) {
  const std::initializer_list<std::pair<char, std::string_view>> types = {
      {'1', "hard link"}, {'2', "symbolic link"}, {'S', "sparse"}, {'3', "device"}, {'Z', "0x5a"}};
  for (const auto& [type, name] : types) {
    expect_tar_refused(entry("a.txt", "x") + header("b.txt", 0, type) + kEnd, 1024, {name, "b.txt"});
  }
}

TEST_F(Tars, AreRejectedWithRepeatedOrSeparatedMembers) {
  const std::string a = entry("a.txt", "x");
  expect_tar_refused(a + entry("a.TXT", "y") + kEnd, 1024, {"'txt' of sample 'a'", "second"});
  expect_tar_refused(a + entry("b.txt", "y") + entry("a.json", "z") + kEnd, 2048, {"sample 'a'", "a.json"});
}

/// The names 22.05.png, 22.05.json and 22.07.png belong to one sample, 22.
TEST_F(Tars, ErrorsNameDotsInBaseNames) {
  const TarFile tar =
      opened(entry("22.05.png", "x") + entry("22.05.json", "x") + entry("22.07.png", "x") + kEnd);
  ASSERT_EQ(tar.samples().size(), 1u);
  const TarSample& sample = tar.samples()[0];
  EXPECT_EQ(sample.key, "22");
  EXPECT_EQ(sample.hint_of_dots("json").substr(0, 36), ", but .05.png, .05.json and .07.png.");
  EXPECT_NE(sample.hint_of_dots("json").find("rename files"), std::string::npos);
  EXPECT_EQ(sample.hint_of_dots("cls"), "");
  const TarFile plain = opened(entry("22.png", "x") + entry("22.left.png", "x") + kEnd);
  EXPECT_EQ(plain.samples()[0].hint_of_dots("json"), "");
  expect_tar_refused(entry("22.05.png", "x") + entry("23.05.png", "x") + entry("22.06.png", "x") + kEnd, 2048,
                     {"sample '22'", "22.06.png", "first dot", "22_05.png"});
}

TEST_F(Tars, AreRejectedIfTheyAreNoFiles) {
  EXPECT_NE(std::string(error_of([&] { TarFile(path("none.tar")); }).what()).find("No such file"),
            std::string::npos);
  expect_refused([&] { TarFile(path(".")); }, path("."), {"directory"});
  const TarFile tar = opened(entry("a.txt", "x") + kEnd);
  fs::resize_file(path(), 512);
  expect_refused([&] { tar.read(tar.samples()[0].members[0]); }, path() + ": offset 512", {"found 0"});
}

TEST_F(Tars, AreListedByFoldersAndPatterns) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_shards("s-{008..011}.tar"), (Names{"s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"}));
  EXPECT_EQ(expand_shards("{9..11}"), (Names{"9", "10", "11"}));
  EXPECT_EQ(expand_shards("{1..2}/x{00..01}"), (Names{"1/x00", "1/x01", "2/x00", "2/x01"}));
  EXPECT_EQ(expand_shards("one.tar"), Names{"one.tar"});
  for (const std::string name : {"c.tar", "a.tar", "b.txt", "b{1}.tar"})
    write_file_atomically(path(name), "");
  EXPECT_EQ(expand_shards(path("")), (Names{path("a.tar"), path("b{1}.tar"), path("c.tar")}));
  EXPECT_EQ(expand_shards(path("b{1}.tar")), Names{path("b{1}.tar")});
}

TEST_F(Tars, AreNotListedByWrongPatterns) {
  expect_refused([&] { expand_shards(path("")); }, path(""), {"*.tar", "none"});
  for (const std::string name :
       {"{1}", "{}", "{a..b}", "{1..}", "{-1..2}", "{1..2..3}", "{1,2}", "{1..2", "{2..1}", "{0..1000000}",
        "{0..1000}{0..1000}", "{0..00000000000000000001}"}) {
    expect_refused([&] { expand_shards(name); }, name, {"expected", "found"});
  }
}

}  // namespace tar_test
}  // namespace dflop::testing
