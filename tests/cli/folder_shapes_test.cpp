// Records have the shapes that the processor in a transformers folder produces.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run.hpp"

namespace dflop {
namespace folder_shapes_test {

using nlohmann::json;
using testing::RunResult;
using testing::Sandbox;

const std::string kModel = std::string(DFLOP_SOURCE_DIR) + "/tests/golden/models/llava-onevision-qwen2";

struct FolderShapes : ::testing::Test {
  Sandbox sandbox;

  void SetUp() override {
    testing::write_all(
        sandbox.path("d.csv"),
        "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,"
        "n_texts,prompt_tokens,answer_tokens,text_tokens\n"
        "a,made,,image,,1,60x60,,,,,,1,,,7\n");
  }
  json sample(const std::string& options = "") {
    const RunResult result =
        sandbox.run("data --data d.csv --samples-out s.json --hf " + kModel + " " + options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(testing::read_all(sandbox.path("s.json")))["samples"][0];
  }
};

/// The folder's tiles have 30 pixels a side and patches of 6 pixels, so a tile is 5 x 5. A 60 x 60 picture
/// gives four tiles and the whole picture. The LLM gets 25 rows for the whole picture and 10 rows of 10 plus
/// a newline each: 110.
TEST_F(FolderShapes, UseTheFoldersTiles) {
  const json own = sample();
  EXPECT_EQ(own["encoder_sequences"], json::parse("[[5, 25, 625]]"));
  EXPECT_EQ(own["encoder_output_tokens"], 25 + 110);
  EXPECT_EQ(own["llm_tokens"], 25 + 110 + 7);
}

/// The family's rule has tiles of 384 pixels with 27 x 27 patches: one grid tile and the whole picture.
TEST_F(FolderShapes, UseTheRequestedRule) {
  EXPECT_EQ(sample("--preprocess llava-ov")["encoder_sequences"], json::parse("[[2, 729, 531441]]"));
}

}  // namespace folder_shapes_test
}  // namespace dflop
