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
/// Reads the options of add_data_options(). Rule and max length come from the model; for a Hugging Face
/// folder, so do the settings for splitting media.
PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed);
/// Returns the names of the given options that control how samples are made from records, for load_samples().
std::vector<std::string> given_options_of_records(const Values& values);
/// Loads the data set or shards that the option names, with read_preprocess_options(). Prints the assumptions
/// made for them to standard error unless `notes` is false, for commands that report assumptions in their
/// results.
/// @throws as load_samples(), open_shards()
std::vector<Sample> read_samples(const Values& values, const ModelSpec& model, std::uint64_t seed,
                                 const std::string& option = "data", DataOrigin* origin = nullptr,
                                 bool notes = true);
/// Opens the tars or the Megatron data sets that the option names, and reports the samples that it leaves
/// out.
/// @throws Error (usage) for options that apply to records or to the other kind; Error (input) as
/// open_dataset(), and if no sample is left
std::shared_ptr<const Dataset> open_shards(const Values& values, const ModelSpec& model,
                                           const std::string& option = "data", DataOrigin* origin = nullptr,
                                           bool notes = true);

}  // namespace dflop
