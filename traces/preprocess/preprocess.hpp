// Preprocessing turns a data set's records into samples: the shapes that a model of one family sees.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.hpp"

namespace dflop {

/// A VideoAssumption replaces values of a video that a table leaves out.
struct VideoAssumption {
  ImageSize size{640, 360};
  double fps = 30;
};

/// An Encoding is the encoder's work for a record, and the number of tokens that it hands to the LLM.
struct Encoding {
  std::vector<EncoderSequences> sequences;
  std::int64_t output_tokens = 0;
};

class RecordShapes;

/// A MediaShapes predicts the shapes that a model's own processors make of a record's media.
class MediaShapes {
 public:
  virtual ~MediaShapes() = default;
  /// Returns the encoding of a record that is not text. @throws Error (input) naming the row if the model
  /// cannot take it
  virtual Encoding encode(const RecordShapes& shapes, Modality modality) const = 0;
};

struct PreprocessOptions {
  std::string rule;  ///< one of preprocess_rules()
  /// If not null, this handles media instead of the rule.
  std::shared_ptr<const MediaShapes> media = nullptr;
  std::int64_t max_tokens = 0;  ///< longer LLM sequences are cut to this; 0: no limit
  bool drop_long = false;       ///< leave out records above max_tokens instead of cutting
  ImageSize assume_image{640, 480};
  VideoAssumption assume_video;
  std::int64_t assume_text = 256;  ///< tokens
  bool strict = false;             ///< fail instead of using an assumption
  /// The modalities to keep. nullopt keeps all; then a record whose modality the rule lacks is an error.
  std::optional<std::vector<Modality>> modalities;
  std::uint64_t seed = 1;  ///< for rules that draw numbers (internvl2.5: frames of a video)
};

/// Assumptions counts records whose result depends on an assumption.
struct Assumptions {
  std::int64_t image_sizes = 0;
  std::int64_t video_sizes = 0;
  std::int64_t video_fps = 0;
  std::int64_t texts = 0;

  bool any() const { return image_sizes + video_sizes + video_fps + texts > 0; }
};

struct Preprocessed {
  std::vector<Sample> samples;  ///< in the order of the records
  Assumptions assumptions;
  SampleCut cut;
  std::int64_t left_out = 0;  ///< records of modalities that are not selected
};

/// Applies a rule to every record. A missing number of frames, duration or frame rate follows from the other
/// two if they are given; other missing values come from the options' assumptions. A record's result depends
/// only on the record and the options. The records must come from parse_records(). Start and end markers and
/// chat templates are not counted; text-only records have no encoder sequences. `file` is named in errors.
/// @throws Error (input) for an unknown rule, for records that the rule cannot take, and for gaps under
/// `strict`, naming the row and column; Error (usage) for options out of range or modalities that the rule
/// lacks.
Preprocessed preprocess(std::span<const Record> records, const PreprocessOptions& options,
                        std::string_view file);

/// Returns the names of all rules. llava-1.5: one square of 336 pixels per image. llava-next: base tile and a
/// grid of 2 to 4 tiles for each image, without a limit on tokens. llava-ov: LLaVA-OneVision, base tile and
/// grid (anyres_max_9); a video has at most 32 frames, each with row ends. llava-ov-dflop: the public DFLOP
/// code, which encodes the base tile but does not hand it to the LLM. internvl2.5: up to 12 tiles and a
/// thumbnail; a video has 8 to 32 frames, drawn uniformly. qwen2-vl: the Hugging Face pixel limits, full
/// attention; videos sampled and limited as qwen-vl-utils does. qwen2.5-vl: the qwen-vl-utils limits,
/// windowed attention in 28 of 32 layers. qwen2.5-omni: pictures as qwen2-vl but in windows, videos as
/// qwen2.5-vl, sounds in parts of 2 s for the second encoder; videos have no sound. qwen3-vl: tokens of 32
/// pixels a side, full attention; the limits of its processors' classes, for videos on all frames together,
/// and time stamps are not counted. qwen2-audio: chunks of 30 s with 1,500 encoder positions each. tiny-vlm:
/// LLaVA-OneVision's tiles and frames, but 16 patches and 4 LLM tokens each, and at most 256 text tokens; for
/// the models of tests and of runs on small machines. text: only text.
std::vector<std::string_view> preprocess_rules();

/// Returns the modalities that a rule takes, text first.
/// @throws Error (input) for an unknown rule.
std::vector<Modality> rule_modalities(std::string_view rule);

}  // namespace dflop
