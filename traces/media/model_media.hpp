// The shapes of records as a model's own processors make them: of its patches, tiles, limits and windows, and
// not of those that its family's rule has.
#pragma once

#include "core/model.hpp"
#include "traces/media/model_processor.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// A ModelMedia gives what a model of transformers makes of pictures and sounds of a size. Frames of videos
/// are sampled as the family's rule says, and of Qwen limited as there, as folders say nothing of it; sounds
/// are cut into pieces of 30 s. Where attention is within windows, pairs are the mean over the layers,
/// rounded.
class ModelMedia final : public MediaShapes {
 public:
  ModelMedia(const ModelSpec& model, ModelProcessor processor);

  /// @throws Error (input) naming the row for media that the model has no processor for, and as that says
  Encoding encode(const RecordShapes& shapes, Modality modality) const override;

 private:
  Architecture architecture_;
  std::int64_t layers_;
  std::int64_t windowed_layers_;
  ModelProcessor processor_;
};

}  // namespace dflop
