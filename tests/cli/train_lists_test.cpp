// dflop train learns from JSON lists of conversations, and leaves out bad samples on request.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/shard_training.hpp"
#include "tests/traces/media/png_file.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace train_lists_test {

using nlohmann::json;
using testing::RunResult;

const std::string kIo = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/";

struct TrainLists : testing::ShardTraining {
  RunResult train(const std::string& data, const std::string& options) { return train_on(data, 2, options); }

  void SetUp() override {
    ShardTraining::SetUp();
    const std::string photo = testing::read_all(kIo + "photo.jpg");
    std::filesystem::create_directory(sandbox.path("media"));
    testing::write_all(sandbox.path("media/photo.jpg"), photo);
    testing::write_all(sandbox.path("media/wide.jpg"),
                       testing::read_all(kIo + "wide.png"));  // under another name
    testing::write_all(sandbox.path("media/half.jpg"), photo.substr(0, photo.size() / 2));
  }
  /// Returns a sample of a list, about a picture of the folder "media".
  static json sample(const std::string& picture, const std::string& answer,
                     const std::string& words = "<image>") {
    return {{"image", picture},
            {"conversations", {{{"from", "human"}, {"value", words}}, {{"from", "gpt"}, {"value", answer}}}}};
  }
  static json samples() {
    return {sample("photo.jpg", "a"), sample("wide.jpg", "b"), sample("photo.jpg", "c"),
            sample("wide.jpg", "d")};
  }
  void write_lines(const std::string& name, const json& list) {
    std::string text;
    for (const json& line : list) text += line.dump() + "\n";
    testing::write_all(sandbox.path(name), text);
  }
};

/// The same conversations and pictures in a tar have the same losses.
TEST_F(TrainLists, HaveTheLossesOfTars) {
  std::string tar;
  int number = 0;
  for (const json& line : samples()) {
    const std::string key = std::to_string(number++);
    tar += testing::tar_entry(key + ".jpg",
                              testing::read_all(sandbox.path("media/" + line["image"].get<std::string>())));
    tar += testing::tar_entry(key + ".json", line.dump());
  }
  testing::write_all(sandbox.path("a.tar"), tar + std::string(1024, '\0'));
  write_lines("a.jsonl", samples());
  testing::write_all(sandbox.path("a.json"), samples().dump(1));
  const std::vector<double> expected = losses(train("a.tar", "--steps 4"));
  EXPECT_EQ(losses(train("a.jsonl", "--steps 4 --media-root media")), expected);
  EXPECT_EQ(losses(train("a.json", "--steps 4 --media-root media")), expected);
}

/// A folder of frames is a video, of its frames in their order. Two ranks with a sample each have the losses
/// of one rank with both.
TEST_F(TrainLists, FoldersOfFramesAreVideos) {
  for (const char* video : {"media/a", "media/b"}) std::filesystem::create_directory(sandbox.path(video));
  const json a = {"a/1.png", "a/2.png"};
  const json b = {"b/1.png", "b/2.png", "b/3.png"};
  std::uint8_t gray = 0;
  for (const json& video : {a, b}) {
    for (const json& frame : video)
      testing::write_all(sandbox.path("media/" + frame.get<std::string>()),
                         testing::gray_png(64, 48, gray += 40));
  }
  const auto write_videos = [&](const std::string& name, const json& first, const json& second) {
    json list;
    for (const json& video : {first, second, second, first}) {
      list.push_back(sample("", "x", "<video>"));
      list.back()["video"] = video;
      list.back().erase("image");
    }
    write_lines(name, list);
  };
  write_videos("videos.jsonl", "a", "b");
  write_videos("frames.jsonl", a, b);
  write_videos("swapped.jsonl", a, {"b/1.png", "b/3.png", "b/2.png"});
  const std::string options = "--media-root media --steps 2 ";
  const RunResult alone = train("videos.jsonl", options);
  EXPECT_NE(alone.err.find("2 frames per second in the videos of 4 samples"), std::string::npos) << alone.err;
  const std::vector<double> expected = losses(alone);
  const std::vector<double> found = losses(train("videos.jsonl", options + "--dp 2"));
  ASSERT_EQ(expected.size(), 2U);
  ASSERT_EQ(found.size(), 2U);
  for (std::size_t step = 0; step < 2; ++step) EXPECT_NEAR(found[step], expected[step], 1e-4);
  EXPECT_LT(expected[1], expected[0]);
  EXPECT_EQ(losses(train("frames.jsonl", options)), expected);
  EXPECT_NE(losses(train("swapped.jsonl", options)), expected);
}

/// A resumed run must not turn pictures that it took as stored before.
TEST_F(TrainLists, ResumeWithTheSameRuleOfExif) {
  write_lines("a.jsonl", samples());
  const std::string options = "--media-root media --checkpoint c ";
  losses(train("a.jsonl", options + "--steps 1"));
  testing::expect_error(train("a.jsonl", options + "--steps 2 --resume --exif ignore"),
                        {"data with fingerprint", "as stored"});
  EXPECT_EQ(losses(train("a.jsonl", options + "--steps 2 --resume")).size(), 1U);
}

/// A run on a list with bad samples equals the run on the list without them, also after it resumes.
TEST_F(TrainLists, BadSamplesAreLeftOutOnRequest) {
  json with_bad = samples();
  with_bad.insert(with_bad.begin() + 1, sample("half.jpg", "e"));
  with_bad.insert(with_bad.begin() + 3, sample("photo.jpg", "f", "<image><image>"));
  write_lines("bad.jsonl", with_bad);
  write_lines("good.jsonl", samples());
  const std::string options = "--media-root media --steps 4 ";
  const std::vector<double> expected = losses(train("good.jsonl", options));
  const std::string skip = options + "--bad-samples skip:2 ";
  const RunResult result = train("bad.jsonl", skip + "--bad-samples-out out.jsonl");
  EXPECT_EQ(losses(result), expected);
  EXPECT_NE(result.err.find(
                "2 samples are left out, because the model cannot be trained on them (2 bad); the first: "
                "bad.jsonl: line 2, half.jpg"),
            std::string::npos)
      << result.err;
  std::istringstream lines(testing::read_all(sandbox.path("out.jsonl")));
  std::vector<json> named;
  for (std::string line; std::getline(lines, line);) named.push_back(json::parse(line));
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(named[0]["id"], "bad.jsonl/2");
  EXPECT_EQ(named[0]["bad"], true);
  EXPECT_EQ(named[1]["id"], "bad.jsonl/4");
  EXPECT_NE(named[1]["reason"].get<std::string>().find("expected 2 files"), std::string::npos);

  losses(train("bad.jsonl", "--media-root media --steps 2 --bad-samples skip --checkpoint c"));
  const std::vector<double> rest = losses(train("bad.jsonl", skip + "--checkpoint c --resume"));
  EXPECT_EQ(rest, std::vector<double>(expected.begin() + 2, expected.end()));
  // Without skip, the same list is an error; so are more bad samples than allowed.
  testing::expect_error(train("bad.jsonl", options), {"bad.jsonl: line 4", "expected 2 files"});
  testing::expect_error(
      train("bad.jsonl", options + "--bad-samples skip:1"),
      {"bad.jsonl: expected at most 1 bad samples (--bad-samples), found 2; the first: bad.jsonl: line 2, ",
       "; bad.jsonl: line 4: "});
  std::filesystem::remove(sandbox.path("out.jsonl"));
  testing::expect_error(train("bad.jsonl", options + "--bad-samples skip:0 --bad-samples-out out.jsonl"),
                        {"found 2"});
  EXPECT_TRUE(std::filesystem::exists(sandbox.path("out.jsonl")));
  // A repaired sample would change the run.
  std::filesystem::copy_file(sandbox.path("media/photo.jpg"), sandbox.path("media/half.jpg"),
                             std::filesystem::copy_options::overwrite_existing);
  testing::expect_error(train("bad.jsonl", skip + "--checkpoint c --resume"), {"data with fingerprint"});
}

/// The file has the bad samples of both data sets, also if there are too many of them.
TEST_F(TrainLists, NameBadSamplesOfBothDataSets) {
  json with_bad = samples();
  with_bad.push_back(sample("half.jpg", "e"));
  write_lines("train.jsonl", with_bad);
  with_bad.insert(with_bad.begin(), sample("none.jpg", "f"));
  write_lines("eval.jsonl", with_bad);
  const std::string options =
      "--media-root media --steps 1 --eval-data eval.jsonl --bad-samples-out out.jsonl --bad-samples ";
  const auto named = [&] {
    std::istringstream lines(testing::read_all(sandbox.path("out.jsonl")));
    std::vector<std::pair<std::string, std::string>> found;
    for (std::string line; std::getline(lines, line);) {
      const json sample = json::parse(line);
      found.emplace_back(sample["id"], sample.value("option", ""));
    }
    return found;
  };
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"train.jsonl/5", ""}, {"eval.jsonl/1", "--eval-data"}, {"eval.jsonl/6", "--eval-data"}};
  EXPECT_EQ(losses(train("train.jsonl", options + "skip")).size(), 1U);
  EXPECT_EQ(named(), expected);
  std::filesystem::remove(sandbox.path("out.jsonl"));
  testing::expect_error(train("train.jsonl", options + "skip:1"), {"eval.jsonl: expected at most 1 bad"});
  EXPECT_EQ(named(), expected);
}

TEST_F(TrainLists, SayWhichDataAreRead) {
  write_lines("a.jsonl", json::array({{{"instruction", "x"}, {"output", "y"}}}));
  testing::expect_error(train("a.jsonl", "--steps 1"), {"a.jsonl: line 1", "\"conversations\"", "OpenAI"});
  testing::write_all(sandbox.path("a.parquet"), "PAR1");
  testing::expect_error(train("a.parquet", "--steps 1"),
                        {"Parquet files are not read", "read_parquet('a.parquet')"});
  write_lines("b.jsonl", json::array({sample("https://a.b/c.jpg", "x")}));
  testing::expect_error(train("b.jsonl", "--steps 1"), {"b.jsonl: line 1", "a URL of https"});
  testing::write_all(sandbox.path("b.json"), json::array({samples()[0], {{"id", "x7"}, {"a", 1}}}).dump());
  testing::expect_error(train("b.json", "--steps 1 --media-root media"), {"b.json: element 1, id \"x7\": "});
  testing::write_all(sandbox.path("empty.jsonl"), "\n");
  testing::expect_error(train("empty.jsonl", "--steps 1"), {"empty.jsonl", "one in each line of a list"});
}

/// A model that cannot be trained at all needs no learning rate.
TEST_F(TrainLists, SayFirstThatAFamilyIsNotSupported) {
  write_lines("a.jsonl", samples());
  const std::string command = "train --hf hf --steps 1 --data a.jsonl";
  testing::expect_error(sandbox.run(command), {"learning-rate", "would spoil the weights of hf"});
  testing::write_all(sandbox.path("hf/config.json"), R"({"model_type": "gemma3"})");
  testing::expect_error(sandbox.run(command), {"model_type", "found \"gemma3\""});
}

TEST_F(TrainLists, RejectOptionsThatDoNotApply) {
  write_lines("a.jsonl", samples());
  const std::string tar = kIo + "shard-000000.tar";
  testing::expect_error(train(tar, "--steps 1 --media-root media"), {"media-root", "only to JSON lists"});
  testing::expect_error(train("a.jsonl", "--steps 1 --sequence-length 8"), {"only to token ids"});
  testing::expect_error(train("a.jsonl", "--steps 1 --media-root media --bad-samples often"),
                        {"skip:100", "often"});
  testing::expect_error(train("a.jsonl", "--steps 1 --media-root media --bad-samples skip:x"),
                        {"skip:100", "skip:x"});
  const std::string csv = std::string(DFLOP_SOURCE_DIR) + "/traces/datasets/vision_mix.csv";
  for (const char* command : {"data", "plan --cluster a100-80g:1 --gbs 2"}) {
    const std::string start = std::string(command) + " --model tiny-vlm --data " + csv;
    testing::expect_error(sandbox.run(start + " --bad-samples skip"),
                          {"bad-samples", "only to conversations"});
    testing::expect_error(sandbox.run(start + " --media-root ."), {"media-root", "only to JSON lists"});
  }
  testing::expect_error(train("a.jsonl", "--steps 1 --media-root media --log a.jsonl"),
                        {"also the file of '--data'"});
}

/// Commands other than train read lists, too.
TEST_F(TrainLists, MakeIndexesAndPlans) {
  write_lines("a.jsonl", samples());
  const RunResult data = sandbox.run("data --hf hf --data a.jsonl --media-root media --index index.json");
  EXPECT_EQ(data.exit_code, 0) << data.err;
  EXPECT_NE(data.out.find("4 samples"), std::string::npos) << data.out;
  const std::string plan = "plan --hf hf --cluster a100-80g:1 --gbs 2 --format json --data ";
  const RunResult from_list = sandbox.run(plan + "a.jsonl --media-root media");
  EXPECT_EQ(from_list.exit_code, 0) << from_list.err;
  EXPECT_EQ(sandbox.run(plan + "index.json").exit_code, 0);
}

}  // namespace train_lists_test
}  // namespace dflop
