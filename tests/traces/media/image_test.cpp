#include "traces/media/image.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/media/golden_io.hpp"
#include "tests/traces/media/png_file.hpp"
#include "traces/media/resize.hpp"

namespace dflop::testing {
namespace image_test {

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
  EXPECT_EQ(pixels_of(png_file(2, 1, 1, 0, "\0\x80"s)), (std::vector{255, 255, 255, 0, 0, 0}));
  // Two bits: 01 is 85 of 255.
  EXPECT_EQ(pixels_of(png_file(1, 1, 2, 0, "\0\x40"s)), (std::vector{85, 85, 85}));
  // Gray of 16 bits: 200 stays, 256 is clipped to 255.
  EXPECT_EQ(pixels_of(png_file(2, 1, 16, 0, "\0\0\xC8\1\0"s)), (std::vector{200, 200, 200, 255, 255, 255}));
  // RGB of 16 bits loses its lower 8.
  EXPECT_EQ(pixels_of(png_file(1, 1, 16, 2, "\0\1\xFF\2\xFF\3\xFF"s)), (std::vector{1, 2, 3}));
  // The alpha channel is dropped, from gray and from RGB.
  EXPECT_EQ(pixels_of(png_file(1, 1, 8, 4, "\0\7\0"s)), (std::vector{7, 7, 7}));
  EXPECT_EQ(pixels_of(png_file(1, 1, 8, 6, "\0\1\2\3\0"s)), (std::vector{1, 2, 3}));
  // A palette of two colors with four bits per index: 1, 0.
  EXPECT_EQ(pixels_of(png_file(2, 1, 4, 3, "\0\x10"s, "\1\2\3\4\5\6"s)), (std::vector{4, 5, 6, 1, 2, 3}));
}

/// Returns EXIF data with an orientation.
std::string exif_of(unsigned orientation, bool is_little) {
  const auto value = static_cast<char>(orientation);
  if (is_little) {
    return "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"s + value + std::string(7, '\0');
  }
  return "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0"s + value + std::string(6, '\0');
}

/// Returns a JPEG with a segment of metadata behind its first marker.
std::string with_segment(const std::string& jpeg, const std::string& data) {
  const std::size_t size = data.size() + 2;
  return jpeg.substr(0, 2) + "\xFF\xE1" + static_cast<char>(size >> 8) + static_cast<char>(size & 0xFF) +
         data + jpeg.substr(2);
}

/// The rows of the stored picture are "1 2 3" and "4 5 6". Orientation 6, for example, was stored with the
/// upright picture's top at the right: turning it clockwise gives the columns 4 1, 5 2 and 6 3.
TEST(Image, PicturesAreTurnedUpright) {
  const std::string rows = "\0\1\2\3\0\4\5\6"s;
  const std::vector<std::pair<ImageSize, std::string>> expected = {
      {{3, 2}, "123456"}, {{3, 2}, "321654"}, {{3, 2}, "654321"}, {{3, 2}, "456123"},
      {{2, 3}, "142536"}, {{2, 3}, "415263"}, {{2, 3}, "635241"}, {{2, 3}, "362514"}};
  for (unsigned orientation = 0; orientation <= 9; ++orientation) {
    for (const bool is_little : {false, true}) {
      const std::string file = png_file(3, 2, 8, 0, rows, "", exif_of(orientation, is_little));
      const auto& [size, digits] = expected[orientation >= 1 && orientation <= 8 ? orientation - 1 : 0];
      const RgbImage image = decode_image(file, "a.png");
      EXPECT_EQ(image.size, size) << orientation;
      EXPECT_EQ(image_size(file, "a.png"), size) << orientation;
      std::string found;
      for (std::size_t i = 0; i < image.pixels.size(); i += 3)
        found += static_cast<char>('0' + image.pixels[i]);
      EXPECT_EQ(found, digits) << orientation;
    }
  }
}

/// Pillow 13.0.0 gives the size 2 x 3 for all of these: EXIF and XMP data behind the pixels, of two EXIF data
/// the last, and XMP data if EXIF data have no orientation.
TEST(Image, PngMetadataBehindPixelsTurn) {
  const std::string plain = png_file(3, 2, 8, 0, "\0\1\2\3\0\4\5\6"s);
  const std::string upside_down = png_file(3, 2, 8, 0, "\0\1\2\3\0\4\5\6"s, "", exif_of(3, true));
  const std::string exif = png_chunk("eXIf", exif_of(6, false));
  const std::string xmp = png_chunk("iTXt", "XML:com.adobe.xmp\0\0\0\0\0"s + R"(<a tiff:Orientation="6"/>)");
  const std::string none = png_chunk("eXIf", exif_of(6, false).substr(0, 8));
  const auto with = [](const std::string& png, const std::string& chunks) {
    return png.substr(0, png.size() - 12) + chunks + png.substr(png.size() - 12);
  };
  for (const std::string& file :
       {with(plain, exif), with(upside_down, exif), with(plain, xmp), with(plain, none + xmp)}) {
    const RgbImage image = decode_image(file, "a.png");
    EXPECT_EQ(image.size, (ImageSize{2, 3}));
    EXPECT_EQ(image.pixels[0], 4);
    const std::string headers =
        png_headers(file.size(), [&](std::uint64_t offset, char* to, std::size_t count) {
          ASSERT_LE(offset + count, file.size());
          file.copy(to, count, offset);
        });
    EXPECT_LT(headers.size(), file.size());
    EXPECT_EQ(image_size(headers, "a.png"), image.size);
    EXPECT_EQ(image_size(headers, "a.png", kMaxPixels, ExifRule::ignore), (ImageSize{3, 2}));
  }
  for (std::size_t size = 33; size < plain.size(); ++size) {  // after the first chunk
    const std::string headers = png_headers(size, [&](std::uint64_t offset, char* to, std::size_t count) {
      ASSERT_LE(offset + count, size);
      plain.copy(to, count, offset);
    });
    if (size >= 41) {
      EXPECT_EQ(image_size(headers, "a.png"), (ImageSize{3, 2})) << size;
    }
  }
}

/// Writers split the pixels into chunks. Headers keep the first of these, without its data, no chunk of over
/// 1 MiB, and nothing behind the end.
TEST(Image, HeadersOfPngAreShort) {
  const auto headers_of = [](const std::string& file) {
    return png_headers(file.size(), [&](std::uint64_t offset, char* to, std::size_t count) {
      ASSERT_LE(offset + count, file.size());
      file.copy(to, count, offset);
    });
  };
  const std::string whole = png_file(3, 2, 8, 0, "\0\1\2\3\0\4\5\6"s);
  const std::size_t pixels = 33;  // after the signature and IHDR
  const std::string end = png_chunk("IEND", "");
  const std::string packed = whole.substr(pixels + 8, whole.size() - end.size() - 4 - (pixels + 8));
  const std::string turn = png_chunk("eXIf", exif_of(6, false));
  std::string split = whole.substr(0, pixels);
  for (const char byte : packed) split += png_chunk("IDAT", std::string(1, byte));
  const std::string headers = headers_of(whole.substr(0, whole.size() - end.size()) + turn + end);
  EXPECT_EQ(headers_of(split + turn + end), headers);
  EXPECT_EQ(image_size(headers, "a.png"), (ImageSize{2, 3}));
  EXPECT_EQ(decode_image(split + turn + end, "a.png").pixels,
            decode_image(whole.substr(0, pixels) + turn + whole.substr(pixels), "a.png").pixels);
  const std::string large = png_chunk("teXt", std::string(1 << 20, 'x'));
  EXPECT_EQ(headers_of(split + large + turn + end), headers);
  // Pillow reads nothing behind the end, so the picture is not turned.
  EXPECT_EQ(headers_of(whole + turn), headers_of(whole));
  EXPECT_EQ(image_size(whole + turn, "a.png"), (ImageSize{3, 2}));
}

/// The checksums are those of zlib.crc32() over the pixels of Pillow 13.0.0:
/// ImageOps.exif_transpose(Image.open(file)).convert("RGB"). Pillow reads XMP data if EXIF data have no
/// orientation.
TEST(Image, JpegIsTurnedToTheBytesOfPillow) {
  const std::string photo = read_text_file(golden_io("photo.jpg"));
  const std::vector<std::uint32_t> expected = {3280928948, 3485399565, 2269022798, 3817040694,
                                               1557432693, 4141509027, 1649975771, 548731204};
  for (unsigned orientation = 1; orientation <= 8; ++orientation) {
    const std::string digit = std::to_string(orientation);
    const std::string xmp = "http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation=\""s + digit + "\"/>";
    const std::string element =
        "http://ns.adobe.com/xap/1.0/\0<tiff:Orientation>"s + digit + "</tiff:Orientation>";
    for (const std::string& data : {"Exif\0\0"s + exif_of(orientation, true), xmp, element}) {
      const std::string file = with_segment(photo, data);
      const RgbImage image = decode_image(file, "a.jpg");
      EXPECT_EQ(::crc32(0, image.pixels.data(), static_cast<uInt>(image.pixels.size())),
                expected[orientation - 1])
          << orientation;
      EXPECT_EQ(image.size, orientation < 5 ? (ImageSize{75, 110}) : (ImageSize{110, 75}));
      EXPECT_EQ(image_size(file, "a.jpg"), image.size);
    }
  }
}

/// EXIF data that are cut off anywhere, or point anywhere, leave the picture upright or turn it, and do no
/// harm.
TEST(Image, DamagedExifDataAreIgnored) {
  const std::string photo = read_text_file(golden_io("photo.jpg"));
  const std::string exif = exif_of(6, true);
  for (std::size_t size = 0; size < exif.size(); ++size) {
    const std::string file = with_segment(photo, "Exif\0\0"s + exif.substr(0, size));
    EXPECT_EQ(decode_image(file, "a").size, image_size(file, "a")) << size;
  }
  std::string far = exif;
  far.replace(4, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_EQ(image_size(with_segment(photo, "Exif\0\0"s + far), "a"), (ImageSize{75, 110}));
}

// Pillow 13.0.0 wrote these files: 3 x 2 pixels without loss; the same with orientation 6; with alpha; 10 x 8
// pixels with loss; and an animation.
const std::string kLossless =
    "\x52\x49\x46\x46\x42\x00\x00\x00\x57\x45\x42\x50\x56\x50\x38\x4C\x35\x00\x00\x00\x2F\x02\x40\x00\x00\x2F\x40"s +
    "\x98\x6D\xB4\x39\xDC\x7B\xFE\x96\xA7\x21\x24\x20\x74\x1F\xFC\x7F\x89\x20\xDB\x66\x17\xA9\xBF\xE5\xE7\x3F\xE0"s +
    "\xCF\x78\x26\x45\x01\x85\x6C\x23\xC0\xA1\x7B\x05\x4E\xE9\x22\xFA\x1F\xC3\x0B\x00"s;
const std::string kTurned =
    "\x52\x49\x46\x46\x76\x00\x00\x00\x57\x45\x42\x50\x56\x50\x38\x58\x0A\x00\x00\x00\x08\x00\x00\x00\x02\x00\x00"s +
    "\x01\x00\x00\x56\x50\x38\x4C\x35\x00\x00\x00\x2F\x02\x40\x00\x00\x2F\x40\x98\x6D\xB4\x39\xDC\x7B\xFE\x96\xA7"s +
    "\x21\x24\x20\x74\x1F\xFC\x7F\x89\x20\xDB\x66\x17\xA9\xBF\xE5\xE7\x3F\xE0\xCF\x78\x26\x45\x01\x85\x6C\x23\xC0"s +
    "\xA1\x7B\x05\x4E\xE9\x22\xFA\x1F\xC3\x0B\x00\x45\x58\x49\x46\x1A\x00\x00\x00\x4D\x4D\x00\x2A\x00\x00\x00\x08"s +
    "\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"s;
const std::string kAlpha =
    "\x52\x49\x46\x46\x46\x00\x00\x00\x57\x45\x42\x50\x56\x50\x38\x4C\x3A\x00\x00\x00\x2F\x02\x40\x00\x10\x2F\x40"s +
    "\x98\x6D\xB4\x39\xDC\x7B\xFE\x96\xA7\x41\x26\x6D\xD3\xBE\x13\x51\xFF\x2E\x27\x10\x20\x94\xF0\x5F\x89\x40\x80"s +
    "\xA2\x9E\x73\x9C\x38\xE0\x39\xDE\xAD\x94\x96\x83\x82\xB4\x0D\x58\xDC\x3D\x65\x8B\xE8\x7F\xC8\x1F"s;
const std::string kLossy =
    "\x52\x49\x46\x46\x44\x00\x00\x00\x57\x45\x42\x50\x56\x50\x38\x20\x38\x00\x00\x00\x10\x02\x00\x9D\x01\x2A\x0A"s +
    "\x00\x08\x00\x01\x40\x26\x25\x00\x4E\x97\x40\x00\x57\x5D\xCB\xDB\x90\x00\x00\xFE\xF9\x64\x28\xED\x3E\x3F\xC9"s +
    "\xBA\x2D\x9D\xDF\x5A\xEB\x43\x05\x7E\x28\x06\x74\x8B\xC7\xFD\x7C\x01\x4F\x12\x00\x00\x00"s;
const std::string kAnimation =
    "\x52\x49\x46\x46\xD2\x00\x00\x00\x57\x45\x42\x50\x56\x50\x38\x58\x0A\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00"s +
    "\x01\x00\x00\x41\x4E\x49\x4D\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x41\x4E\x4D\x46\x50\x00\x00\x00\x00\x00"s +
    "\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00\x00\x00\x00\x02\x56\x50\x38\x4C\x37\x00\x00\x00\x2F\x02\x40\x00\x00"s +
    "\x2F\x40\xA4\x6D\x33\x13\xA3\xF3\x0F\xEF\xF0\x36\x84\x04\x84\x6C\x84\xFF\x17\xBC\x23\xC8\xB6\xC9\x44\x8A\x7F"s +
    "\xCD\xCF\x7F\xC0\x9F\x28\x45\xB1\x07\x0A\xD9\x46\x80\x53\xBB\x47\xE1\x44\x2E\xA2\xFF\x31\x5E\x00\x41\x4E\x4D"s +
    "\x46\x4E\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00\x00\x00\x00\x00\x56\x50\x38\x4C\x35\x00"s +
    "\x00\x00\x2F\x02\x40\x00\x00\x2F\x20\x24\x20\x56\xA8\xFE\x47\x0F\xDD\x10\x12\x10\xB2\x11\xFE\x5F\xF0\x8E\x20"s +
    "\xDB\x26\x13\x29\xFE\x35\x3F\xFF\x31\xDF\x63\x18\xC8\x04\x0A\xD9\x46\x80\x43\xF7\x92\x9C\xC8\x45\xF4\x3F\xDE"s +
    "\x11\x00"s;

/// The lossless pictures have these rows: red, green, blue; (10, 20, 30), (40, 50, 60), (70, 80, 90). Alpha
/// is dropped. The checksum of the lossy picture is Pillow's.
TEST(Image, WebpIsDecodedToTheBytesOfPillow) {
  const std::vector<int> rows = {255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 40, 50, 60, 70, 80, 90};
  EXPECT_EQ(decode_image(kLossless, "a").size, (ImageSize{3, 2}));
  EXPECT_EQ(pixels_of(kLossless), rows);
  EXPECT_EQ(pixels_of(kAlpha), rows);
  EXPECT_EQ(decode_image(kTurned, "a").size, (ImageSize{2, 3}));
  EXPECT_EQ(image_size(kTurned, "a"), (ImageSize{2, 3}));
  EXPECT_EQ(pixels_of(kTurned),
            (std::vector<int>{10, 20, 30, 255, 0, 0, 40, 50, 60, 0, 255, 0, 70, 80, 90, 0, 0, 255}));
  const RgbImage lossy = decode_image(kLossy, "a");
  EXPECT_EQ(lossy.size, (ImageSize{10, 8}));
  EXPECT_EQ(::crc32(0, lossy.pixels.data(), static_cast<uInt>(lossy.pixels.size())), 466297078U);
  EXPECT_EQ(image_size(kLossy.substr(0, 40), "a"), (ImageSize{10, 8}));
}

/// The first frame has the rows above. In the second file, the canvas has 8 x 6 pixels and the frame is at 2,
/// 4: Pillow 13.0.0 leaves the rest black.
TEST(Image, AnimatedWebpGivesItsFirstFrame) {
  EXPECT_EQ(image_size(kAnimation, "a"), (ImageSize{3, 2}));
  EXPECT_EQ(pixels_of(kAnimation), pixels_of(kLossless));
  std::string placed = kAnimation;
  placed[24] = 7;
  placed[27] = 5;
  placed[52] = 1;
  placed[55] = 2;
  EXPECT_EQ(image_size(placed, "a"), (ImageSize{8, 6}));
  const RgbImage frame = decode_image(kLossless, "a");
  RgbImage expected{{8, 6}, std::vector<std::uint8_t>(8 * 6 * 3)};
  for (std::ptrdiff_t row = 0; row < 2; ++row)
    std::copy_n(frame.pixels.begin() + 9 * row, 9, expected.pixels.begin() + 3 * (8 * (4 + row) + 2));
  EXPECT_EQ(decode_image(placed, "a"), expected);
  placed[52] = 3;  // 6 + 3 columns of 8
  expect_refused([&] { decode_image(placed, "a.webp"); }, "a.webp", {"a first frame inside 8x6"});
}

TEST(Image, WebpIsRejectedIfItIsDamaged) {
  for (std::size_t size = 0; size < 60 + 0x48; ++size)
    EXPECT_EQ(error_of([&] { decode_image(kAnimation.substr(0, size), "a"); }).kind(), ErrorKind::input)
        << size;
  for (const std::string& whole : {kLossless, kTurned, kLossy}) {
    for (std::size_t size = 0; size + 2 < whole.size(); ++size)
      EXPECT_EQ(error_of([&] { decode_image(whole.substr(0, size), "a"); }).kind(), ErrorKind::input) << size;
  }
  expect_refused([] { image_size(kTurned.substr(0, 60), "a.webp"); }, "a.webp: offset 60",
                 {"expected the chunk 'EXIF'"});
  expect_refused([] { image_size(kLossy, "a.webp", 79); }, "a.webp", {"79 pixels", "10x8"});
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
  expect_refused([] { decode_image(read_text_file(golden_io("sound.wav")), "a.png"); }, "a.png",
                 {"found a sound instead of a picture"});
  for (const char* video : {"frames.mp4", "cut.mp4", "frames.mkv"}) {
    expect_refused([&] { decode_image(read_text_file(golden_io(video)), "a.png"); }, "a.png",
                   {"found a video instead of a picture"});
  }
  const std::string wide = read_text_file(golden_io("wide.png"));
  expect_refused([&] { image_size(wide, "w.png", 97 * 61 - 1); }, "w.png", {"5916 pixels", "97x61"});
  EXPECT_NO_THROW(image_size(wide, "w.png", 97 * 61));
  std::string flipped = wide;
  flipped[100] = static_cast<char>(flipped[100] ^ 1);
  EXPECT_NE(std::string(error_of([&] { decode_image(flipped, "w.png"); }).what()).find("w.png: offset"),
            std::string::npos);
  // 10000 x 10000 pixels of one bit are 12.5 MB, which deflate compresses to at least 12,112 bytes.
  expect_refused([] { decode_image(png_file(10000, 10000, 1, 0, "\0"s), "b.png"); }, "b.png",
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

/// A picture of any size for tests, whose colors jump.
RgbImage jumping(int width, int height) {
  RgbImage image{{width, height}, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c)
        image.pixels.push_back(
            static_cast<std::uint8_t>(7 * x * x + 13 * y * y * y + 101 * c * y + 31 * x * y * c));
    }
  }
  return image;
}

TEST(Resize, ResizesColumnsFirstWhenPillowDoes) {
  // 37 of 40 rows are dropped, and none of 3 columns. The expected values come from Pillow 13.0.0; if rows
  // were resized first, ten of the 36 would differ.
  EXPECT_EQ(resize_bicubic(jumping(3, 40), {4, 3}).pixels,
            (std::vector<std::uint8_t>{97,  115, 136, 101, 116, 110, 104, 136, 101, 104, 161, 114,
                                       106, 132, 107, 109, 113, 137, 122, 111, 141, 136, 127, 115,
                                       120, 144, 140, 126, 140, 136, 120, 132, 128, 106, 124, 120}));
}

TEST(Resize, FramesEqualTorchvisionByteForByte) {
  // torchvision 0.29 with torch 2.15: transforms.v2.functional.resize(picture, [3, 4], BICUBIC). Weights of
  // 22 bits give other bytes, and so do columns that are resized first.
  EXPECT_EQ(resize_frame(jumping(3, 40), {4, 3}).pixels,
            (std::vector<std::uint8_t>{97,  115, 136, 100, 116, 111, 104, 136, 101, 104, 160, 113,
                                       106, 133, 107, 109, 113, 137, 121, 111, 141, 136, 127, 115,
                                       120, 144, 141, 126, 140, 136, 120, 133, 128, 107, 125, 120}));
  EXPECT_EQ(resize_frame(jumping(7, 4), {3, 2}).pixels,
            (std::vector<std::uint8_t>{20, 78, 68, 84, 84, 102, 149, 149, 158, 99, 150, 150, 156, 134, 78, 84,
                                       95, 67}));
  const RgbImage same = jumping(3, 40);
  EXPECT_EQ(resize_frame(same, same.size).pixels, same.pixels);
}

TEST(Resize, RejectsSizesThatWouldFillTheMemory) {
  const RgbImage one{{1, 1}, {1, 2, 3}};
  expect_refused([&] { resize_bicubic(one, {20000, 20000}); }, "", {"1x1 to 20000x20000"});
}

}  // namespace image_test
}  // namespace dflop::testing
