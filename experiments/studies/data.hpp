// These functions load data sets as Samples and report what was assumed on the way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/sample.hpp"
#include "traces/files/provenance.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// Reads a data set and discards it. @throws Error (input) if load_samples() could not read it
void check_data(const std::string& file);

/// Returns "86 of 2,000 samples cut at 32,768 tokens, 12.2 % of all tokens (--max-tokens)"; empty if no
/// sample is truncated. `samples` is the number of samples, 0 if unknown.
std::string describe(const SampleCut& cut, std::int64_t samples = 0);

/// Loads and preprocesses a data set, or takes samples unchanged (traces/files/samples.hpp). With `report`,
/// prints the number of assumptions and of records left out to standard error. `origin`, if given, receives
/// the provenance for files made from the samples. `of_records` names given command-line options that control
/// how samples are made from records.
/// @throws Error (input) if no sample is left, (usage) for record options when the data are samples.
std::vector<Sample> load_samples(const std::string& file, const PreprocessOptions& options,
                                 bool report = true, DataOrigin* origin = nullptr,
                                 const std::vector<std::string>& of_records = {});

}  // namespace dflop
