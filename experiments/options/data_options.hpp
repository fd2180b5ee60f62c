// These functions read the options of data sets, and open the data sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/sample.hpp"
#include "experiments/cli/option_values.hpp"
#include "traces/dataset/dataset.hpp"
#include "traces/files/provenance.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// The max number of LLM tokens in a sample.
inline constexpr std::int64_t kMaxTokensOfSample = std::int64_t{1} << 22;

/// Returns the max number of LLM tokens in a sample: --max-tokens, else the model's limit.
std::int64_t read_longest(const Values& values, const ModelSpec& model);
/// Reads the options of add_data_options(). The preprocessing rule comes from the model, and so does the max
/// length without --max-tokens. If the model is a Hugging Face folder, its settings for splitting media are
/// used, too.
PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed);
/// Returns the names of the given options that control how samples are made from records, for load_samples().
std::vector<std::string> given_options_of_records(const Values& values);
/// Rejects given options that apply only to shards. @param file  a data set of records or samples
/// @throws Error (usage) if no data set of the command has the shards to which an option applies
void refuse_options_of_shards(const Values& values, const std::string& file);
/// Loads the data set or shards that the option names, with read_preprocess_options(). Prints the assumptions
/// about the data to standard error unless `notes` is false, for commands that report assumptions in their
/// results.
/// @throws what load_samples() and open_shards() throw
std::vector<Sample> read_samples(const Values& values, const ModelSpec& model, std::uint64_t seed,
                                 const std::string& option = "data", DataOrigin* origin = nullptr,
                                 bool notes = true);
/// Opens the tars, lists or Megatron data sets that the option names, and prints a note about samples that
/// are left out. If `option` is "data" or "eval-data", writes them to --bad-samples-out, after the samples
/// that are left out of `before`.
/// @param before  the data set of --data, which was opened before; may be null
/// @throws Error (usage) for options that apply only to records or only to the other of the two formats;
/// Error (input) if no sample is left; what open_dataset() throws
std::shared_ptr<const Dataset> open_shards(const Values& values, const ModelSpec& model,
                                           const std::string& option = "data", DataOrigin* origin = nullptr,
                                           bool notes = true, const Dataset* before = nullptr);
/// Opens the shards of --data like open_shards(), but leaves out all samples that cannot be used, without an
/// error or a note, whatever --bad-samples says. Decodes the first `decoded` samples.
std::shared_ptr<const Dataset> open_shards_to_check(const Values& values, const ModelSpec& model,
                                                    std::int64_t decoded);
/// Returns how many bad samples --bad-samples allows: none by default. @throws Error (usage) for a value in
/// another form
std::int64_t read_allowed_bad(const Values& values);

}  // namespace dflop
