// A MediaReader makes of picture and sound files what a model's encoder takes, as its family's processor
// does.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "backend/content/media.hpp"
#include "core/model.hpp"
#include "traces/media/processors.hpp"
#include "traces/media/sound.hpp"

namespace dflop {

/// A MediumFile is the bytes of a picture or sound.
struct MediumFile {
  std::string_view bytes;
  std::string name;      ///< for errors
  bool is_alone = true;  ///< whether it is the only picture of its sample
};

class MediaReader {
 public:
  /// Reads `folder`/preprocessor_config.json or, where there is none, takes the family's usual settings with
  /// the sizes of the model's own config.json.
  /// @throws Error (input) as the processors' parsers, and where the file's sizes are not the model's
  MediaReader(const ModelSpec& model, const std::string& folder);

  /// Returns what a file becomes. @throws Error (input) with the file's name for damaged or other files
  MediumContent read(const MediumFile& file) const;
  /// Returns the same without values, from the headers of a picture, of which `bytes` may be the beginning
  /// alone; of a sound all bytes are needed. @throws as read()
  MediumContent shape(const MediumFile& file) const;

 private:
  MediumContent make(const MediumFile& file, bool values) const;

  Architecture architecture_;
  std::variant<std::monostate, LlavaProcessor, QwenProcessor, InternvlProcessor, MelOptions> processor_;
};

}  // namespace dflop
