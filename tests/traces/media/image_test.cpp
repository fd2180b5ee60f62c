#include "traces/media/image.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/media/golden_io.hpp"
#include "traces/media/resize.hpp"

namespace dflop::testing {
namespace image_test {

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string chunk(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  const auto crc = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + body +
         big_endian(static_cast<std::uint32_t>(crc));
}

/// Builds a PNG file from rows, each preceded by its filter byte.
std::string png(std::uint32_t width, std::uint32_t height, char depth, char kind, const std::string& rows,
                const std::string& palette = "") {
  std::string packed(::compressBound(rows.size()), '\0');
  uLongf length = packed.size();
  ::compress(reinterpret_cast<Bytef*>(packed.data()), &length, reinterpret_cast<const Bytef*>(rows.data()),
             rows.size());
  packed.resize(length);
  return "\x89PNG\r\n\x1A\n" +
         chunk("IHDR", big_endian(width) + big_endian(height) + depth + kind + std::string(3, '\0')) +
         (palette.empty() ? "" : chunk("PLTE", palette)) + chunk("IDAT", packed) + chunk("IEND", "");
}

std::vector<int> pixels_of(const std::string& file) {
  const RgbImage image = decode_image(file, "a.png");
  return {image.pixels.begin(), image.pixels.end()};
}

using namespace std::string_literals;

TEST(Image, JpegIsDecodedToTheBytesOfPillow) {
  const RgbImage photo = golden_image("photo.jpg");
  EXPECT_EQ(photo.size, (ImageSize{75, 110}));
  EXPECT_EQ(photo.pixels, golden_tensor<std::uint8_t>("pixels.safetensors", "photo.decoded"));
}

TEST(Image, SizesComeFromHeaders) {
  const std::string photo = read_text_file(golden_io("photo.jpg"));
  EXPECT_EQ(image_size(photo, "a"), (ImageSize{75, 110}));
  const std::string wide = read_text_file(golden_io("wide.png"));
  EXPECT_EQ(image_size(wide, "a"), (ImageSize{97, 61}));
  // The signature, IHDR and the start of IDAT, which ends the headers, have 8 + 25 + 8 bytes.
  EXPECT_EQ(image_size(wide.substr(0, 41), "a"), (ImageSize{97, 61}));
}

TEST(Image, PngOfEveryKindBecomesRgb) {
  // One bit of gray: the bits 10 are white, black.
  EXPECT_EQ(pixels_of(png(2, 1, 1, 0, "\0\x80"s)), (std::vector{255, 255, 255, 0, 0, 0}));
  // Two bits: 01 is 85 of 255.
  EXPECT_EQ(pixels_of(png(1, 1, 2, 0, "\0\x40"s)), (std::vector{85, 85, 85}));
  // Gray of 16 bits: 200 stays, 256 is clipped to 255.
  EXPECT_EQ(pixels_of(png(2, 1, 16, 0, "\0\0\xC8\1\0"s)), (std::vector{200, 200, 200, 255, 255, 255}));
  // RGB of 16 bits loses its lower 8.
  EXPECT_EQ(pixels_of(png(1, 1, 16, 2, "\0\1\xFF\2\xFF\3\xFF"s)), (std::vector{1, 2, 3}));
  // The alpha channel is dropped, from gray and from RGB.
  EXPECT_EQ(pixels_of(png(1, 1, 8, 4, "\0\7\0"s)), (std::vector{7, 7, 7}));
  EXPECT_EQ(pixels_of(png(1, 1, 8, 6, "\0\1\2\3\0"s)), (std::vector{1, 2, 3}));
  // A palette of two colors with four bits per index: 1, 0.
  EXPECT_EQ(pixels_of(png(2, 1, 4, 3, "\0\x10"s, "\1\2\3\4\5\6"s)), (std::vector{4, 5, 6, 1, 2, 3}));
}

TEST(Image, EveryCutFileIsRejected) {
  for (const std::string name : {"photo.jpg", "wide.png"}) {
    const std::string bytes = read_text_file(golden_io(name));
    // The last bytes of a JPEG mark its end; without them the file may be truncated.
    for (std::size_t size = 0; size < bytes.size(); size += 37) {
      EXPECT_EQ(error_of([&] { decode_image(bytes.substr(0, size), name); }).kind(), ErrorKind::input)
          << name << " of " << size;
    }
    EXPECT_EQ(error_of([&] { decode_image(bytes.substr(0, bytes.size() - 2), name); }).kind(),
              ErrorKind::input);
  }
}

TEST(Image, ErrorsSayWhatWasFound) {
  expect_refused([] { decode_image("GIF89a", "a.gif"); }, "a.gif", {"expected a JPEG file", "47 49 46 38"});
  expect_refused([] { decode_image("", "a"); }, "a", {"an empty file"});
  const std::string wide = read_text_file(golden_io("wide.png"));
  expect_refused([&] { image_size(wide, "w.png", 97 * 61 - 1); }, "w.png", {"5916 pixels", "97x61"});
  EXPECT_NO_THROW(image_size(wide, "w.png", 97 * 61));
  std::string flipped = wide;
  flipped[100] = static_cast<char>(flipped[100] ^ 1);
  EXPECT_NE(std::string(error_of([&] { decode_image(flipped, "w.png"); }).what()).find("w.png: offset"),
            std::string::npos);
  // 10000 x 10000 pixels of one bit are 12.5 MB, which deflate compresses to at least 12,112 bytes.
  expect_refused([] { decode_image(png(10000, 10000, 1, 0, "\0"s), "b.png"); }, "b.png",
                 {"12112 bytes or more"});
}

TEST(Resize, EqualsPillowByteForByte) {
  // The golden tensor is every seventh pixel of every seventh row.
  const RgbImage large = resize_bicubic(golden_image("wide.png"), {448, 448});
  std::vector<std::uint8_t> found;
  for (std::size_t y = 0; y < 448; y += 7) {
    for (std::size_t x = 0; x < 448; x += 7) {
      const auto pixel = large.pixels.begin() + static_cast<std::ptrdiff_t>(3 * (448 * y + x));
      found.insert(found.end(), pixel, pixel + 3);
    }
  }
  EXPECT_EQ(found, golden_tensor<std::uint8_t>("pixels.safetensors", "wide.resized_448x448"));
}

TEST(Resize, KeepsASingleColorAtAnySize) {
  // Weights sum to one, so a single-color image keeps its color; rounding to 22 bits changes less than half a
  // unit.
  RgbImage one{{13, 7}, {}};
  for (int i = 0; i < 13 * 7; ++i) one.pixels.insert(one.pixels.end(), {10, 128, 255});
  for (const ImageSize size : {ImageSize{1, 1}, {13, 7}, {100, 3}, {2, 99}, {13, 20}, {5, 7}}) {
    const RgbImage resized = resize_bicubic(one, size);
    ASSERT_EQ(resized.pixels.size(), 3u * static_cast<unsigned>(size.width * size.height));
    for (std::size_t i = 0; i < resized.pixels.size(); i += 3) {
      EXPECT_EQ(resized.pixels[i], 10);
      EXPECT_EQ(resized.pixels[i + 1], 128);
      EXPECT_EQ(resized.pixels[i + 2], 255);
    }
  }
}

TEST(Resize, ResizesColumnsFirstWhenPillowDoes) {
  // 37 of 40 rows are dropped, and none of 3 columns. The expected values come from Pillow 13.0.0; if rows
  // were resized first, ten of the 36 would differ.
  RgbImage tall{{3, 40}, {}};
  for (int y = 0; y < 40; ++y) {
    for (int x = 0; x < 3; ++x) {
      for (int c = 0; c < 3; ++c) {
        tall.pixels.push_back(
            static_cast<std::uint8_t>(7 * x * x + 13 * y * y * y + 101 * c * y + 31 * x * y * c));
      }
    }
  }
  EXPECT_EQ(resize_bicubic(tall, {4, 3}).pixels,
            (std::vector<std::uint8_t>{97,  115, 136, 101, 116, 110, 104, 136, 101, 104, 161, 114,
                                       106, 132, 107, 109, 113, 137, 122, 111, 141, 136, 127, 115,
                                       120, 144, 140, 126, 140, 136, 120, 132, 128, 106, 124, 120}));
}

TEST(Resize, RejectsSizesThatWouldFillTheMemory) {
  const RgbImage one{{1, 1}, {1, 2, 3}};
  expect_refused([&] { resize_bicubic(one, {20000, 20000}); }, "", {"1x1 to 20000x20000"});
}

}  // namespace image_test
}  // namespace dflop::testing
