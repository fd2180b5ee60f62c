// A MediaReader decodes picture and sound files and prepares them for a model's encoder, like the processor
// of the model's family.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "traces/dataset/media.hpp"
#include "traces/dataset/video_source.hpp"
#include "traces/media/model_processor.hpp"

namespace dflop {

/// A MediumFile holds the bytes of a picture or sound file.
struct MediumFile {
  std::string_view bytes;
  std::string name;      ///< for errors
  bool is_alone = true;  ///< whether it is the only picture of its sample
};

/// A MediumPart is a run of a medium's tokens, and the words that the family puts around it: Qwen3-VL writes
/// the time before each slot of a video.
struct MediumPart {
  std::string words;  ///< before the tokens
  MediumContent content;
  std::string words_after = {};
};

/// An UntakenLength is thrown for a sound that is too short or too long for the encoder.
struct UntakenLength {
  std::string why;
};

class MediaReader {
 public:
  /// Reads the settings of the model's processor. @throws what read_model_processor() throws
  MediaReader(const ModelSpec& model, const std::string& folder, ExifRule exif = ExifRule::upright);

  /// Decodes a file. @throws Error (input) that names a damaged or unsupported file; UntakenLength
  MediumContent read(const MediumFile& file) const;
  /// Returns the content that read() returns, but without values. For a picture it reads only the headers, so
  /// `bytes` may be just the beginning of the file. For a sound it needs all bytes. @throws what read()
  /// throws
  MediumContent shape(const MediumFile& file) const;
  /// Decodes a file without making the encoder's input. @throws what read() throws because the file is
  /// damaged
  void check(const MediumFile& file) const;

  /// Reads a video: its frames by the family's rule or, if `values` is false, only its headers.
  /// @throws Error (input) that names the video or frame for damage, for frames of different sizes, and for a
  /// model that takes no videos, or in a form that is not supported
  std::vector<MediumPart> video(const VideoSource& video, bool values) const;
  /// Decodes the frames of a video without making the encoder's input. @throws what video() throws
  void check_video(const VideoSource& video) const;

 private:
  MediumContent make(const MediumFile& file, bool values) const;

  bool is_sound(const MediumFile& file) const;

  ModelSpec model_;
  ModelProcessor processor_;
  std::optional<MelOptions> second_;  ///< for sounds, if the model also takes pictures
  ExifRule exif_;
};

}  // namespace dflop
