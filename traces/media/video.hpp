// This file reads video files with FFmpeg's libraries, if dflop was built with them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "traces/media/image.hpp"
#include "traces/text/readable_file.hpp"

namespace dflop {

/// A VideoShape holds what the headers of a video say. Frames have one size.
struct VideoShape {
  std::int64_t frames = 0;
  double fps = 0;  ///< frames per second
  ImageSize size;
  bool is_sampled = false;  ///< its frames are pictures that were sampled for a model

  bool operator==(const VideoShape&) const = default;
};

/// A VideoFile is a video in a file, or in a part of a file such as a tar.
struct VideoFile {
  const ReadableFile& file;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::string name;                   ///< for errors
  ExifRule exif = ExifRule::upright;  ///< also for a container's rotation by quarter turns
};

/// Returns the shape of a video from its headers. Frames outside the edit list of an MP4 file do not count,
/// as with FFmpeg's defaults. If headers lack the number of frames, as in Matroska files, the file's packets
/// are counted, without decoding them.
/// @throws Error (input) with the file's name for a file that FFmpeg does not read, without video, frames or
/// frame rate, or with frames of more than kMaxPixels; and if dflop was built without FFmpeg
VideoShape video_shape(const VideoFile& video);

/// Passes the frames with these numbers to `take`, in order. If they are far apart, it decodes only from the
/// key frame before each of them, else from the beginning; both give the same frames.
/// Colors follow the file's color space, BT.601 if it names none.
/// @param frames  increasing, from 0
/// @throws Error (input) with name and frame for a frame that cannot be decoded or has another size than the
/// first, and for a video that ends before the last of `frames`; what video_shape() throws
void decode_video(const VideoFile& video, std::span<const std::int64_t> frames,
                  const std::function<void(RgbImage)>& take);

/// Returns whether dflop was built with FFmpeg's libraries.
bool reads_video_files();

}  // namespace dflop
