// A VideoSource gives the frames of a sample's video: of a video file, or pictures that are its frames.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "traces/dataset/sample_source.hpp"
#include "traces/media/video.hpp"

namespace dflop {

/// The rate at which frames as pictures were sampled if the data do not say, as in qwen-vl-utils.
inline constexpr double kUsualFrameRate = 2;

class VideoSource {
 public:
  virtual ~VideoSource() = default;

  /// Returns the video's name for errors.
  virtual const std::string& name() const = 0;
  /// Returns the shape from headers; the size is the first frame's.
  virtual const VideoShape& shape() const = 0;
  /// Checks from headers that these frames have the first frame's size. @throws Error (input) that names a
  /// frame
  virtual void check_sizes(std::span<const std::int64_t> frames) const = 0;
  /// Decodes the frames with these numbers, which increase from 0, and passes them to `take`, in order.
  /// @throws Error (input) that names a frame that is damaged or has another size than the first
  virtual void read(std::span<const std::int64_t> frames,
                    const std::function<void(const RgbImage&)>& take) const = 0;
};

/// Opens a video and reads its headers. `stored` must outlive the result.
/// @throws Error (input) that names the video or its first frame if it cannot be read
std::unique_ptr<const VideoSource> open_video(const StoredMedium& stored, ExifRule exif);

}  // namespace dflop
