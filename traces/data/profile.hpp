// A DataProfile describes the distribution of the shapes of a data set, as one model sees them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.hpp"

namespace dflop {

/// A Histogram counts values: counts[i] of them lie in [edges[i], edges[i + 1]). Edges are powers of two. A
/// narrow range has additional edges at 1.5, or at 1.25, 1.5 and 1.75, times each power. A wide range has
/// only every k-th power. There are at most 20 bins, plus the bin [0, first power) if a value is below the
/// first power.
struct Histogram {
  std::vector<double> edges;
  std::vector<std::int64_t> counts;
};

/// A Series describes one quantity over all samples. Quantiles interpolate linearly between the two nearest
/// values (Hyndman and Fan 1996, type 7). Without values, all fields are zero and there are no bins.
struct Series {
  std::string name;
  double min = 0;
  double p10 = 0;
  double p25 = 0;
  double p50 = 0;
  double p75 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
  double mean = 0;
  Histogram histogram;
};

struct DataProfile {
  std::int64_t samples = 0;
  std::array<std::int64_t, kModalities> by_modality{};  ///< samples, indexed by Modality
  std::vector<Series> series;  ///< encoder_tiles, encoder_tokens, llm_tokens and, if given, flop_ratio
};

/// Summarizes values. @throws Error (internal) for a value that is negative or not finite.
Series summarize(std::string name, std::vector<double> values);

/// Describes a data set. `flop_ratio` is encoder FLOP / LLM FLOP of each sample, or empty. Encoder sequences
/// of any kind count as encoder tiles.
/// @throws Error (internal) if `flop_ratio` is not empty and differs from `samples` in length; what
/// summarize() throws
DataProfile profile_data(std::span<const Sample> samples, std::span<const double> flop_ratio);

/// Returns a file of schema "dflop.data_profile", version 1. `data` and `model` name the data set and the
/// model.
std::string to_json(const DataProfile& profile, const std::string& data, const std::string& model);

/// A DataProfileFile holds the contents of a data profile's file.
struct DataProfileFile {
  std::string data;
  std::string model;
  DataProfile profile;
};

/// Reads a data profile.
/// @throws Error (input) naming the key; also if counts do not add up, or if a quantile is less than a lower
/// one.
DataProfileFile parse_data_profile(std::string_view json, const std::string& file);

}  // namespace dflop
