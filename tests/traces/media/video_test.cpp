// tests/golden/io/frames.mkv (FFV1, without loss) and frames.mp4 (H.264, turned by a quarter) have the same
// 10 frames of 32 x 24 pixels, 5 a second. Frame i has the color (20 i + 10, 20 i, 20 i + y) in its left
// half, and (20 i, 20 i, 20 i + y) in the right half. FFmpeg 5.1 wrote both.
#include "traces/media/video.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.hpp"
#include "tests/traces/file_fixtures.hpp"
#include "tests/traces/media/golden_io.hpp"
#include "traces/text/text_file.hpp"

namespace dflop::testing {
namespace video_test {

/// A Video is a file, or part of one.
struct Video {
  ReadableFile file;
  VideoFile video;

  explicit Video(const std::string& path, ExifRule exif = ExifRule::upright)
      : file(path), video{file, 0, file.size(), "v", exif} {}
  std::vector<RgbImage> decode(const std::vector<std::int64_t>& frames) const {
    std::vector<RgbImage> all;
    decode_video(video, frames, [&](RgbImage frame) { all.push_back(std::move(frame)); });
    return all;
  }
};

std::array<int, 3> color_at(const RgbImage& image, int x, int y) {
  const std::uint8_t* pixel = &image.pixels[3 * static_cast<std::size_t>(y * image.size.width + x)];
  return {pixel[0], pixel[1], pixel[2]};
}

TEST(Video, WithoutFfmpegTheErrorNamesThePackages) {
  if (reads_video_files()) GTEST_SKIP() << "built with FFmpeg";
  const Video video(golden_io("frames.mkv"));
  expect_refused([&] { video_shape(video.video); }, "v",
                 {"libavformat-dev", "libswscale-dev", "build again"});
}

TEST(Video, HasTheShapeOfItsHeaders) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  EXPECT_EQ(video_shape(Video(golden_io("frames.mkv")).video), (VideoShape{10, 5, {32, 24}}));
  EXPECT_EQ(video_shape(Video(golden_io("frames.mp4")).video), (VideoShape{10, 5, {24, 32}}));
  EXPECT_EQ(video_shape(Video(golden_io("frames.mp4"), ExifRule::ignore).video),
            (VideoShape{10, 5, {32, 24}}));
}

TEST(Video, FramesHaveTheirPixels) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::vector<RgbImage> frames = Video(golden_io("frames.mkv")).decode({0, 3, 9});
  ASSERT_EQ(frames.size(), 3U);
  int i = 0;
  for (const int number : {0, 3, 9}) {
    const RgbImage& frame = frames[static_cast<std::size_t>(i++)];
    EXPECT_EQ(frame.size, (ImageSize{32, 24}));
    for (const int y : {0, 5, 23}) {
      EXPECT_EQ(color_at(frame, 0, y), (std::array{20 * number + 10, 20 * number, 20 * number + y}));
      EXPECT_EQ(color_at(frame, 31, y), (std::array{20 * number, 20 * number, 20 * number + y}));
    }
  }
}

/// Turned counterclockwise by a quarter, as ffmpeg turns it, the right half is at the top. Half the color's
/// resolution and H.264 change values by a few.
TEST(Video, FramesAreTurnedUpright) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::vector<RgbImage> frames = Video(golden_io("frames.mp4")).decode({4});
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0].size, (ImageSize{24, 32}));
  for (const auto& [x, y, red] : {std::array{12, 2, 80}, std::array{12, 29, 90}}) {
    const std::array<int, 3> color = color_at(frames[0], x, y);
    EXPECT_NEAR(color[0], red, 5) << y;
    EXPECT_NEAR(color[1], 80, 5) << y;
  }
}

TEST(Video, PartOfAFileIsAVideo) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::string path = ::testing::TempDir() + "dflop-padded-video";
  const std::string bytes = read_text_file(golden_io("frames.mp4"));
  write_file_atomically(path, "before" + bytes + std::string(600, 'x'));
  const ReadableFile file(path);
  EXPECT_EQ(video_shape({file, 6, bytes.size(), "v"}).frames, 10);
  std::remove(path.c_str());
}

/// Cut-off and damaged files name the video and, if decoding began, the frame.
TEST(Video, DamageIsRejected) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::string path = ::testing::TempDir() + "dflop-damaged-video";
  const std::string bytes = read_text_file(golden_io("frames.mkv"));
  const auto with = [&](const std::string& damaged, const auto& use) {
    write_file_atomically(path, damaged);
    use(Video(path));
    std::remove(path.c_str());
  };
  with("", [](const Video& video) {
    expect_refused([&] { video_shape(video.video); }, "v", {"that FFmpeg reads"});
  });
  with("#EXTM3U\n#EXT-X-VERSION:3\n#EXTINF:1,\nhttp://a.example/b.ts\n", [](const Video& video) {
    expect_refused([&] { video_shape(video.video); }, "v", {"that FFmpeg reads"});
  });
  with(read_text_file(golden_io("sound.wav")), [](const Video& video) {
    expect_refused([&] { video_shape(video.video); }, "v", {"that FFmpeg reads"});
  });
  with(bytes.substr(0, bytes.size() / 2),
       [](const Video& video) { expect_refused([&] { video.decode({9}); }, "v", {"frame"}); });
  std::string damaged = read_text_file(golden_io("frames.mp4"));
  const std::size_t data = damaged.find("mdat") + 4;  // the frames, which headers follow
  damaged.replace(data + 700, 100, 100, '\xA5');
  with(damaged, [](const Video& video) {
    expect_refused(
        [&] {
          video.decode({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
        },
        "v", {"frame", "cannot be decoded"});
  });
  expect_refused([&] { Video(golden_io("frames.mp4")).decode({10}); }, "v",
                 {"expected frame 10", "the end after 10 frames"});
}

}  // namespace video_test
}  // namespace dflop::testing
