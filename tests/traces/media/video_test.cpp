// tests/golden/io/frames.mkv (FFV1, without loss) and frames.mp4 (H.264, turned by a quarter) have the same
// 10 frames of 32 x 24 pixels, 5 a second. Frame i has the color (20 i + 10, 20 i, 20 i + y) in its left
// half, and (20 i, 20 i, 20 i + y) in the right half. closed-groups.mp4 and open-groups.mp4 have 120 H.264
// frames of 32 x 24 pixels, 24 a second, which get brighter and have some noise: a key frame every 12 and up
// to three B-frames between others. cut.mp4 has packets of open-groups.mp4 (-ss 0.3 -t 0.8 -c copy): 29, of
// which its edit list shows 21. frames.flv (H.264) and frames.avi (MJPEG) have the first 6 frames of
// closed-groups.mp4. uneven.mp4 has 10 frames, whose packets last 14/24 s together: the first 4 are 1/24 s
// apart, the others 2/24 s. colors.mp4 (H.264, BT.709, full range) has 2 frames of the color (192, 48, 32),
// and sizes.h264 2 frames of 32 x 24 and then 2 of 48 x 24 pixels. FFmpeg 5.1 wrote all.
#include "traces/media/video.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "core/error.hpp"
#include "core/support/random.hpp"
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

/// Returns the numbers from `first` to before `end`, whose frames are decoded one after the other.
std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(end - first));
  std::iota(all.begin(), all.end(), first);
  return all;
}

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

/// The rotation of frames.mp4 is the matrix (0 -1; 1 0) in its header. With (0 1; -1 0) the left half is at
/// the top, and with (-1 0; 0 -1) at the right.
TEST(Video, RotationsAreQuarterTurns) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::string path = ::testing::TempDir() + "dflop-turned-video";
  const std::string bytes = read_text_file(golden_io("frames.mp4"));
  const std::string zero(4, '\0');
  const std::string one("\0\1\0\0", 4);
  const std::string minus("\xFF\xFF\0\0", 4);
  const std::size_t matrix = bytes.find("tkhd") + 44;
  ASSERT_EQ(bytes.substr(matrix, 20), zero + minus + zero + one + zero);
  const auto frame_with = [&](const std::string& numbers_of_matrix) {
    std::string turned = bytes;
    write_file_atomically(path, turned.replace(matrix, 20, numbers_of_matrix));
    RgbImage frame = Video(path).decode({4})[0];
    std::remove(path.c_str());
    return frame;
  };
  const RgbImage quarter = frame_with(zero + one + zero + minus + zero);
  EXPECT_EQ(quarter.size, (ImageSize{24, 32}));
  EXPECT_NEAR(color_at(quarter, 12, 2)[0], 90, 5);
  EXPECT_NEAR(color_at(quarter, 12, 29)[0], 80, 5);
  const RgbImage half = frame_with(minus + zero + zero + zero + minus);
  EXPECT_EQ(half.size, (ImageSize{32, 24}));
  EXPECT_NEAR(color_at(half, 2, 12)[0], 80, 5);
  EXPECT_NEAR(color_at(half, 29, 12)[0], 90, 5);
}

/// With BT.601's matrix or a limited range, red or green would differ by over 8.
TEST(Video, ColorsFollowTheFilesColorSpace) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::array<int, 3> color = color_at(Video(golden_io("colors.mp4")).decode({1})[0], 16, 12);
  EXPECT_NEAR(color[0], 192, 3);
  EXPECT_NEAR(color[1], 48, 3);
  EXPECT_NEAR(color[2], 32, 3);
}

TEST(Video, FramesOfOtherSizesAreRejected) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const Video video(golden_io("sizes.h264"));
  EXPECT_EQ(video.decode({0, 1}).size(), 2U);
  expect_refused([&] { video.decode({0, 3}); }, "v", {"frame 3", "expected 32x24", "found 48x24"});
}

TEST(Video, PartOfAFileIsAVideo) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::string path = ::testing::TempDir() + "dflop-padded-video";
  const std::string bytes = read_text_file(golden_io("frames.mp4"));
  write_file_atomically(path, "before" + bytes + std::string(600, 'x'));
  const ReadableFile file(path);
  EXPECT_EQ(video_shape({file, 6, bytes.size(), "v"}).frames, 10);
  // A stream of packets has no size of its own: its end is the part's. Each half has 4 frames.
  const std::string stream = read_text_file(golden_io("sizes.h264"));
  write_file_atomically(path, stream + stream);
  const ReadableFile twice(path);
  EXPECT_EQ(video_shape({twice, 0, stream.size(), "v"}).frames, 4);
  EXPECT_EQ(video_shape({twice, 0, 2 * stream.size(), "v"}).frames, 8);
  std::remove(path.c_str());
}

TEST(Video, SparseFramesEqualTheFramesOfAWholeDecode) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  for (const char* file : {"closed-groups.mp4", "open-groups.mp4"}) {
    const Video video(golden_io(file));
    const std::vector<RgbImage> all = video.decode(numbers(0, 120));
    ASSERT_EQ(all.size(), 120U);
    Random random(4);
    for (int draw = 0; draw < 40; ++draw) {
      std::vector<std::int64_t> frames;
      for (std::int64_t frame = 0; frame < 120; ++frame) {
        if (random.below(120) < static_cast<std::uint64_t>(1 + draw % 8)) frames.push_back(frame);
      }
      const std::vector<RgbImage> found = video.decode(frames);
      ASSERT_EQ(found.size(), frames.size());
      for (std::size_t i = 0; i < frames.size(); ++i)
        EXPECT_TRUE(found[i].pixels == all[static_cast<std::size_t>(frames[i])].pixels) << frames[i];
    }
  }
}

/// Damage in the middle is not found if only frames far from it are needed.
TEST(Video, FramesFarFromSparseFramesAreNotDecoded) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::string path = ::testing::TempDir() + "dflop-damaged-middle";
  std::string bytes = read_text_file(golden_io("closed-groups.mp4"));
  const std::size_t data = bytes.find("mdat") + 4;
  bytes.replace(data + 2000, 500, 500, '\xA5');
  write_file_atomically(path, bytes);
  const Video video(path);
  expect_refused([&] { video.decode(numbers(0, 120)); }, "v", {"frame", "cannot be decoded"});
  const std::vector<RgbImage> sparse = video.decode({2, 117});
  const std::vector<RgbImage> all = Video(golden_io("closed-groups.mp4")).decode(numbers(0, 120));
  EXPECT_TRUE(sparse[0].pixels == all[2].pixels);
  EXPECT_TRUE(sparse[1].pixels == all[117].pixels);
  std::remove(path.c_str());
}

/// FFmpeg, and with it PyAV, decord and torchcodec, show the frames of an MP4 file's edit list. Here these
/// are the stored packets: 8 to 27, and 30, whose packet comes before 28's.
TEST(Video, EditListsHideFrames) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const Video cut(golden_io("cut.mp4"));
  EXPECT_EQ(video_shape(cut.video), (VideoShape{21, 24, {32, 24}}));
  std::vector<RgbImage> stored = Video(golden_io("open-groups.mp4")).decode(numbers(8, 31));
  stored.erase(stored.begin() + 20, stored.begin() + 22);
  const std::vector<RgbImage> shown = cut.decode(numbers(0, 21));
  ASSERT_EQ(shown.size(), stored.size());
  for (std::size_t i = 0; i < shown.size(); ++i) EXPECT_TRUE(shown[i].pixels == stored[i].pixels) << i;
  EXPECT_TRUE(cut.decode({20})[0].pixels == stored[20].pixels);
  expect_refused([&] { cut.decode({21}); }, "v", {"the end after 21 frames"});
}

/// A rate is the mean rate, also of files whose frames last differently. An FLV file's headers do not tell
/// its streams, and an AVI file's rate is only a mean.
TEST(Video, RatesAreMeans) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  EXPECT_EQ(video_shape(Video(golden_io("uneven.mp4")).video), (VideoShape{10, 120.0 / 7, {32, 24}}));
  EXPECT_EQ(video_shape(Video(golden_io("frames.flv")).video), (VideoShape{6, 24, {32, 24}}));
  EXPECT_EQ(video_shape(Video(golden_io("frames.avi")).video), (VideoShape{6, 24, {32, 24}}));
  EXPECT_EQ(Video(golden_io("frames.flv")).decode({5}).size(), 1U);
  EXPECT_EQ(Video(golden_io("frames.avi")).decode({5}).size(), 1U);
}

/// A file may lose its end while it is open.
TEST(Video, AFileThatShrinksIsReported) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::string path = ::testing::TempDir() + "dflop-shrunk-video";
  write_file_atomically(path, read_text_file(golden_io("frames.mkv")));
  const Video video(path);
  std::filesystem::resize_file(path, 300);
  expect_refused([&] { video.decode({9}); }, "v", {"expected", "bytes, found", "to the file's end"});
  std::remove(path.c_str());
}

/// The time scale of a track is the fourth number of 'mdhd', 10,240 a second for 5 frames, so 2^31 - 1 a
/// second makes a million frames a second.
TEST(Video, WrongRatesAreRejected) {
  if (!reads_video_files()) GTEST_SKIP() << "built without FFmpeg";
  const std::string path = ::testing::TempDir() + "dflop-wrong-rate";
  std::string fast = read_text_file(golden_io("frames.mp4"));
  write_file_atomically(path, fast.replace(fast.find("mdhd") + 16, 4, "\x7F\xFF\xFF\xFF"));
  expect_refused([&] { video_shape(Video(path).video); }, "v", {"frame rate of at most 10000 per second"});
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
