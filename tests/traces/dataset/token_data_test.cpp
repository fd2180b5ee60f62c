// Megatron's token ids become samples: packed, or a document each.
#include "traces/dataset/token_data.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "core/error.hpp"
#include "tests/core/input_error.hpp"
#include "tests/traces/dataset/shard_folder.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace token_data_test {

using testing::input_error;
using Documents = std::vector<std::vector<std::int32_t>>;

template <typename Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

struct TokenDataTest : ::testing::Test {
  testing::ShardFolder folder;
  ModelSpec model = parse_hugging_face(read_text_file(folder.path() + "/config.json"), folder.path());

  /// Writes documents with 32-bit ids, and returns the path without extension.
  std::string write(const std::string& name, const Documents& documents) const {
    std::string index("MMIDIDX\0\0", 9);
    append<std::uint64_t>(index, 1);
    append<std::uint8_t>(index, 4);
    append<std::uint64_t>(index, documents.size());
    append<std::uint64_t>(index, documents.size() + 1);
    std::string data;
    std::string pointers;
    for (const auto& document : documents) {
      append(index, static_cast<std::int32_t>(document.size()));
      append(pointers, static_cast<std::int64_t>(data.size()));
      for (const std::int32_t id : document) append(data, id);
    }
    index += pointers;
    for (std::size_t d = 0; d <= documents.size(); ++d) append(index, static_cast<std::int64_t>(d));
    const std::string prefix = folder.path() + "/" + name;
    write_file_atomically(prefix + ".idx", index);
    write_file_atomically(prefix + ".bin", data);
    return prefix;
  }

  /// Expects that a sample has these tokens, the last one only as a target.
  static void expect_tokens(const TokenData& data, const Sample& sample,
                            const std::vector<std::int32_t>& tokens) {
    const TokenSequence found = data.read(sample.id, true).tokens;
    EXPECT_EQ(found.ids, std::vector<std::int32_t>(tokens.begin(), tokens.end() - 1)) << sample.id;
    EXPECT_EQ(found.targets, std::vector<std::int32_t>(tokens.begin() + 1, tokens.end())) << sample.id;
    EXPECT_EQ(sample.llm_tokens, std::ssize(tokens) - 1);
    EXPECT_EQ(data.trained_tokens(sample), std::ssize(tokens) - 1);
    EXPECT_EQ(sample.encoder().tokens, 0);
  }
};

Documents random_documents(std::mt19937& random, int longest) {
  Documents documents(1 + random() % 6);
  for (auto& document : documents) {
    document.resize(random() % static_cast<unsigned>(longest + 1));
    for (std::int32_t& id : document) id = static_cast<std::int32_t>(random() % 600);
  }
  return documents;
}

/// With the text t of all concatenated documents, sample s of n rows is t[s n], ..., t[s n + n].
TEST_F(TokenDataTest, PackedSamplesAreSlicesOfOneText) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const Documents documents = random_documents(random, 9);
    std::vector<std::int32_t> text;
    for (const auto& document : documents) text.insert(text.end(), document.begin(), document.end());
    const std::size_t length = 1 + random() % 12;
    const TokenData data(model, write("t", documents), static_cast<std::int64_t>(length));
    std::size_t begin = 0;
    for (const Sample& sample : data.samples()) {
      const std::size_t end = std::min(begin + length + 1, text.size());
      expect_tokens(data, sample,
                    {text.begin() + static_cast<std::ptrdiff_t>(begin),
                     text.begin() + static_cast<std::ptrdiff_t>(end)});
      begin += length;
    }
    // All tokens except the first are targets: ceil((tokens - 1) / n) samples.
    const std::size_t targets = text.empty() ? 0 : text.size() - 1;
    EXPECT_EQ(data.samples().size(), (targets + length - 1) / length);
  }
}

/// All tokens of a document except the first are targets once. Documents with more than 5 rows are split.
TEST_F(TokenDataTest, DocumentsAreSamples) {
  std::mt19937 random(2);
  model.max_tokens = 5;
  for (int round = 0; round < 60; ++round) {
    const Documents documents = random_documents(random, 14);
    const TokenData data(model, write("t", documents), 0);
    std::size_t s = 0;
    std::size_t left_out = 0;
    for (const auto& document : documents) {
      left_out += document.size() < 2 ? 1 : 0;
      for (std::size_t begin = 0; begin + 1 < document.size(); begin += 5) {
        ASSERT_LT(s, data.samples().size());
        const std::size_t end = std::min(begin + 6, document.size());
        expect_tokens(data, data.samples()[s++],
                      {document.begin() + static_cast<std::ptrdiff_t>(begin),
                       document.begin() + static_cast<std::ptrdiff_t>(end)});
      }
    }
    EXPECT_EQ(s, data.samples().size());
    EXPECT_EQ(data.left_out().size(), left_out);
  }
}

/// Megatron appends a byte for each sequence, its mode, to the index of multimodal data.
TEST_F(TokenDataTest, ModesOfSequencesAreIgnoredWithANote) {
  const std::string prefix = write("t", {{1, 2, 3}, {4, 5}});
  EXPECT_EQ(TokenData(model, prefix, 0).note(), "");
  write_file_atomically(prefix + ".idx", read_text_file(prefix + ".idx") + std::string("\0\1", 2));
  const TokenData data(model, prefix, 0);
  ASSERT_EQ(data.samples().size(), 2u);
  expect_tokens(data, data.samples()[1], {4, 5});
  EXPECT_EQ(data.note(), prefix + ".idx has modes of sequences (multimodal=True), which dflop ignores");
}

TEST_F(TokenDataTest, FilesOfAFolderFollowEachOther) {
  std::filesystem::create_directory(folder.path() + "/ids");
  write("ids/b", {{1, 2, 3}});
  write("ids/a", {{4, 5}, {6, 7}});
  const TokenData data(model, folder.path() + "/ids", 0);
  ASSERT_EQ(data.samples().size(), 3U);
  EXPECT_EQ(data.samples()[2].id, "b/0");
  expect_tokens(data, data.samples()[1], {6, 7});
  expect_tokens(data, data.samples()[2], {1, 2, 3});
  const std::string whole = data.fingerprint();
  EXPECT_NE(TokenData(model, folder.path() + "/ids", 2).fingerprint(), whole);
  write("ids/b", {{1, 2, 3, 4}});
  EXPECT_NE(TokenData(model, folder.path() + "/ids", 0).fingerprint(), whole);
}

/// There may be more files than a process can have open.
TEST_F(TokenDataTest, FilesAreNotKeptOpen) {
  std::filesystem::create_directory(folder.path() + "/many");
  for (int i = 0; i < 60; ++i) write("many/" + std::to_string(i), {{1, 2, i}});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::open("/dev/null", O_RDONLY);  // the lowest free descriptor
  ::close(next);
  const rlimit few{static_cast<rlim_t>(next + 20), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const TokenData data(model, folder.path() + "/many", 0);
  for (const Sample& sample : data.samples()) EXPECT_EQ(data.read(sample.id, true).tokens.ids[1], 2);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

/// The model has 708 tokens. Id 708 of document 1 is at byte 4 * (2 + 1) = 12.
TEST_F(TokenDataTest, IdsOfAnotherVocabularyAreRejected) {
  const std::string prefix = write("t", {{1, 707}, {2, 708, 3}});
  const TokenData data(model, prefix, 0);
  expect_tokens(data, data.samples()[0], {1, 707});
  const std::string refusal = input_error([&] { static_cast<void>(data.read("t/1", true)); });
  EXPECT_NE(refusal.find(prefix + ".bin: offset 12"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("from 0 to 707"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("found 708"), std::string::npos) << refusal;
}

TEST_F(TokenDataTest, TokensOfPicturesAreRejected) {
  const auto picture = static_cast<std::int32_t>(model.architecture->image_token);
  const std::string prefix = write("t", {{1, 5}, {3, picture, 2}});  // the fourth id of four bytes
  const TokenData data(model, prefix, 0);
  const std::string refusal = input_error([&] { static_cast<void>(data.read("t/1", true)); });
  EXPECT_NE(refusal.find(prefix + ".bin: offset 12"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("expected ids of text"), std::string::npos) << refusal;
}

TEST_F(TokenDataTest, DamageIsRejectedBeforeTraining) {
  const std::string prefix = write("t", {{1, 2, 3}, {4, 5}});
  std::filesystem::resize_file(prefix + ".bin", 16);  // of 20 bytes
  const std::string refusal = input_error([&] { TokenData(model, prefix, 0); });
  EXPECT_NE(refusal.find("t.idx: offset 38"), std::string::npos) << refusal;  // the second length
  EXPECT_NE(refusal.find("expected sequence 1 within the 16 bytes of " + prefix + ".bin"), std::string::npos)
      << refusal;
  std::filesystem::remove(prefix + ".bin");
  EXPECT_NE(input_error([&] { TokenData(model, prefix, 0); }).find("t.bin"), std::string::npos);
}

/// Two sequences with all five ids each would have ten.
TEST_F(TokenDataTest, SequencesThatOverlapAreRejected) {
  const std::string prefix = write("t", {{1, 2, 3, 4, 5}, {}});
  std::string index = read_text_file(prefix + ".idx");
  index[38] = 5;  // the second length, of a sequence that starts at the end
  for (int byte = 50; byte < 58; ++byte)
    index[static_cast<std::size_t>(byte)] = 0;  // now it starts at the beginning
  write_file_atomically(prefix + ".idx", index);
  const std::string refusal = input_error([&] { TokenData(model, prefix, 0); });
  EXPECT_NE(refusal.find("t.idx: offset 38"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("expected at most 5 ids in all sequences"), std::string::npos) << refusal;
}

TEST_F(TokenDataTest, IdsOfNoSampleAreInternalErrors) {
  const TokenData data(model, write("t", {{1, 2, 3}}), 0);
  for (const char* id : {"t/1", "u/0", "t", ""})
    EXPECT_THROW(static_cast<void>(data.read(id, true)), Error) << id;
}

}  // namespace token_data_test
}  // namespace dflop
