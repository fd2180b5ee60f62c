// A plain file has bins of samples, for people who schedule by other means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// BinsOfIteration are the bins of one batch, a number for each sample in the order of the batch.
struct BinsOfIteration {
  std::vector<std::int32_t> bin;
  std::vector<std::string> samples;  ///< ids as the file has them, for comparison; empty where it has none
};

/// Reads bins of iterations 0, 1, ... Either JSON, an array of arrays, one for each iteration, or one array
/// of numbers for a single one; or CSV with a header, of which column 'bin' is required, 'iteration' (rising,
/// from 0 on; without it all rows are of one) and 'sample' (the id) are not, and others are passed over.
/// @throws Error (input) naming row and column, or the place in the JSON
std::vector<BinsOfIteration> parse_bins(std::string_view text, const std::string& file);

}  // namespace dflop
