// This file computes the shapes of records with a model's own processor settings (patches, tiles, limits and
// windows) instead of its family's rule.
#pragma once

#include "core/model.hpp"
#include "traces/media/model_processor.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// A ModelMedia predicts the shapes that a Hugging Face model makes of pictures and sounds of a given size.
/// The family's rule samples the frames of videos and, for Qwen2-VL, Qwen2.5-VL and Qwen2.5-Omni, limits
/// their pixels, because these models' folders define neither. Sounds are cut into pieces of the processor's
/// length, 30 or 300 s. If some layers attend only within windows, the number of attention pairs is the
/// rounded mean over all layers.
class ModelMedia final : public MediaShapes {
 public:
  /// `second`: the settings for sounds of a model that also takes pictures.
  ModelMedia(const ModelSpec& model, ModelProcessor processor, std::optional<MelOptions> second = {});

  /// @throws Error (input) naming the row for media for which the model has no processor; what the processor
  /// throws
  Encoding encode(const RecordShapes& shapes, Modality modality) const override;

 private:
  Architecture architecture_;
  std::int64_t layers_;
  std::int64_t windowed_layers_;
  ModelProcessor processor_;
  std::optional<MelOptions> second_;
};

}  // namespace dflop
