// A sample's tokens and media are put together here to what ranks compute with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/content/media.hpp"
#include "backend/model/content.hpp"
#include "core/model.hpp"

namespace dflop {

/// A SampleContent is all that one sample holds.
struct SampleContent {
  std::vector<EncoderSequence> sequences;
  TokenSequence tokens;
};

/// Puts a sample together: `ids` with runs of the model's media tokens, each as long as its medium has
/// tokens, in the order of `media`; `labels`: per token its id where it is trained, else negative.
/// @throws Error (input) naming the sample where runs and media, or ids and labels, do not fit together
SampleContent make_content(const ModelSpec& model, const std::string& sample,
                           std::span<const std::int32_t> ids, std::span<const std::int32_t> labels,
                           std::span<const MediumContent> media);

/// Returns the shape of a content: what schedulers and cost models see.
Sample shape_of(const ModelSpec& model, const std::string& id, const SampleContent& content);

/// Returns a content whose sequences have what the encoder sees in a precision. Values of f32 are rounded.
SampleContent in_precision(SampleContent content, DType dtype);

/// Returns how many targets a sequence has.
std::int64_t trained_tokens(const TokenSequence& tokens);

/// StoredContents hold samples that were put together before.
class StoredContents final : public Contents {
 public:
  /// Keeps a sample's content under its id, until drop().
  void keep(const std::string& id, SampleContent content);
  void drop(const std::string& id);

  /// @throws Error (internal) for values of a content that was kept without
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
