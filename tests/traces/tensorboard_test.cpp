#include "traces/files/tensorboard.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace tensorboard_test {

using namespace std::string_literals;

/// The check value of CRC-32C in CRC catalogs, and 32 zero bytes from RFC 3720, B.4.
TEST(TensorBoard, CrcIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
}

/// Worked out by hand: 1.5 is 0x3ff8000000000000 as double in field 1 of eight bytes (1 << 3 | 1); the text
/// of 13 bytes is field 3 (3 << 3 | 2): 24 bytes. Files written by TensorFlow begin with the masked CRC a3 7f
/// 4b 22 of that length.
TEST(TensorBoard, FileBeginsLikeTensorFlows) {
  const std::string event = version_event(Seconds(1.5));
  EXPECT_EQ(event, "\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"s + "brain.Event:2");
  const std::string record = tf_record(event);
  ASSERT_EQ(record.size(), 8U + 4 + 24 + 4);
  EXPECT_EQ(record.substr(0, 12), "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22"s);
  EXPECT_EQ(record.substr(12, 24), event);
}

/// Worked out by hand: 0.25 is 0x3e800000 as float in field 2 of four bytes (2 << 3 | 5 = 0x15). A value with
/// a one-letter tag has 2 + 1 + 1 + 4 = 8 bytes, a summary with one value 10. 300 is the varint ac 02.
TEST(TensorBoard, ScalarsAreBytesByHand) {
  const std::vector<Scalar> one = {{"a", 0.25}};
  EXPECT_EQ(scalar_event(Seconds(1.5), 300, one),
            "\x09\0\0\0\0\0\0\xf8\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01\x61\x15\0\0\x80\x3e"s);
  const std::vector<Scalar> two = {{"a", 0.25}, {"bc", -0.25}};
  EXPECT_EQ(scalar_event(Seconds(1.5), 3, two),
            "\x09\0\0\0\0\0\0\xf8\x3f\x10\x03\x2a\x15\x0a\x08\x0a\x01\x61\x15\0\0\x80\x3e"
            "\x0a\x09\x0a\x02\x62\x63\x15\0\0\x80\xbe"s);
}

TEST(TensorBoard, FileGrowsByOneRecordPerStep) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "tensorboard_test/runs";
  std::filesystem::remove_all(folder);
  EventFile file(folder.string());
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].filename().string().rfind("events.out.tfevents.", 0), 0U);
  EXPECT_EQ(std::filesystem::file_size(files[0]), 40U);
  const std::vector<Scalar> one = {{"a", 0.25}};
  file.add(3, one);
  EXPECT_EQ(std::filesystem::file_size(files[0]), 40U + 12 + 23 + 4);
}

TEST(TensorBoard, RejectsAFolderThatIsAFile) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "tensorboard_file").string();
  write_file_atomically(path, "x");
  EXPECT_THROW(EventFile{path + "/runs"}, Error);
}

}  // namespace tensorboard_test
}  // namespace dflop
