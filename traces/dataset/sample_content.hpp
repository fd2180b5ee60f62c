// A SampleContent combines a sample's tokens and media into the input that ranks compute with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/content/contents.hpp"
#include "core/model.hpp"
#include "traces/dataset/media.hpp"

namespace dflop {

/// A SampleContent holds the encoder sequences and the LLM sequence of one sample.
struct SampleContent {
  std::vector<EncoderSequence> sequences;
  TokenSequence tokens;
};

/// Combines a sample's tokens and media. `ids` contains runs of the model's media tokens, one run per medium
/// in the order of `media`, with as many tokens as the medium has. `labels` holds each token's id if the loss
/// covers the token, else a negative number.
/// @throws Error (input) that names `place` if the runs do not match the media, or the labels do not match
/// the ids
SampleContent make_content(const ModelSpec& model, const std::string& place,
                           std::span<const std::int32_t> ids, std::span<const std::int32_t> labels,
                           std::span<const MediumContent> media);

/// Returns the shape of a sample with this content. Schedulers and cost models use it.
Sample shape_of(const ModelSpec& model, const std::string& id, const SampleContent& content);

/// Returns the content with the encoder's input values converted to `dtype`, which may round f32 values.
SampleContent in_precision(SampleContent content, DType dtype);

/// Returns the number of tokens that the loss covers as targets in a sequence.
std::int64_t trained_tokens(const TokenSequence& tokens);

/// A StoredContents holds the contents of samples that were combined earlier.
class StoredContents final : public Contents {
 public:
  /// Keeps a sample's content under its id until drop().
  void keep(const std::string& id, SampleContent content);
  void drop(const std::string& id);

  /// @throws Error (internal) if values are requested from a content that was kept without them
  std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                 bool values) const override;
  std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const override;
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  std::shared_ptr<const SampleContent> find(const Sample& sample) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const SampleContent>> kept_;
};

}  // namespace dflop
