// dflop train learns from tars of conversations and pictures.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/shard_training.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace train_tars_test {

using nlohmann::json;
using testing::RunResult;

const std::string kIo = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/io/";

struct TrainTars : testing::ShardTraining {
  RunResult train(const std::string& options, const std::string& data = kIo + "shard-000000.tar") {
    return train_on(data, 2, options);
  }
  /// Writes a tar with one sample; see testing::tar_of_sample().
  void write_tar(const std::string& name, const std::string& picture, const std::string& extension = "jpg",
                 const std::string& words = "<image>") {
    testing::write_all(sandbox.path(name), testing::tar_of_sample(picture, extension, words));
  }
};

/// Three answers that differ in one token are soon memorized.
TEST_F(TrainTars, MemorizesItsAnswers) {
  const std::vector<double> found = losses(train("--steps 12 --log log.jsonl"));
  ASSERT_EQ(found.size(), 12U);
  EXPECT_NEAR(found.front(), std::log(708.0), 0.7);  // a uniform guess among this many tokens
  EXPECT_LT(found.back(), 0.5 * found.front());
  std::istringstream log(testing::read_all(sandbox.path("log.jsonl")));
  std::string line;
  ASSERT_TRUE(std::getline(log, line));
  EXPECT_GE(json::parse(line)["data_wait_s"].get<double>(), 0.0);
}

TEST_F(TrainTars, HasTheSameLossesUnderOtherPlans) {
  const std::vector<double> expected = losses(train("--steps 3 --clip-norm 1"));
  const std::vector<double> found =
      losses(train("--steps 3 --clip-norm 1 --tp 2 --pp 2 --microbatches 2 --data-threads 3"));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3 * expected[i]);
}

TEST_F(TrainTars, ResumesWithTheNextSamples) {
  const std::vector<double> whole = losses(train("--steps 6"));
  losses(train("--steps 3 --checkpoint c"));
  const std::vector<double> rest = losses(train("--steps 6 --checkpoint c --resume"));
  ASSERT_EQ(rest.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest[i], whole[3 + i]);
}

TEST_F(TrainTars, NamesADamagedPicture) {
  write_tar("no.tar", "this is no picture");
  testing::expect_error(train("--steps 1", "no.tar"), {"no.tar", "sample 'one'", ".jpg"});
  const std::string photo = testing::read_all(kIo + "photo.jpg");
  write_tar("half.tar", photo.substr(0, photo.size() / 2));  // with an intact header
  testing::expect_error(train("--steps 1", "half.tar"), {"half.tar", "sample 'one'", ".jpg"});
  write_tar("good.tar", photo);
  EXPECT_EQ(train("--steps 1", "good.tar").exit_code, 0);
}

/// Steps before an undecodable picture are not lost, and the run resumes once the picture is repaired.
TEST_F(TrainTars, ADamagedPictureCostsNoStep) {
  const std::string photo = testing::read_all(kIo + "photo.jpg");
  std::filesystem::create_directory(sandbox.path("t"));
  for (int i = 0; i < 6; ++i) write_tar("t/" + std::to_string(i) + ".tar", photo);
  write_tar("t/6.tar", photo.substr(0, photo.size() / 2));
  const RunResult result = train("--steps 4 --checkpoint c", "t");  // four steps of two include all seven
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("t/6.tar: sample 'one', .jpg"), std::string::npos) << result.err;
  const std::size_t said = result.err.find("the state after step ");
  ASSERT_NE(said, std::string::npos) << result.err;  // with this seed, the first step's batch is intact
  const auto last = std::stoul(result.err.substr(said + 21));
  write_tar("t/6.tar", photo);
  EXPECT_EQ(losses(train("--steps 4 --checkpoint c --resume", "t")).size(), 4U - last);
}

/// Synthetic contents are different data than the contents of files with the same shapes.
TEST_F(TrainTars, ResumesWithTheSameContents) {
  const std::string shard = kIo + "shard-000000.tar";
  ASSERT_EQ(sandbox.run("data --hf hf --index index.json --data " + shard).exit_code, 0);
  ASSERT_EQ(train("--steps 1 --checkpoint c", "index.json").exit_code, 0);
  testing::expect_error(train("--steps 2 --checkpoint c --resume"),
                        {"data with fingerprint", "with contents"});
}

TEST_F(TrainTars, SaysHowToConvertUnsupportedMedia) {
  write_tar("film.tar", "x", "mp4", "<video>");
  testing::expect_error(train("--steps 1", "film.tar"), {"film.tar: sample 'one', .mp4", "FFmpeg"});
  write_tar("web.tar", "x", "left.gif");
  testing::expect_error(train("--steps 1", "web.tar"), {".left.gif", "a picture as .jpg, .png or .webp"});
  write_tar("song.tar", "x", "mp3", "<audio>");
  testing::expect_error(train("--steps 1", "song.tar"), {".mp3", "a sound as .wav"});
  write_tar("none.tar", "x", "txt");
  testing::expect_error(train("--steps 1", "none.tar"),
                        {"expected 1 pictures, videos and sounds, one for each "
                         "placeholder in the conversation, found 0"});
}

/// Files inside a folder or pattern that another option names are protected too.
TEST_F(TrainTars, OverwritesNoFileOfItsDataOrModel) {
  const std::string photo = testing::read_all(kIo + "photo.jpg");
  std::filesystem::create_directory(sandbox.path("t"));
  for (const char* name : {"t/s-0.tar", "t/s-1.tar"}) write_tar(name, photo);
  std::filesystem::rename(sandbox.path("t/s-1.tar"), sandbox.path("t/s-2.tar"));
  const std::string tar = testing::read_all(sandbox.path("t/s-0.tar"));
  for (const char* option : {"--record", "--log"}) {
    testing::expect_error(train("--steps 1 " + std::string(option) + " t/s-0.tar", "t"),
                          {"also the file of '--data'"});
    testing::expect_error(train("--steps 1 " + std::string(option) + " t/../t/s-0.tar", "t/s-{0..2}.tar"),
                          {"also the file of '--data'"});
    testing::expect_error(train("--steps 1 " + std::string(option) + " hf/config.json", "t"),
                          {"is a file of the model folder 'hf'"});
  }
  EXPECT_TRUE(testing::read_all(sandbox.path("t/s-0.tar")) == tar);
  for (const char* again : {"", "again "}) {
    EXPECT_EQ(train(std::string("--steps 1 --log t/run.jsonl"), "t").exit_code, 0) << again;
    EXPECT_EQ(train(std::string("--steps 1 --log hf/run.jsonl"), "t").exit_code, 0) << again;
  }
  std::filesystem::create_symlink(sandbox.path("t/s-2.tar"), sandbox.path("link"));
  testing::expect_error(train("--steps 1 --record link", "t"), {"also the file of '--data'"});
}

TEST_F(TrainTars, SaysThatTarsArePackedOrHaveNoSample) {
  const std::string packed = gzip(testing::tar_of_sample(testing::read_all(kIo + "photo.jpg")));
  for (const char* name : {"packed.tar", "packed.tar.gz", "packed.tgz"}) {
    testing::write_all(sandbox.path(name), packed);
    testing::expect_error(train("--steps 1", name), {name, "compressed with gzip", "unpack it"});
  }
  testing::write_all(sandbox.path("empty.tar"), std::string(1024, '\0'));
  testing::expect_error(train("--steps 1", "empty.tar"), {"empty.tar", "expected samples, such as KEY.json"});
}

TEST_F(TrainTars, AnIndexPlansLikeTars) {
  const std::string shard = kIo + "shard-000000.tar";
  const RunResult data = sandbox.run("data --hf hf --index index.json --data " + shard);
  ASSERT_EQ(data.exit_code, 0) << data.err;
  const auto plan = [&](const std::string& from) {
    const RunResult result =
        sandbox.run("plan --hf hf --cluster a100-80g:1 --gbs 2 --format json --data " + from);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    json made = json::parse(result.out);
    made.erase("assumptions");  // they name the file
    return made;
  };
  EXPECT_EQ(plan("index.json"), plan(shard));
}

TEST_F(TrainTars, RejectsOptionsThatDoNotApplyToTars) {
  testing::expect_error(train("--steps 1 --assume-text 5"), {"--assume-text", "conversations"});
  testing::expect_error(train("--steps 1 --strict"), {"--strict", "conversations"});
  testing::expect_error(train("--steps 1 --chat morse"), {"--chat", "chatml"});
  testing::expect_error(train("--steps 1", "."), {"expected files *.tar"});
}

}  // namespace train_tars_test
}  // namespace dflop
