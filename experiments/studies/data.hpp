// These functions load data sets as Samples and report the assumptions about missing facts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/sample.hpp"
#include "traces/files/provenance.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// Checks that load_samples() can read a data set. @throws Error (input) if it cannot
void check_data(const std::string& file);

/// Returns "86 of 2,000 samples cut at 32,768 tokens, 12.2 % of all tokens (--max-tokens)"; empty if no
/// sample is truncated. `samples` is the number of samples, 0 if unknown.
std::string describe(const SampleCut& cut, std::int64_t samples = 0);

/// Loads a data set of records and preprocesses it to samples, or loads a file of samples unchanged
/// (traces/files/samples.hpp). If `report`, prints the numbers of assumptions and of omitted records to
/// standard error. `origin` may be null; it receives the provenance of the data. `of_records` names the given
/// command-line options that apply only to records.
/// @throws Error (input) if no sample is left; Error (usage) if the file has samples and `of_records` is not
/// empty
std::vector<Sample> load_samples(const std::string& file, const PreprocessOptions& options,
                                 bool report = true, DataOrigin* origin = nullptr,
                                 const std::vector<std::string>& of_records = {});

}  // namespace dflop
