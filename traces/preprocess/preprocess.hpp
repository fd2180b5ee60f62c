// Preprocessing is what one model family makes of a data set's records.
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

/// A VideoAssumption stands in for what a table does not say of a video.
struct VideoAssumption {
  ImageSize size{640, 360};
  double fps = 30;
};

/// An Encoding is what the encoder gets of a record, and the tokens that it hands to the LLM.
struct Encoding {
  std::vector<EncoderSequences> sequences;
  std::int64_t output_tokens = 0;
};

class RecordShapes;

/// A MediaShapes says what a model's own processors make of a record's media.
class MediaShapes {
 public:
  virtual ~MediaShapes() = default;
  /// Returns what becomes of a record that is no text. @throws Error (input) naming the row where the model
  /// cannot take it
  virtual Encoding encode(const RecordShapes& shapes, Modality modality) const = 0;
};

struct PreprocessOptions {
  std::string rule;  ///< one of preprocess_rules()
  /// In place of the rule this says what becomes of media; null: the rule does.
  std::shared_ptr<const MediaShapes> media = nullptr;
  std::int64_t max_tokens = 0;  ///< LLM sequences are cut here; 0: no cut
  bool drop_long = false;       ///< records of longer ones are left out instead
  ImageSize assume_image{640, 480};
  VideoAssumption assume_video;
  std::int64_t assume_text = 256;  ///< tokens
  bool strict = false;             ///< where an assumption would be used, fail
  /// These modalities are kept; nullopt keeps all, and a record of one that the rule lacks is then an error.
  std::optional<std::vector<Modality>> modalities;
  std::uint64_t seed = 1;  ///< of the rules that draw numbers (internvl2.5: frames of a video)
};

/// Assumptions count records whose result rests on an assumption.
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

/// Applies a rule to every record. Missing frames, seconds and frame rates follow from the other two where
/// those are given; other gaps are filled from the options. A record's result depends on nothing but the
/// record and the options. The records must be as parse_records() makes them. Start and end markers and chat
/// templates are not counted; text-only records have no encoder sequences. `file` is named in errors.
/// @throws Error (input) for an unknown rule, for records that the rule cannot take, and for gaps under
/// `strict`, naming the row and column; Error (usage) for options out of range or modalities that the
/// rule lacks.
Preprocessed preprocess(std::span<const Record> records, const PreprocessOptions& options,
                        std::string_view file);

/// Returns the names of all rules.
/// llava-ov: LLaVA-OneVision, base tile and grid (anyres_max_9); a video has at most 32 frames, each with row
/// ends. llava-ov-dflop: the public DFLOP code, which encodes the base tile but does not hand it to the LLM.
/// internvl2.5: up to 12 tiles and a thumbnail; a video has 8 to 32 frames, drawn uniformly. qwen2-vl: the
/// Hugging Face pixel limits, full attention; videos sampled and limited as qwen-vl-utils does. qwen2.5-vl:
/// the qwen-vl-utils limits, windowed attention in 28 of 32 layers. qwen2-audio: chunks of 30 s, each 1,500
/// encoder positions. tiny-vlm: LLaVA-OneVision's tiles and frames, but 16 patches and 4 LLM tokens each, and
/// at most 256 text tokens; for the models of tests and of runs on small machines. text: words alone.
std::vector<std::string_view> preprocess_rules();

/// Returns the modalities that a rule takes, text first.
/// @throws Error (input) for an unknown rule.
std::vector<Modality> rule_modalities(std::string_view rule);

}  // namespace dflop
