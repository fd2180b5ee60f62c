// This file computes the shapes of records with a model's own processor settings (patches, tiles, limits and
// windows) instead of its family's rule.
#pragma once

#include "core/model.hpp"
#include "traces/media/model_processor.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// A ModelMedia predicts the shapes that a Hugging Face model makes of pictures and sounds of a given size.
/// Frames of videos are sampled by the family's rule, and Qwen's also limited by it, because model folders do
/// not define this; sounds are cut into pieces of 30 s. If attention is within windows, pairs are the mean
/// over the layers, rounded.
class ModelMedia final : public MediaShapes {
 public:
  ModelMedia(const ModelSpec& model, ModelProcessor processor);

  /// @throws Error (input) naming the row for media that the model has no processor for, and as the processor
  Encoding encode(const RecordShapes& shapes, Modality modality) const override;

 private:
  Architecture architecture_;
  std::int64_t layers_;
  std::int64_t windowed_layers_;
  ModelProcessor processor_;
};

}  // namespace dflop
