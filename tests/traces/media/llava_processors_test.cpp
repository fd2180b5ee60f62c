// The processors of LLaVA 1.5, LLaVA-NeXT, and of Qwen-VL with other settings, against transformers 5.23.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/media/golden_io.hpp"
#include "traces/media/processors.hpp"
#include "traces/media/resize.hpp"

namespace dflop::testing {
namespace llava_processors_test {

const std::vector<std::pair<std::string, std::string>> kPictures = {{"wide", "wide.png"},
                                                                    {"photo", "photo.jpg"}};

// The settings of pixels_more.safetensors, as grids.json lists them.
constexpr std::string_view kEdge =
    R"({"size": {"shortest_edge": 30}, "crop_size": {"height": 30, "width": 30},
    "image_grid_pinpoints": [[30, 60], [60, 30], [60, 60], [90, 30], [30, 90]]})";
constexpr std::string_view kPadded = R"({"size": {"shortest_edge": 30}, "crop_size": 30, "do_pad": true})";
constexpr std::string_view kQwen3 = R"({"patch_size": 16, "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5], "size": {"shortest_edge": 1024, "longest_edge": 6144}})";

constexpr std::string_view kReleased =
    R"({"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}})";

std::vector<float> golden(const std::string& name) {
  return golden_tensor<float>("pixels_more.safetensors", name);
}

nlohmann::json golden_grids(const char* key) {
  return nlohmann::json::parse(read_text_file(golden_io("grids.json"))).at(key);
}

RgbImage random_image(Random& random, ImageSize size) {
  RgbImage image{size, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * size.width * size.height))};
  for (std::uint8_t& byte : image.pixels) byte = static_cast<std::uint8_t>(random.below(256));
  return image;
}

TEST(LlavaProcessors, EqualTransformersBitForBit) {
  const ClipProcessor clip = parse_clip_processor(kEdge, "clip");
  const ClipProcessor padded = parse_clip_processor(kPadded, "padded");
  const LlavaProcessor next = parse_llava_next_processor(kEdge, "next");
  for (const auto& [name, file] : kPictures) {
    const RgbImage image = golden_image(file);
    EXPECT_EQ(clip_tile(image, clip).pixels, golden("llava-1.5." + name));
    EXPECT_EQ(clip_tile(image, padded).pixels, golden("llava-1.5." + name + ".padded"));
    EXPECT_EQ(llava_tiles(image, next).pixels, golden("llava-next." + name));
    EXPECT_EQ((std::vector<std::int64_t>{image.size.height, image.size.width}),
              golden_tensor<std::int64_t>("pixels_more.safetensors", "llava-next." + name + ".size"));
  }
}

/// The golden data have every fifth value of a patch, with 2 frames, 3 colors and 16 x 16 pixels.
TEST(LlavaProcessors, QwenWithLargerPatchesEqualsTransformersBitForBit) {
  const QwenProcessor qwen = parse_qwen_processor(kQwen3, "qwen3");
  for (const auto& [name, file] : kPictures) {
    const RgbImage image = golden_image(file);
    const Patches patches = qwen_patches(std::span(&image, 1), qwen);
    std::vector<float> fifths;
    constexpr std::size_t kValues = 2 * 3 * 16 * 16;
    for (std::size_t i = 0; i < patches.rows.size(); ++i) {
      if (i % kValues % 5 == 0) fifths.push_back(patches.rows[i]);
    }
    EXPECT_EQ(fifths, golden("qwen3-vl." + name));
    EXPECT_EQ((std::vector{patches.grid.frames, patches.grid.rows, patches.grid.columns}),
              golden_tensor<std::int64_t>("pixels_more.safetensors", "qwen3-vl." + name + ".grid"));
  }
}

TEST(LlavaProcessors, GridsOfSizesEqualTransformers) {
  // Released files of Qwen2-VL permit up to 12,845,056 pixels, its class without a file only 1,003,520.
  QwenProcessor qwen2;
  qwen2.min_pixels = 3136;
  qwen2.max_pixels = 12'845'056;
  QwenProcessor qwen3;
  qwen3.patch = 16;
  qwen3.min_pixels = 65'536;
  qwen3.max_pixels = 16'777'216;
  const LlavaProcessor next = parse_llava_next_processor(kReleased, "next");
  const auto rows = golden_grids("pictures");
  ASSERT_EQ(rows.size(), 16U);
  for (const auto& row : rows) {
    const ImageSize size = {row["size"][1], row["size"][0]};
    SCOPED_TRACE(row["size"].dump());
    const auto sides = [&](const QwenProcessor& processor) {
      const QwenGrid grid = qwen_grid(size, processor);
      return nlohmann::json{grid.rows * processor.patch, grid.columns * processor.patch};
    };
    EXPECT_EQ(sides(qwen2), row["qwen2-vl"]);
    EXPECT_EQ(sides({}), row["qwen2-vl of no file"]);
    EXPECT_EQ(sides(qwen3), row["qwen3-vl"]);
    const ImageSize best = llava_pinpoint(size, next);
    EXPECT_EQ((nlohmann::json{best.height, best.width}), row["llava-next"]["best"]);
    EXPECT_EQ(llava_tile_count(size, next), row["llava-next"]["tiles"]);
    // 336 = 24 patches of 14.
    const LlavaGrid grid = llava_shown(size, best, 336, 24, 0);
    EXPECT_EQ(576 + grid.shown_rows * (grid.shown_columns + 1), row["llava-next"]["tokens"]);
  }
}

/// LLaVA-OneVision shrinks a grid beyond 1.21 times its number of tiles, LLaVA-NeXT none.
TEST(LlavaProcessors, OnlyALimitShrinksGrids) {
  const LlavaGrid whole = llava_shown({1000, 1000}, {1000, 1000}, 100, 10, 0);
  EXPECT_EQ(whole.shown_rows, 100);
  EXPECT_EQ(whole.shown_columns, 100);
  // 10,000 patches are four times 25 tiles of 100.
  const LlavaGrid shrunk = llava_shown({1000, 1000}, {1000, 1000}, 100, 10, 25);
  EXPECT_EQ(shrunk.shown_rows, 50);
  EXPECT_EQ(shrunk.rows, 100);
}

/// The tile is the middle of the picture at the size that transformers resizes to; of an odd remainder, the
/// upper left gets less.
TEST(LlavaProcessors, ClipCutsTheMiddleOfResizedPictures) {
  Random random(8);
  ClipProcessor processor;
  processor.scale = {1, {0, 0, 0}, {1, 1, 1}};  // values are bytes
  int compared = 0;
  for (const auto& row : golden_grids("pictures")) {
    if (!row.contains("llava-1.5 before the crop")) continue;
    const ImageSize size = {row["size"][1], row["size"][0]};
    const ImageSize large = {row["llava-1.5 before the crop"][1], row["llava-1.5 before the crop"][0]};
    const RgbImage image = random_image(random, size);
    const RgbImage resized = resize_bicubic(image, large);
    const Tiles tile = clip_tile(image, processor);
    ASSERT_EQ(tile.count, 1);
    ASSERT_EQ(tile.pixels.size(), 3U * 336 * 336);
    const std::int32_t top = (large.height - 336) / 2;
    const std::int32_t left = (large.width - 336) / 2;
    for (int i = 0; i < 500; ++i) {
      const auto y = static_cast<std::int32_t>(random.below(336));
      const auto x = static_cast<std::int32_t>(random.below(336));
      const auto c = static_cast<std::int32_t>(random.below(3));
      const auto from = static_cast<std::size_t>(3 * ((top + y) * large.width + left + x) + c);
      ASSERT_EQ(tile.pixels[static_cast<std::size_t>((c * 336 + y) * 336 + x)], resized.pixels[from])
          << row["size"].dump() << " " << y << " " << x;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 13 * 500);
}

/// With squares, nothing of a picture is lost. CLIP's mean color is (122, 116, 104).
TEST(LlavaProcessors, PaddingIsTheMeanColor) {
  ClipProcessor processor;
  processor.tile = 8;
  processor.pads = true;
  processor.scale.rescale = 1.0 / 255;
  const RgbImage image = {{4, 8}, std::vector<std::uint8_t>(3 * 4 * 8, 255)};
  const Tiles tile = clip_tile(image, processor);  // 2 columns of padding on both sides
  const std::array<int, 3> mean = {122, 116, 104};
  for (std::size_t c = 0; c < 3; ++c) {
    const auto value = [&](int byte) {
      return (static_cast<float>(byte * (1.0 / 255)) - static_cast<float>(processor.scale.mean[c])) /
             static_cast<float>(processor.scale.deviation[c]);
    };
    EXPECT_EQ(tile.pixels[c * 64 + 8], value(mean[c]));
    EXPECT_EQ(tile.pixels[c * 64 + 8 + 4], value(255));
    EXPECT_EQ(tile.pixels[c * 64 + 8 + 7], value(mean[c]));
  }
}

TEST(LlavaProcessors, PicturesThatGrowTooLargeAreRejected) {
  // A picture of 1 x 40,000 pixels would have 336 x 13,440,000.
  expect_refused([] { require_clip_size({40'000, 1}, {}); }, "", {"13440000x336", "40000x1"});
  EXPECT_NO_THROW(require_clip_size({1000, 1}, {}));
  ClipProcessor padded;
  padded.pads = true;
  expect_refused([&] { require_clip_size({40'000, 1}, padded); }, "", {"padded to a square", "40000x1"});
  EXPECT_NO_THROW(require_clip_size({1000, 1}, padded));
}

TEST(LlavaProcessorFiles, MissingKeysHaveTheDefaultsOfTheClass) {
  const ClipProcessor clip = parse_clip_processor("{}", "clip");
  EXPECT_EQ(clip.tile, 224);
  EXPECT_FALSE(clip.pads);
  const LlavaProcessor next = parse_llava_next_processor(kReleased, "next");
  EXPECT_EQ(next.tile, 336);
  EXPECT_TRUE(next.tiles_several);
  EXPECT_FALSE(parse_llava_processor("{}", "ov").tiles_several);
  EXPECT_EQ(next.pinpoints,
            (std::vector<ImageSize>{{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}}));
  EXPECT_EQ(next.scale.mean, clip.scale.mean);
  const ClipProcessor old =
      parse_clip_processor(R"({"size": 224, "crop_size": 224, "do_center_crop": true})", "o");
  EXPECT_EQ(old.tile, 224);
}

TEST(LlavaProcessorFiles, RejectByKey) {
  const auto refused = [](const std::string& json, const std::string& key,
                          std::initializer_list<std::string_view> words) {
    const std::string place = "p.json: key '" + key + "'";
    expect_refused([&] { parse_clip_processor(json, "p.json"); }, place, words);
    expect_refused([&] { parse_llava_next_processor(json, "p.json"); }, place, words);
  };
  refused(R"({"do_center_crop": false})", "do_center_crop", {"expected true", "cut to a square"});
  refused(R"({"image_processor_type": "SiglipImageProcessor"})", "image_processor_type", {"Siglip"});
  refused(R"({"size": {"height": 336, "width": 336}})", "size.shortest_edge", {"found none"});
  refused(R"({"crop_size": {"height": 336, "width": 224}})", "crop_size", {"a square", "224"});
  refused(R"({"size": 224, "crop_size": 336})", "crop_size", {"224"});
  for (const char* size : {"336", R"({"shortest_edge": 336})"}) {
    expect_refused([&] { parse_clip_processor(fmt::format(R"({{"size": {}}})", size), "p"); }, "p",
                   {"'crop_size'", "336", "224"});
  }
  expect_refused([] { parse_llava_next_processor("{}", "p"); }, "p", {"224x224", "672x336"});
  refused(R"({"resample": 2})", "resample", {"bicubic"});
  expect_refused([] { parse_llava_next_processor(R"({"image_grid_pinpoints": [[336, 600]]})", "p"); }, "p",
                 {"224x224", "600x336"});
  expect_refused([] { parse_llava_processor(R"({"do_center_crop": true})", "p"); }, "p: key 'do_center_crop'",
                 {"expected false"});
}

}  // namespace llava_processors_test
}  // namespace dflop::testing
