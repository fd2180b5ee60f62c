#include "traces/data/profile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr int kMaxBins = 20;

/// A Quantile is a field of a Series: its key, the fraction of values below it, and the member.
struct Quantile {
  std::string_view key;
  double fraction;
  double Series::*member;
};

/// kQuantiles are in rising order; the mean is not among them.
constexpr Quantile kQuantiles[] = {
    {"min", 0.00, &Series::min}, {"p10", 0.10, &Series::p10}, {"p25", 0.25, &Series::p25},
    {"p50", 0.50, &Series::p50}, {"p75", 0.75, &Series::p75}, {"p90", 0.90, &Series::p90},
    {"p95", 0.95, &Series::p95}, {"p99", 0.99, &Series::p99}, {"max", 1.00, &Series::max}};

/// Returns the exponent of the largest power of two that is at most `value` > 0.
int exponent_of(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return exponent - 1;
}

/// Returns edges from the power of two at or below `smallest` to the first one above `largest`, both
/// positive.
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
  for (const Quantile& row : kQuantiles) series.*row.member = quantile(values, row.fraction);
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
    encoder_tokens.push_back(static_cast<double>(encoder.all_tokens()));
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

namespace {

constexpr std::string_view kSchema = "dflop.data_profile";
constexpr int kVersion = 1;
constexpr std::int64_t kMaxSamples = std::int64_t{1} << 40;

void write_series(JsonWriter& writer, const Series& series) {
  writer.begin_object();
  writer.field("name", series.name);
  for (const Quantile& row : kQuantiles) writer.field(row.key, series.*row.member);
  writer.field("mean", series.mean);
  writer.row("histogram_edges", series.histogram.edges);
  writer.row("histogram_counts", series.histogram.counts);
  writer.end_object();
}

void read_histogram(const JsonValue& json, Histogram& histogram) {
  const JsonValue edges = json.at("histogram_edges");
  const JsonValue counts = json.at("histogram_counts");
  histogram.edges = edges.numbers();
  histogram.counts = counts.integers(0, kMaxSamples);
  const bool both_empty = histogram.edges.empty() && histogram.counts.empty();
  if (!both_empty && histogram.edges.size() != histogram.counts.size() + 1) {
    counts.refuse_type("one count fewer than the {} edges", histogram.edges.size());
  }
  for (std::size_t i = 1; i < histogram.edges.size(); ++i) {
    if (histogram.edges[i] <= histogram.edges[i - 1]) {
      edges.elements()[i].refuse_type("an edge above {}", histogram.edges[i - 1]);
    }
  }
}

Series read_series(const JsonValue& json) {
  json.require_keys({"name", "min", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "max", "mean",
                     "histogram_edges", "histogram_counts"});
  Series series;
  series.name = json.at("name").string();
  double least = -std::numeric_limits<double>::infinity();
  for (const auto& [key, fraction, member] : kQuantiles) {
    series.*member = json.at(key).number();
    if (series.*member < least) json.at(key).refuse_type("at least {}, the previous quantile", least);
    least = series.*member;
  }
  series.mean = json.at("mean").number();
  read_histogram(json, series.histogram);
  return series;
}

}  // namespace

std::string to_json(const DataProfile& profile, const std::string& data, const std::string& model) {
  JsonWriter writer(kSchema, kVersion);
  writer.field("data", data);
  writer.field("model", model);
  writer.field("samples", profile.samples);
  writer.begin_object("samples_by_modality");
  for (const Modality modality : all_of<Modality>()) {
    writer.field(to_string(modality), profile.by_modality[static_cast<std::size_t>(modality)]);
  }
  writer.end_object();
  writer.begin_array("series");
  for (const Series& series : profile.series) write_series(writer, series);
  writer.end_array();
  return writer.finish();
}

DataProfileFile parse_data_profile(std::string_view json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root(kSchema, kVersion);
  root.require_keys({"schema", "version", "data", "model", "samples", "samples_by_modality", "series"});
  DataProfileFile result{root.at("data").string(), root.at("model").string(), {}};
  DataProfile& profile = result.profile;
  profile.samples = root.at("samples").integer<std::int64_t>(0, kMaxSamples);
  const JsonValue by_modality = root.at("samples_by_modality");
  by_modality.require_keys({"text", "image", "multi_image", "video", "audio"});
  for (const Modality modality : all_of<Modality>()) {
    profile.by_modality[static_cast<std::size_t>(modality)] =
        by_modality.at(to_string(modality)).integer<std::int64_t>(0, kMaxSamples);
  }
  const std::int64_t sum =
      std::accumulate(profile.by_modality.begin(), profile.by_modality.end(), std::int64_t{0});
  if (sum != profile.samples) {
    root.at("samples").refuse_type("{}, the sum over the modalities", sum);
  }
  for (const JsonValue& series : root.at("series").elements()) profile.series.push_back(read_series(series));
  return result;
}

}  // namespace dflop
