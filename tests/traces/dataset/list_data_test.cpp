// Lists of conversations become the same samples as tars with the same contents.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/error.hpp"
#include "tests/core/input_error.hpp"
#include "tests/traces/dataset/shard_folder.hpp"
#include "traces/dataset/shard_data.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace list_data_test {

const std::string kIo = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/";

std::string line_about(const std::string& picture, const std::string& words = "<image>") {
  return R"({"image": ")" + picture + R"(", "conversations": [{"from": "human", "value": ")" + words +
         R"("}, {"from": "gpt", "value": "x"}]})";
}

struct ListData : ::testing::Test {
  testing::ShardFolder folder;
  ModelSpec model = parse_hugging_face(read_text_file(folder.path() + "/config.json"), folder.path());
  std::string photo = read_text_file(kIo + "photo.jpg");

  std::string write(const std::string& name, const std::string& text) const {
    std::string path = folder.path() + "/" + name;
    write_file_atomically(path, text);
    return path;
  }
  ShardData open(const std::string& list, const DatasetOptions& options = {}) const {
    return ShardData(model, folder.path(), list, options);
  }
  std::string refusal(const std::string& list, const DatasetOptions& options = {}) const {
    return testing::input_error([&] { open(list, options); });
  }
};

TEST_F(ListData, EqualsATarWithTheSameContents) {
  const ShardData tar = open(write("one.tar", testing::tar_of_sample(photo)));
  write("photo.jpg", photo);
  for (const std::string& list : {write("a.jsonl", "\n" + line_about("photo.jpg") + "\n"),
                                  write("a.json", "[\n" + line_about(folder.path() + "/photo.jpg") + "]")}) {
    const ShardData data = open(list);
    ASSERT_EQ(data.samples().size(), 1U);
    const std::string id = data.samples()[0].id;
    EXPECT_EQ(id, list.ends_with("l") ? "a.jsonl/2" : "a.json/0");
    const SampleContent found = data.read(id, true);
    const SampleContent expected = tar.read("one.tar/one", true);
    EXPECT_EQ(found.tokens.ids, expected.tokens.ids);
    EXPECT_EQ(found.tokens.targets, expected.tokens.targets);
    ASSERT_EQ(found.sequences.size(), 1U);
    const HostValues& values = found.sequences[0].values;  // f32
    ASSERT_EQ(values.size(), expected.sequences[0].values.size());
    EXPECT_EQ(std::memcmp(values.data(), expected.sequences[0].values.data(), 4 * values.size()), 0);
    EXPECT_EQ(data.samples()[0].llm(), tar.samples()[0].llm());
    EXPECT_EQ(data.trained_tokens(data.samples()[0]), tar.trained_tokens(tar.samples()[0]));
  }
}

TEST_F(ListData, FindsMediaInTheirFolder) {
  std::filesystem::create_directory(folder.path() + "/media");
  write("media/photo.jpg", photo);
  const std::string list = write("a.jsonl", line_about("photo.jpg"));
  DatasetOptions options;
  options.media_root = folder.path() + "/media";
  EXPECT_EQ(open(list, options).samples().size(), 1U);
  const std::string said = refusal(list);
  EXPECT_NE(said.find("a.jsonl: line 1, photo.jpg: cannot be opened: No such file"), std::string::npos)
      << said;
  EXPECT_NE(said.find(folder.path() + "/photo.jpg; --media-root"), std::string::npos) << said;
  options.media_root = folder.path() + "/none";
  EXPECT_NE(refusal(list, options).find("found no folder"), std::string::npos);
}

TEST_F(ListData, NamesTheLineOfAProblem) {
  write("photo.jpg", photo);
  const std::string good = line_about("photo.jpg") + "\n";
  const auto has = [&](const std::string& line, const std::string& expected) {
    const std::string said = refusal(write("a.jsonl", good + line + "\n"));
    EXPECT_NE(said.find("a.jsonl: line 2"), std::string::npos) << said;
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  };
  has("{\"image\": ", "a.jsonl: line 2");
  has(R"({"videos": ["a.mp4"], "messages": [{"role": "user", "content": "<video>"}, )"
      R"({"role": "assistant", "content": "x"}]})",
      "line 2, a.mp4: cannot be opened");
  write("no.jpg", "this is no picture");
  has(line_about("no.jpg"), "line 2, no.jpg: expected a JPEG file");
}

/// An error names an array's element, which the sample's own id follows. Ids that are no texts or numbers,
/// and damaged samples, have no id.
TEST_F(ListData, NamesTheElementAndIdOfAProblem) {
  const auto said = [&](const std::string& sample) {
    return refusal(write("a.json", R"([{"text": "x"}, )" + sample + "]"));
  };
  EXPECT_NE(said(R"({"id": "q7", "other": 1})").find("a.json: element 1, id \"q7\": "), std::string::npos)
      << said(R"({"id": "q7", "other": 1})");
  EXPECT_NE(said(R"({"id": 12, "text": 3})").find("a.json: element 1, id 12: "), std::string::npos)
      << said(R"({"id": 12, "text": 3})");
  EXPECT_NE(said(R"({"id": [12], "other": 1})").find("a.json: element 1: "), std::string::npos);
  EXPECT_NE(said(R"({"id": 12, "text" "x"})").find("a.json: element 1:1:21: "), std::string::npos)
      << said(R"({"id": 12, "text" "x"})");
}

/// The first samples are decoded on request.
TEST_F(ListData, DecodesAsManySamplesAsRequested) {
  write("photo.jpg", photo);
  write("half.jpg", photo.substr(0, photo.size() / 2));
  const std::string list = write("a.jsonl", line_about("photo.jpg") + "\n" + line_about("half.jpg") + "\n");
  DatasetOptions options;
  options.decoded = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  options.progress = [&](std::int64_t done, std::int64_t total) { calls.emplace_back(done, total); };
  EXPECT_EQ(open(list, options).samples().size(), 2U);
  EXPECT_EQ(calls, (std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 2}}));
  options.decoded = 2;
  EXPECT_NE(refusal(list, options).find("line 2, half.jpg"), std::string::npos);
  options.decoded = 1;
  options.skip_bad = true;
  EXPECT_EQ(open(list, options).left_out().size(), 0U);
}

/// A picture whose header is whole, but whose pixels are cut off, is found only by decoding it.
TEST_F(ListData, LeavesOutBadSamplesOnRequest) {
  write("photo.jpg", photo);
  write("half.jpg", photo.substr(0, photo.size() / 2));
  const std::string good = line_about("photo.jpg") + "\n";
  const std::string list =
      write("a.jsonl", good + line_about("half.jpg") + "\n" + good + line_about("none.jpg") + "\n" +
                           line_about("photo.jpg", "two <image><image>") + "\n{\n" + good);
  EXPECT_NE(refusal(list), "");
  DatasetOptions options;
  options.skip_bad = true;
  const ShardData data = open(list, options);
  ASSERT_EQ(data.samples().size(), 3U);
  EXPECT_EQ(data.samples()[0].id, "a.jsonl/1");
  EXPECT_EQ(data.samples()[1].id, "a.jsonl/3");
  EXPECT_EQ(data.samples()[2].id, "a.jsonl/7");
  ASSERT_EQ(data.left_out().size(), 4U);
  EXPECT_EQ(data.left_out()[0].id, "a.jsonl/2");
  EXPECT_NE(data.left_out()[0].why.find("line 2, half.jpg"), std::string::npos) << data.left_out()[0].why;
  EXPECT_EQ(data.left_out()[2].id, "a.jsonl/5");
  for (const LeftOutSample& sample : data.left_out()) EXPECT_TRUE(sample.is_bad);
}

/// The same holds for tars. The sample that has nothing to train on would also be left out without the
/// request.
TEST_F(ListData, LeavesOutBadSamplesOfTars) {
  const std::string end(1024, '\0');
  const std::string good = testing::tar_of_sample(photo);
  std::string tar = good.substr(0, good.size() - end.size());
  tar += testing::tar_entry("two.json", R"({"text": "x"})");
  tar += testing::tar_entry("three.jpg", photo) + testing::tar_entry("three.txt", "no json");
  DatasetOptions options;
  options.skip_bad = true;
  const ShardData data = open(write("a.tar", tar + end), options);
  EXPECT_EQ(data.samples().size(), 1U);
  ASSERT_EQ(data.left_out().size(), 2U);
  EXPECT_EQ(data.left_out()[0].id, "a.tar/two");
  EXPECT_FALSE(data.left_out()[0].is_bad);
  EXPECT_TRUE(data.left_out()[1].is_bad);
}

TEST_F(ListData, HasAFingerprintOfItsLines) {
  write("photo.jpg", photo);
  const std::string print = open(write("a.jsonl", line_about("photo.jpg"))).fingerprint();
  EXPECT_EQ(open(folder.path() + "/a.jsonl").fingerprint(), print);
  EXPECT_NE(open(write("a.jsonl", line_about("photo.jpg", "<image>?"))).fingerprint(), print);
  EXPECT_NE(open(write("b.jsonl", line_about("photo.jpg"))).fingerprint(), print);
}

TEST_F(ListData, HasEachFileNameOnce) {
  write("photo.jpg", photo);
  for (const char* name : {"p-0", "p-1"}) {
    std::filesystem::create_directory(folder.path() + "/" + name);
    write(std::string(name) + "/a.jsonl", line_about(folder.path() + "/photo.jpg"));
  }
  const std::string said = refusal(folder.path() + "/p-{0..1}/a.jsonl");
  EXPECT_NE(said.find("sample '1' occurs twice"), std::string::npos) << said;
}

}  // namespace list_data_test
}  // namespace dflop
