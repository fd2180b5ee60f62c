// A MediaReader makes of picture and sound files what a model's encoder takes, as its family's processor
// does.
#pragma once

#include <string>
#include <string_view>

#include "backend/content/media.hpp"
#include "core/model.hpp"
#include "traces/media/model_processor.hpp"

namespace dflop {

/// A MediumFile is the bytes of a picture or sound.
struct MediumFile {
  std::string_view bytes;
  std::string name;      ///< for errors
  bool is_alone = true;  ///< whether it is the only picture of its sample
};

/// An UntakenLength says that a sound is shorter or longer than what an encoder takes.
struct UntakenLength {
  std::string why;
};

class MediaReader {
 public:
  /// Reads the settings of the model's processor. @throws Error (input) as read_model_processor()
  MediaReader(const ModelSpec& model, const std::string& folder);

  /// Returns what a file becomes. @throws Error (input) with the file's name for damaged or other files, and
  /// UntakenLength
  MediumContent read(const MediumFile& file) const;
  /// Returns the same without values, from the headers of a picture, of which `bytes` may be the beginning
  /// alone; of a sound all bytes are needed. @throws as read()
  MediumContent shape(const MediumFile& file) const;

 private:
  MediumContent make(const MediumFile& file, bool values) const;

  Architecture architecture_;
  ModelProcessor processor_;
};

}  // namespace dflop
