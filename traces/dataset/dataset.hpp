// A Dataset is the training data of a run. It knows the shapes of all samples in advance and reads a sample's
// content on request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "core/sample.hpp"
#include "traces/dataset/sample_content.hpp"
#include "traces/media/image.hpp"

namespace dflop {

/// A LeftOutSample is a sample on which the model cannot be trained.
struct LeftOutSample {
  std::string id;
  std::string why;
  /// The sample is damaged or contradicts itself. Without --bad-samples skip, it would have been an error.
  bool is_bad = false;

  bool operator==(const LeftOutSample&) const = default;
};

/// A Dataset holds the shapes of its samples and reads their contents. It is thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Returns the shapes of all samples, in file order.
  const std::vector<Sample>& samples() const { return samples_; }
  /// Returns the samples that are left out, in file order.
  const std::vector<LeftOutSample>& left_out() const { return left_out_; }
  /// Returns how many samples were cut to the model's longest sequence. Documents of token ids are split
  /// instead.
  const SampleCut& cut() const { return cut_; }
  /// Returns a note for users about how the data are read; empty if there is none.
  const std::string& note() const { return note_; }
  /// Returns the assumptions about facts that the data do not state; empty if there are none.
  const std::string& assumption() const { return assumption_; }

  /// Returns a fingerprint of the files and of the samples' places in them.
  virtual std::string fingerprint() const = 0;

  /// Reads a sample.
  /// @param values  whether to decode pictures and sounds; if not, the content lacks only the encoder's input
  ///                values
  /// @throws Error (input) that names the file and sample if the data are damaged
  virtual SampleContent read(const std::string& id, bool values) const = 0;

  /// Returns the number of a sample's tokens that the loss covers as targets, without reading the sample.
  /// @param sample one of samples()
  virtual std::int64_t trained_tokens(const Sample& sample) const = 0;

 protected:
  std::vector<Sample> samples_;
  std::vector<LeftOutSample> left_out_;
  SampleCut cut_;
  std::string note_;
  std::string assumption_;
};

/// DatasetOptions choose how to read a data set that can be read in several ways.
struct DatasetOptions {
  std::string chat_form;  ///< for conversations, one of chat_forms(); empty: the model family's own
  std::int64_t sequence_length = 0;  ///< rows of a packed sample of token ids; 0: each document is a sample
  std::string media_root;            ///< the folder of the media of a list; empty: the folder of the list
  /// Leave out conversations that cannot be read, decoded or fitted to the model, instead of throwing an
  /// error.
  bool skip_bad = false;
  /// The pictures and sounds of this number of conversations, the first ones, are decoded when the data set
  /// is opened, to see whether that is possible. Default: all if bad conversations are left out, else none.
  std::optional<std::size_t> decoded = {};
  /// Called with the numbers of opened conversations and of all, by one thread at a time; may be empty.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  ExifRule exif = ExifRule::upright;  ///< whether pictures and videos are turned upright
};

/// Opens the named data set, in the form in which `model` reads it. @pre kind_of_shards() knows the name
/// @param folder  the model's transformers folder
/// @throws what the constructors of ShardData and TokenData throw
std::shared_ptr<const Dataset> open_dataset(const ModelSpec& model, const std::string& folder,
                                            const std::string& name, const DatasetOptions& options);

}  // namespace dflop
