#include "traces/data/profile.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr int kMaxBins = 20;

/// Exponent of the largest power of two that is at most `value` > 0.
int exponent_of(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return exponent - 1;
}

/// Edges from the power of two at or below `smallest` to the first one above `largest`, both positive.
std::vector<double> make_edges(double smallest, double largest) {
  const int first = exponent_of(smallest);
  const int octaves = exponent_of(largest) - first + 1;
  const int octaves_per_bin = (octaves + kMaxBins - 1) / kMaxBins;
  const int bins_per_octave = 4 * octaves <= kMaxBins ? 4 : 2 * octaves <= kMaxBins ? 2 : 1;
  std::vector<double> edges;
  int octave = 0;
  for (; octave < octaves; octave += octaves_per_bin) {
    for (int part = 0; part < bins_per_octave; ++part) {
      edges.push_back(std::ldexp(1.0 + static_cast<double>(part) / bins_per_octave, first + octave));
    }
  }
  edges.push_back(std::ldexp(1.0, first + octave));
  return edges;
}

Histogram make_histogram(const std::vector<double>& sorted) {
  Histogram histogram;
  const auto first_positive = std::upper_bound(sorted.begin(), sorted.end(), 0.0);
  if (first_positive == sorted.end()) {
    histogram.edges = {0.0, 1.0};
  } else {
    histogram.edges = make_edges(*first_positive, sorted.back());
    if (first_positive != sorted.begin()) histogram.edges.insert(histogram.edges.begin(), 0.0);
  }
  auto below = sorted.begin();
  for (std::size_t i = 1; i < histogram.edges.size(); ++i) {
    const auto end = std::lower_bound(below, sorted.end(), histogram.edges[i]);
    histogram.counts.push_back(end - below);
    below = end;
  }
  return histogram;
}

double quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Series summarize(std::string name, std::vector<double> values) {
  const auto is_bad = [](double value) { return !std::isfinite(value) || value < 0; };
  if (std::any_of(values.begin(), values.end(), is_bad)) {
    throw Error(ErrorKind::internal, "series '" + name + "' has a value that is negative or not finite");
  }
  Series series;
  series.name = std::move(name);
  if (values.empty()) return series;
  std::sort(values.begin(), values.end());
  series.min = values.front();
  series.p10 = quantile(values, 0.10);
  series.p25 = quantile(values, 0.25);
  series.p50 = quantile(values, 0.50);
  series.p75 = quantile(values, 0.75);
  series.p90 = quantile(values, 0.90);
  series.p95 = quantile(values, 0.95);
  series.p99 = quantile(values, 0.99);
  series.max = values.back();
  series.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  series.histogram = make_histogram(values);
  return series;
}

DataProfile profile_data(std::span<const Sample> samples, std::span<const double> flop_ratio) {
  if (!flop_ratio.empty() && flop_ratio.size() != samples.size()) {
    throw Error(ErrorKind::internal, "expected one FLOP ratio per sample");
  }
  DataProfile profile;
  profile.samples = static_cast<std::int64_t>(samples.size());
  std::vector<double> tiles;
  std::vector<double> encoder_tokens;
  std::vector<double> llm_tokens;
  for (const Sample& sample : samples) {
    const Workload encoder = sample.encoder();
    ++profile.by_modality[static_cast<std::size_t>(sample.modality)];
    tiles.push_back(static_cast<double>(encoder.sequences));
    encoder_tokens.push_back(static_cast<double>(encoder.tokens));
    llm_tokens.push_back(static_cast<double>(sample.llm_tokens));
  }
  profile.series.push_back(summarize("encoder_tiles", std::move(tiles)));
  profile.series.push_back(summarize("encoder_tokens", std::move(encoder_tokens)));
  profile.series.push_back(summarize("llm_tokens", std::move(llm_tokens)));
  if (!flop_ratio.empty()) {
    profile.series.push_back(summarize("flop_ratio", {flop_ratio.begin(), flop_ratio.end()}));
  }
  return profile;
}

}  // namespace dflop
