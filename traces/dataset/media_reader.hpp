// A MediaReader decodes picture and sound files and prepares them for a model's encoder, like the processor
// of the model's family.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/model.hpp"
#include "traces/dataset/media.hpp"
#include "traces/media/model_processor.hpp"

namespace dflop {

/// A MediumFile holds the bytes of a picture or sound file.
struct MediumFile {
  std::string_view bytes;
  std::string name;      ///< for errors
  bool is_alone = true;  ///< whether it is the only picture of its sample
};

/// An UntakenLength is thrown for a sound that is too short or too long for the encoder.
struct UntakenLength {
  std::string why;
};

class MediaReader {
 public:
  /// Reads the settings of the model's processor. @throws what read_model_processor() throws
  MediaReader(const ModelSpec& model, const std::string& folder);

  /// Decodes a file. @throws Error (input) that names a damaged or unsupported file; UntakenLength
  MediumContent read(const MediumFile& file) const;
  /// Returns the content that read() returns, but without values. For a picture it reads only the headers, so
  /// `bytes` may be just the beginning of the file. For a sound it needs all bytes. @throws what read()
  /// throws
  MediumContent shape(const MediumFile& file) const;
  /// Decodes a file without making the encoder's input. @throws what read() throws because the file is
  /// damaged
  void check(const MediumFile& file) const;

 private:
  MediumContent make(const MediumFile& file, bool values) const;

  bool is_sound(const MediumFile& file) const;

  ModelSpec model_;
  ModelProcessor processor_;
  std::optional<MelOptions> second_;  ///< for sounds, if the model also takes pictures
};

}  // namespace dflop
