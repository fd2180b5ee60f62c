// A Dataset is what a run trains on: what each sample looks like, known ahead, and what it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/content/sample_content.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// LeftOutSamples are samples that a model cannot be trained on.
struct LeftOutSamples {
  std::size_t count = 0;
  std::string first;  ///< why, of the first of them
};

/// A Dataset may be read by several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Returns the shapes of all samples, in their order in the files.
  const std::vector<Sample>& samples() const { return samples_; }
  const LeftOutSamples& left_out() const { return left_out_; }
  /// Returns what the longest sequence leaves of the samples; token ids are split, not cut.
  const SampleCut& cut() const { return cut_; }
  /// Returns what users should know of how the data are read; empty: nothing.
  const std::string& note() const { return note_; }

  /// Returns a fingerprint of which files there are and where in them samples lie.
  virtual std::string fingerprint() const = 0;

  /// Reads a sample. @param values  whether pictures and sounds are decoded; without, the content has all but
  /// what the encoder sees
  /// @throws Error (input) with file and sample for what is damaged
  virtual SampleContent read(const std::string& id, bool values) const = 0;

  /// Returns how many targets a sample has, without reading it. @param sample  one of samples()
  virtual std::int64_t trained_tokens(const Sample& sample) const = 0;

 protected:
  std::vector<Sample> samples_;
  LeftOutSamples left_out_;
  SampleCut cut_;
  std::string note_;
};

/// DatasetOptions say how a data set is read where it can be read in several ways.
struct DatasetOptions {
  std::string chat_form;             ///< of conversations, one of chat_forms(); empty: the family's own
  std::int64_t sequence_length = 0;  ///< to which token ids are packed; 0: a document is a sample
};

/// Opens the data set that a name stands for as one model reads it. @pre kind_of_shards() knows the name
/// @param folder  the model's, of transformers
/// @throws Error (input) as ShardData and TokenData
std::shared_ptr<const Dataset> open_dataset(const ModelSpec& model, const std::string& folder,
                                            const std::string& name, const DatasetOptions& options);

}  // namespace dflop
