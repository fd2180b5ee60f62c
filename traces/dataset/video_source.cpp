#include "traces/dataset/video_source.hpp"

#include <utility>

#include "core/refuse.hpp"
#include "traces/dataset/stored_file.hpp"

namespace dflop {
namespace {

class FramePictures final : public VideoSource {
 public:
  FramePictures(const StoredMedium& stored, ExifRule exif)
      : stored_(stored),
        exif_(exif),
        shape_{std::ssize(stored.frames), stored.rate.fps > 0 ? stored.rate.fps : kUsualFrameRate, size_of(0),
               stored.rate.is_sampled || stored.rate.fps == 0} {}

  const std::string& name() const override { return stored_.place; }
  const VideoShape& shape() const override { return shape_; }

  void check_sizes(std::span<const std::int64_t> frames) const override {
    for (const std::int64_t number : frames) {
      if (number != 0) check_size(number, size_of(number));
    }
  }

  void read(std::span<const std::int64_t> frames,
            const std::function<void(const RgbImage&)>& take) const override {
    for (const std::int64_t number : frames) {
      const StoredFile file(frame(number));
      const RgbImage image = decode_image(file.read(file.size()), frame(number).place, kMaxPixels, exif_);
      check_size(number, image.size);
      take(image);
    }
  }

 private:
  const StoredMedium& frame(std::int64_t number) const {
    return stored_.frames[static_cast<std::size_t>(number)];
  }

  ImageSize size_of(std::int64_t number) const {
    return StoredFile(frame(number)).of_headers([&](const std::string& bytes) {
      return image_size(bytes, frame(number).place, kMaxPixels, exif_);
    });
  }

  void check_size(std::int64_t number, ImageSize size) const {
    if (size == shape_.size) return;
    refuse_input(frame(number).place, "expected a frame of {}x{}, as the video's first frame, found {}x{}",
                 shape_.size.width, shape_.size.height, size.width, size.height);
  }

  const StoredMedium& stored_;
  ExifRule exif_;
  VideoShape shape_;
};

class FileOfVideo final : public VideoSource {
 public:
  FileOfVideo(const StoredMedium& stored, ExifRule exif)
      : file_(stored),
        video_{file_.file(), stored.offset, file_.size(), stored.place, exif},
        shape_(video_shape(video_)) {}

  const std::string& name() const override { return video_.name; }
  const VideoShape& shape() const override { return shape_; }
  void check_sizes(std::span<const std::int64_t>) const override {}  // the container has one size
  void read(std::span<const std::int64_t> frames,
            const std::function<void(const RgbImage&)>& take) const override {
    decode_video(video_, frames, [&](const RgbImage& frame) { take(frame); });
  }

 private:
  StoredFile file_;
  VideoFile video_;
  VideoShape shape_;
};

}  // namespace

std::unique_ptr<const VideoSource> open_video(const StoredMedium& stored, ExifRule exif) {
  if (stored.frames.empty()) return std::make_unique<FileOfVideo>(stored, exif);
  return std::make_unique<FramePictures>(stored, exif);
}

}  // namespace dflop
