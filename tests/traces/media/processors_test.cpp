#include "traces/media/processors.hpp"

#include <gtest/gtest.h>

#include "core/support/random.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/media/golden_io.hpp"

namespace dflop::testing {
namespace processors_test {

const std::vector<std::pair<std::string, std::string>> kPictures = {{"wide", "wide.png"},
                                                                    {"photo", "photo.jpg"}};

/// The processors of tests/golden/io/io.json.
LlavaProcessor golden_llava() {
  LlavaProcessor processor;
  processor.tile = 30;
  processor.pinpoints.clear();
  for (int rows = 1; rows <= 3; ++rows) {
    for (int columns = 1; columns <= 3; ++columns) processor.pinpoints.push_back({30 * columns, 30 * rows});
  }
  return processor;
}

QwenProcessor golden_qwen() {
  QwenProcessor processor;
  processor.min_pixels = 784;
  processor.max_pixels = 9408;
  return processor;
}

InternvlProcessor golden_internvl() {
  InternvlProcessor processor;
  processor.tile = 48;
  processor.max_tiles = 6;
  return processor;
}

RgbImage random_image(Random& random, ImageSize size) {
  RgbImage image{size, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * size.width * size.height))};
  for (std::uint8_t& byte : image.pixels) byte = static_cast<std::uint8_t>(random.below(256));
  return image;
}

ImageSize random_size(Random& random) {
  return {static_cast<std::int32_t>(1 + random.below(150)), static_cast<std::int32_t>(1 + random.below(150))};
}

std::vector<float> golden(const std::string& name) {
  return golden_tensor<float>("pixels.safetensors", name);
}

TEST(Processors, EqualTransformersBitForBit) {
  for (const auto& [name, file] : kPictures) {
    const RgbImage image = golden_image(file);
    EXPECT_EQ(llava_tiles(image, golden_llava()).pixels, golden("llava-ov." + name));
    EXPECT_EQ(llava_tile_of_several(image, golden_llava()).pixels,
              golden("llava-ov." + name + ".of_several"));
    EXPECT_EQ(internvl_tiles(image, golden_internvl()).pixels, golden("internvl." + name));
    const Patches patches = qwen_patches(std::span(&image, 1), golden_qwen());
    EXPECT_EQ(patches.rows, golden("qwen2-vl." + name));
    const QwenGrid& grid = patches.grid;
    EXPECT_EQ((std::vector{grid.frames, grid.rows, grid.columns}),
              golden_tensor<std::int64_t>("pixels.safetensors", "qwen2-vl." + name + ".grid"));
  }
}

TEST(Processors, ShapesFromSizesEqualShapesOfPictures) {
  Random random(5);
  for (int i = 0; i < 60; ++i) {
    const RgbImage image = random_image(random, random_size(random));
    const Tiles llava = llava_tiles(image, golden_llava());
    EXPECT_EQ(llava.count, llava_tile_count(image.size, golden_llava()));
    EXPECT_EQ(std::ssize(llava.pixels), llava.count * 3 * 30 * 30);
    const Tiles internvl = internvl_tiles(image, golden_internvl());
    EXPECT_EQ(internvl.count, internvl_tile_count(image.size, golden_internvl()));
    EXPECT_EQ(std::ssize(internvl.pixels), internvl.count * 3 * 48 * 48);
    const Patches qwen = qwen_patches(std::span(&image, 1), golden_qwen());
    EXPECT_EQ(qwen.grid, qwen_grid(image.size, golden_qwen()));
    EXPECT_EQ(std::ssize(qwen.rows), qwen.grid.patches() * 3 * 2 * 14 * 14);
    EXPECT_EQ(qwen.grid.rows % 2 + qwen.grid.columns % 2, 0);
  }
}

TEST(Processors, FramesOfAVideoAreConcatenated) {
  // Three frames a, b, c make patches of (a, b) and (c, c). A patch of (c, c) equals the one of image c. A
  // patch of (a, b) has a's half of a's patch and b's half of b's patch.
  Random random(6);
  const std::vector<RgbImage> frames = {random_image(random, {60, 60}), random_image(random, {60, 60}),
                                        random_image(random, {60, 60})};
  const auto alone = [&](std::size_t i) {
    return qwen_patches(std::span(&frames[i], 1), golden_qwen()).rows;
  };
  const Patches video = qwen_patches(frames, golden_qwen());
  EXPECT_EQ(video.grid, (QwenGrid{2, 4, 4}));
  const std::vector<float> a = alone(0);
  const std::vector<float> b = alone(1);
  const std::vector<float> c = alone(2);
  ASSERT_EQ(video.rows.size(), 2 * a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(video.rows[i], i / (14 * 14) % 2 == 0 ? a[i] : b[i]) << i;
    ASSERT_EQ(video.rows[a.size() + i], c[i]) << i;
  }
}

TEST(Processors, RejectUnsupportedInputs) {
  expect_refused([] { qwen_grid({2010, 10}, {}); }, "", {"200 times", "2010x10"});
  EXPECT_NO_THROW(qwen_grid({2000, 10}, {}));
  expect_refused([] { qwen_patches({}, {}); }, "", {"found none"});
  Random random(7);
  const std::vector<RgbImage> frames = {random_image(random, {30, 30}), random_image(random, {31, 30})};
  expect_refused([&] { qwen_patches(frames, {}); }, "", {"frames of one size, found 31x30 and 30x30"});
  LlavaProcessor none;
  none.pinpoints.clear();
  expect_refused([&] { llava_tile_count({5, 6}, none); }, "", {"5x6"});
  EXPECT_EQ(error_of([] {
              llava_tile_of_several({{20000, 1}, std::vector<std::uint8_t>(60000)}, {});
            }).kind(),
            ErrorKind::input);
}

TEST(ProcessorFiles, OverrideOnlyTheirKeys) {
  const LlavaProcessor llava = parse_llava_processor(
      R"({"image_processor_type": "LlavaOnevisionImageProcessor", "size": {"height": 30, "width": 30},
          "image_grid_pinpoints": [[30, 60]], "image_mean": [0.5, 0.4, 0.3], "resample": 3, "crop_size": null})",
      "a.json");
  EXPECT_EQ(llava.tile, 30);
  EXPECT_EQ(llava.pinpoints, (std::vector<ImageSize>{{60, 30}}));
  EXPECT_EQ(llava.scale.mean, (std::array{0.5, 0.4, 0.3}));
  EXPECT_EQ(llava.scale.deviation, LlavaProcessor{}.scale.deviation);
  const QwenProcessor qwen = parse_qwen_processor(
      R"({"size": {"shortest_edge": 100, "longest_edge": 5000}, "max_pixels": 6000, "patch_size": 16})", "a");
  EXPECT_EQ(qwen.min_pixels, 100);
  EXPECT_EQ(qwen.max_pixels, 6000);
  EXPECT_EQ(qwen.patch, 16);
  const InternvlProcessor internvl =
      parse_internvl_processor(R"({"max_patches": 4, "crop_to_patches": false})", "a");
  EXPECT_EQ(internvl.max_tiles, 4);
  EXPECT_EQ(internvl_tile_count({500, 100}, internvl),
            5);  // 4 x 1 and a thumbnail, whatever crop_to_patches says
}

TEST(ProcessorFiles, RejectByKey) {
  const auto refused = [](const std::string& json, const std::string& key,
                          std::initializer_list<std::string_view> words) {
    expect_refused([&] { parse_llava_processor(json, "p.json"); }, "p.json: key '" + key + "'", words);
  };
  refused(R"({"resample": 2})", "resample", {"bicubic", "2"});
  for (const std::string key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) {
    refused("{\"" + key + "\": false}", key, {"expected true"});
  }
  refused(R"({"do_center_crop": true})", "do_center_crop", {"expected false"});
  refused(R"({"image_processor_type": "CLIPImageProcessor"})", "image_processor_type",
          {"CLIPImageProcessor"});
  refused(R"({"size": {"height": 30, "width": 31}})", "size", {"31x30"});
  refused(R"({"image_std": [1, 1, 0]})", "image_std[2]", {"0"});
  refused(R"({"image_grid_pinpoints": [[384, 384, 1]]})", "image_grid_pinpoints[0]", {"[height, width]"});
  EXPECT_EQ(error_of([] { parse_llava_processor(R"({"image_grid_pinpoints": [[385, 384]]})", "p"); }).kind(),
            ErrorKind::input);
  EXPECT_EQ(error_of([] { parse_qwen_processor(R"({"min_pixels": 9, "max_pixels": 8})", "p"); }).kind(),
            ErrorKind::input);
  expect_refused([] { parse_internvl_processor(R"({"min_patches": 13})", "p"); }, "p: key 'min_patches'",
                 {"12", "13"});
}

}  // namespace processors_test
}  // namespace dflop::testing
