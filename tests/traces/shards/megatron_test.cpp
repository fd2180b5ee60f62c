#include "traces/shards/megatron.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "tests/traces/file_fixtures.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace megatron_test {

TEST(MegatronFiles, HaveTheWrittenSequences) {
  const std::string prefix = DFLOP_SOURCE_DIR "/tests/golden/io/text";
  const auto written =
      nlohmann::json::parse(read_text_file(prefix + ".json")).get<std::vector<std::vector<std::int32_t>>>();
  const MegatronFile file(prefix);
  ASSERT_EQ(file.size(), written.size());
  for (std::size_t i = 0; i < written.size(); ++i) EXPECT_EQ(file.read(i), written[i]) << i;
}

namespace fs = std::filesystem;

/// Returns numbers as stored in a file, lowest byte first.
template <typename Number>
std::string in_bytes(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// An index. Its header ends at 34. With two sequences and three documents the lengths are at 34 and 38, the
/// pointers at 42 and 50, the documents at 58, 66 and 74.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths = {3, 2};
  std::vector<std::int64_t> pointers = {0, 6};
  std::vector<std::int64_t> documents = {0, 1, 2};
  std::optional<std::uint64_t> sequences = {};       // if not the number of lengths
  std::optional<std::uint64_t> document_count = {};  // likewise
  std::vector<std::uint8_t> modes = {};              // of the sequences

  std::string bytes() const {
    return magic + in_bytes<std::uint64_t>({version}) + in_bytes<std::uint8_t>({code}) +
           in_bytes<std::uint64_t>(
               {sequences.value_or(lengths.size()), document_count.value_or(documents.size())}) +
           in_bytes(lengths) + in_bytes(pointers) + in_bytes(documents) + in_bytes(modes);
  }
};

class MegatronDamages : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / (std::string("dflop_megatron_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string prefix() const { return (folder_ / "a").string(); }

  MegatronFile opened(const std::string& index, const std::string& data) const {
    write_file_atomically(prefix() + ".idx", index);
    write_file_atomically(prefix() + ".bin", data);
    return MegatronFile(prefix());
  }

  /// The .bin has ten bytes: five ids of 16 bits.
  void expect_index_refused(const Index& index, std::size_t offset,
                            std::initializer_list<std::string_view> words) const {
    expect_refused(
        [&] {
          opened(index.bytes(), in_bytes<std::uint16_t>({1, 2, 3, 4, 65535}));
        },
        prefix() + ".idx: offset " + std::to_string(offset), words);
  }

 private:
  fs::path folder_;
};

TEST_F(MegatronDamages, WithoutAnyAllIdsAreRead) {
  const MegatronFile file = opened(Index().bytes(), in_bytes<std::uint16_t>({1, 2, 3, 4, 65535}));
  ASSERT_EQ(file.size(), 2u);
  EXPECT_EQ(file.read(0), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(file.read(1), (std::vector<std::int32_t>{4, 65535}));
}

/// Megatron writes the modes of a multimodal data set after the documents, a byte per sequence.
TEST_F(MegatronDamages, ModesOfSequencesAreIgnored) {
  const std::string data = in_bytes<std::uint16_t>({1, 2, 3, 4, 65535});
  EXPECT_FALSE(opened(Index().bytes(), data).has_modes());
  const MegatronFile file = opened(Index{.modes = {0, 1}}.bytes(), data);
  EXPECT_TRUE(file.has_modes());
  EXPECT_EQ(file.read(1), (std::vector<std::int32_t>{4, 65535}));
  // One byte for two sequences, or three bytes, are no modes.
  expect_index_refused({.modes = {1}}, 18, {"83 bytes"});
  expect_index_refused({.modes = {0, 1, 1}}, 18, {"85 bytes"});
}

TEST_F(MegatronDamages, WithoutAnyAllSequencesAreRead) {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    const bool is_wide = random() % 2 == 0;
    Index index = {.code = static_cast<std::uint8_t>(is_wide ? 4 : 8), .lengths = {}, .pointers = {}};
    std::vector<std::vector<std::int32_t>> sequences(random() % 6);
    std::string data;
    for (auto& sequence : sequences) {
      sequence.resize(random() % 4);
      for (std::int32_t& id : sequence)
        id = static_cast<std::int32_t>(random() % (is_wide ? 1u << 31 : 1u << 16));
      index.lengths.push_back(static_cast<std::int32_t>(sequence.size()));
      index.pointers.push_back(static_cast<std::int64_t>(data.size()));
      data += is_wide ? in_bytes(sequence)
                      : in_bytes(std::vector<std::uint16_t>(sequence.begin(), sequence.end()));
    }
    index.documents = {0, static_cast<std::int64_t>(sequences.size())};
    const MegatronFile file = opened(index.bytes(), data);
    ASSERT_EQ(file.size(), sequences.size());
    for (std::size_t i = 0; i < sequences.size(); ++i) EXPECT_EQ(file.read(i), sequences[i]);
  }
}

TEST_F(MegatronDamages, OfTheHeaderAreRejected) {
  const std::string magic("MMIDIDX\0\1", 9);
  for (const std::string& bytes :
       {std::string(), Index().bytes().substr(0, 33), Index{.magic = magic}.bytes()})
    expect_refused([&] { opened(bytes, ""); }, prefix() + ".idx", {"MMIDIDX", "34 bytes"});
  expect_index_refused({.version = 2}, 9, {"version 1", "found 2"});
  for (const std::uint8_t code : {1, 5, 6}) expect_index_refused({.code = code}, 17, {"code 4", "code 8"});
}

/// The index has 34 + 2 * 12 + 3 * 8 = 82 bytes.
TEST_F(MegatronDamages, OfTheNumbersOfSequencesAndDocumentsAreRejected) {
  expect_index_refused({.sequences = 1}, 18, {"82 bytes", "found 1 and 3"});
  expect_index_refused({.document_count = 4}, 18, {"82 bytes", "found 2 and 4"});
  // 12 times 2^62 and 8 times 2^61 are 0 in 64 bits, so without a check these would pass for 2 and 3.
  expect_index_refused({.sequences = (std::uint64_t{1} << 62) + 2}, 18, {"82 bytes"});
  expect_index_refused({.document_count = (std::uint64_t{1} << 61) + 3}, 18, {"82 bytes"});
  const std::string whole = Index().bytes();
  ASSERT_EQ(whole.size(), 82u);
  for (std::size_t size = 34; size < whole.size(); ++size) {
    expect_refused([&] { opened(whole.substr(0, size), "0123456789"); }, prefix() + ".idx: offset 18",
                   {std::to_string(size) + " bytes"});
  }
}

TEST_F(MegatronDamages, OfSequencesAreRejected) {
  expect_index_refused({.lengths = {-1, 2}}, 34, {"sequence 0", "found -1 ids"});
  expect_index_refused({.lengths = {6, 2}}, 34, {"sequence 0", "10 bytes", "found 6 ids from byte 0"});
  expect_index_refused({.lengths = {3, 3}}, 38, {"sequence 1", "found 3 ids from byte 6"});
  expect_index_refused({.pointers = {-2, 6}}, 34, {"sequence 0", "from byte -2"});
  expect_index_refused({.lengths = {3, 0}, .pointers = {0, 11}}, 38, {"sequence 1", "from byte 11"});
  expect_index_refused({.pointers = {0, INT64_MAX}}, 38, {"sequence 1"});
  expect_index_refused({.lengths = {INT32_MAX, 2}}, 34, {"sequence 0"});
  expect_index_refused({.pointers = {0, 5}}, 50, {"sequence 1", "a multiple of its ids' 2 bytes", "found 5"});
  // Five ids of 32 bits need 20 bytes.
  expect_index_refused({.code = 4, .lengths = {5, 0}, .pointers = {0, 0}}, 34, {"found 5 ids"});
}

TEST_F(MegatronDamages, OfDocumentsAreRejected) {
  expect_index_refused({.documents = {0, 3, 2}}, 66, {"from 0 to 2", "found 3"});
  expect_index_refused({.documents = {0, 2, 1}}, 74, {"from 2 to 2", "found 1"});
  expect_index_refused({.documents = {-1, 1, 2}}, 58, {"found -1"});
}

TEST_F(MegatronDamages, OfIdsAreRejectedWhenTheyAreRead) {
  const MegatronFile file =
      opened(Index{.code = 4, .pointers = {0, 12}}.bytes(), in_bytes<std::int32_t>({1, 2, 3, 4, -5}));
  EXPECT_EQ(file.read(0), (std::vector<std::int32_t>{1, 2, 3}));
  expect_refused([&] { file.read(1); }, prefix() + ".bin: offset 16", {"found -5"});
}

TEST_F(MegatronDamages, ABinThatBecomesShorterIsAnError) {
  const MegatronFile file = opened(Index().bytes(), in_bytes<std::uint16_t>({1, 2, 3, 4, 65535}));
  fs::resize_file(prefix() + ".bin", 2);
  expect_refused([&] { file.read(0); }, prefix() + ".bin: offset 0", {"expected 6 bytes, found 2"});
}

TEST_F(MegatronDamages, AFileThatIsMissingIsNamed) {
  EXPECT_NE(std::string(error_of([&] { MegatronFile{prefix()}; }).what()).find("a.idx"), std::string::npos);
  write_file_atomically(prefix() + ".idx", Index().bytes());
  EXPECT_NE(std::string(error_of([&] { MegatronFile{prefix()}; }).what()).find("a.bin"), std::string::npos);
}

/// Ids {1, 2, 3}, {4, 65535} have 16 bits each: the last id is at byte 8.
TEST_F(MegatronDamages, IdsBeyondTheVocabularyAreRejectedAsTheyAreRead) {
  opened(Index().bytes(), in_bytes<std::uint16_t>({1, 2, 3, 4, 65535}));
  const MegatronFile file(prefix(), 65535);
  std::vector<std::int32_t> part(2);
  file.read(0, 1, part);
  EXPECT_EQ(part, (std::vector<std::int32_t>{2, 3}));
  expect_refused([&] { file.read(1); }, prefix() + ".bin: offset 8", {"from 0 to 65534", "found 65535"});
}

TEST_F(MegatronDamages, NamesStandForTarsOrIndices) {
  using Names = std::vector<std::string>;
  opened(Index().bytes(), "0123456789");
  const std::string folder = fs::path(prefix()).parent_path().string();
  for (const std::string& name : {prefix(), prefix() + ".idx", prefix() + ".bin", folder}) {
    EXPECT_EQ(kind_of_shards(name), ShardKind::megatron) << name;
    EXPECT_EQ(expand_prefixes(name), Names{prefix()}) << name;
  }
  EXPECT_EQ(kind_of_shards("none.idx"), ShardKind::megatron);
  EXPECT_EQ(kind_of_shards("none-{0..9}.tar"), ShardKind::tar);
  EXPECT_EQ(kind_of_shards("none.csv"), std::nullopt);
  for (const char* name : {"p-0.idx", "p-1.idx", "p-0"}) write_file_atomically(folder + "/" + name, "");
  EXPECT_EQ(kind_of_shards(folder + "/p-{0..1}"), ShardKind::megatron);
  EXPECT_EQ(expand_prefixes(folder + "/p-{0..1}.idx"), (Names{folder + "/p-0", folder + "/p-1"}));
  EXPECT_EQ(expand_prefixes(folder), (Names{prefix(), folder + "/p-0", folder + "/p-1"}));
  // A file with exactly this name is other data, and a folder with a tar is a folder of tars.
  EXPECT_EQ(kind_of_shards(folder + "/p-0"), std::nullopt);
  write_file_atomically(folder + "/x.tar", "");
  EXPECT_EQ(kind_of_shards(folder), ShardKind::tar);
  fs::create_directory(folder + "/empty");
  expect_refused([&] { expand_prefixes(folder + "/empty"); }, folder + "/empty", {"*.idx", "none"});
}

}  // namespace megatron_test
}  // namespace dflop::testing
