// The positions of several videos and a picture in one sample equal transformers' for each family of Qwen.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/traces/dataset/shard_folder.hpp"
#include "tests/traces/media/png_file.hpp"
#include "traces/dataset/shard_data.hpp"
#include "traces/families/hugging_face.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace video_positions_test {

using testing::gray_png;

/// Returns each run of text as its first and last position, and each slot of a picture or video as the
/// positions in time, height and width of its first and last token.
std::string outline(const SampleContent& content) {
  const TokenSequence& tokens = content.tokens;
  std::vector<bool> is_text(static_cast<std::size_t>(tokens.rows));
  for (const std::int32_t place : tokens.id_places) is_text[static_cast<std::size_t>(place)] = true;
  auto slot = content.sequences.begin();
  std::string all;
  for (std::size_t first = 0, end = 0; first < is_text.size(); first = end) {
    if (is_text[first]) {
      while (end < is_text.size() && is_text[end]) ++end;
    } else {
      end = first + static_cast<std::size_t>(slot++->rows / 4);  // 2 x 2 patches are a token
    }
    const auto range = [&](std::size_t axis) {
      return std::to_string(tokens.positions[3 * first + axis]) + "-" +
             std::to_string(tokens.positions[3 * (end - 1) + axis]);
    };
    all += is_text[first] ? range(0) : "[" + range(0) + ", " + range(1) + ", " + range(2) + "]";
    all += " ";
  }
  return all;
}

/// 30 frames at 2.4 a second, of which Qwen3-VL takes 25 and the others 24 (Omni calls them 2 a second), a
/// picture, and 5 frames that were sampled at 3 a second. tests/golden/make_video_positions.py prints the
/// expected positions, which transformers 5.24 computes.
TEST(VideoPositions, EqualTransformers) {
  const std::pair<const char*, const char*> expected[] = {
      {"qwen2-vl",
       "0-1 [2-2, 2-11, 2-15] [3-3, 2-11, 2-15] [4-4, 2-11, 2-15] [5-5, 2-11, 2-15] [6-6, 2-11, 2-15] "
       "[7-7, 2-11, 2-15] [8-8, 2-11, 2-15] [9-9, 2-11, 2-15] [10-10, 2-11, 2-15] [11-11, 2-11, 2-15] "
       "[12-12, 2-11, 2-15] [13-13, 2-11, 2-15] 16-18 [19-19, 19-23, 19-26] 27-29 [30-30, 30-41, 30-40] "
       "[31-31, 30-41, 30-40] [32-32, 30-41, 30-40] 42-44 "},
      {"qwen2.5-vl",
       "0-1 [2-2, 2-11, 2-15] [4-4, 2-11, 2-15] [6-6, 2-11, 2-15] [8-8, 2-11, 2-15] [10-10, 2-11, 2-15] "
       "[12-12, 2-11, 2-15] [14-14, 2-11, 2-15] [16-16, 2-11, 2-15] [18-18, 2-11, 2-15] [20-20, 2-11, "
       "2-15] [22-22, 2-11, 2-15] [24-24, 2-11, 2-15] 16-18 [19-19, 19-23, 19-26] 27-29 [30-30, 30-41, "
       "30-40] [31-31, 30-41, 30-40] [32-32, 30-41, 30-40] 42-44 "},
      {"qwen3-vl",
       "0-12 [13-13, 13-14, 13-15] 16-27 [28-28, 28-29, 28-30] 31-42 [43-43, 43-44, 43-45] 46-57 "
       "[58-58, 58-59, 58-60] 61-72 [73-73, 73-74, 73-75] 76-87 [88-88, 88-89, 88-90] 91-102 [103-103, "
       "103-104, 103-105] 106-117 [118-118, 118-119, 118-120] 121-132 [133-133, 133-134, 133-135] "
       "136-147 [148-148, 148-149, 148-150] 151-163 [164-164, 164-165, 164-166] 167-179 [180-180, "
       "180-181, 180-182] 183-195 [196-196, 196-197, 196-198] 199-202 [203-203, 203-209, 203-212] "
       "213-226 [227-227, 227-232, 227-232] 233-244 [245-245, 245-250, 245-250] 251-254 "},
      {"qwen2.5-omni-thinker",
       "0-1 [2-2, 2-11, 2-15] [6-6, 2-11, 2-15] [10-10, 2-11, 2-15] [14-14, 2-11, 2-15] [18-18, 2-11, "
       "2-15] [22-22, 2-11, 2-15] [26-26, 2-11, 2-15] [30-30, 2-11, 2-15] [34-34, 2-11, 2-15] [38-38, "
       "2-11, 2-15] [42-42, 2-11, 2-15] [46-46, 2-11, 2-15] 47-49 [50-50, 50-54, 50-57] 58-60 [61-61, "
       "61-72, 61-71] [63-63, 61-72, 61-71] [66-66, 61-72, 61-71] 73-75 "}};
  for (const auto& [name, positions] : expected) {
    const testing::ShardFolder folder(name);
    const auto write = [&](const std::string& file, const std::string& bytes) {
      std::string path = folder.path() + "/" + file;
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
      write_file_atomically(path, bytes);
      return path;
    };
    for (int i = 0; i < 30; ++i) write("a/" + std::to_string(i) + ".png", gray_png(64, 48, 1));
    for (int i = 0; i < 5; ++i) write("b/" + std::to_string(i) + ".png", gray_png(90, 100, 1));
    write("c.png", gray_png(90, 60, 1));
    const std::string list = write(
        "a.jsonl", R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )"
                   R"({"type": "video", "video": "a", "fps": 2.4}, {"type": "text", "text": "b"}, )"
                   R"({"type": "image", "image": "c.png"}, {"type": "text", "text": "c"}, )"
                   R"({"type": "video", "video": "b", "sample_fps": 3}, {"type": "text", "text": "d"}]}, )"
                   R"({"role": "assistant", "content": "x"}]})");
    ModelSpec model = parse_hugging_face(read_text_file(folder.path() + "/config.json"), folder.path());
    model.max_tokens = 100'000;
    DatasetOptions options;
    options.chat_form = "plain";
    const ShardData data(model, folder.path(), list, options);
    ASSERT_EQ(data.samples().size(), 1U) << name;
    EXPECT_EQ(outline(data.read("a.jsonl/1", false)), positions) << name;
  }
}

}  // namespace video_positions_test
}  // namespace dflop
