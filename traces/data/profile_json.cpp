#include "traces/data/profile_json.hpp"

#include <fmt/format.h>

#include <limits>
#include <numeric>
#include <utility>

#include "traces/text/json_writer.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {
namespace {

constexpr std::string_view kSchema = "dflop.data_profile";
constexpr int kVersion = 1;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;

/// In rising order, the mean apart.
constexpr std::pair<std::string_view, double Series::*> kQuantiles[] = {
    {"min", &Series::min}, {"p10", &Series::p10}, {"p25", &Series::p25},
    {"p50", &Series::p50}, {"p75", &Series::p75}, {"p90", &Series::p90},
    {"p95", &Series::p95}, {"p99", &Series::p99}, {"max", &Series::max}};

constexpr Modality kAllModalities[kModalities] = {Modality::text, Modality::image, Modality::multi_image,
                                                  Modality::video, Modality::audio};

void write_series(JsonWriter& writer, const Series& series) {
  writer.begin_object();
  writer.field("name", series.name);
  for (const auto& [key, member] : kQuantiles) writer.field(key, series.*member);
  writer.field("mean", series.mean);
  writer.row("histogram_edges", series.histogram.edges);
  writer.row("histogram_counts", series.histogram.counts);
  writer.end_object();
}

void read_histogram(const JsonValue& json, Histogram& histogram) {
  const JsonValue edges = json.at("histogram_edges");
  const JsonValue counts = json.at("histogram_counts");
  histogram.edges = edges.numbers();
  histogram.counts = counts.integers(0, kMostSamples);
  const bool both_empty = histogram.edges.empty() && histogram.counts.empty();
  if (!both_empty && histogram.edges.size() != histogram.counts.size() + 1) {
    counts.refuse_type(fmt::format("one count between each two of {} edges", histogram.edges.size()));
  }
  for (std::size_t i = 1; i < histogram.edges.size(); ++i) {
    if (histogram.edges[i] <= histogram.edges[i - 1]) {
      edges.elements()[i].refuse_type(fmt::format("an edge above {}", histogram.edges[i - 1]));
    }
  }
}

Series read_series(const JsonValue& json) {
  json.require_keys({"name", "min", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "max", "mean",
                     "histogram_edges", "histogram_counts"});
  Series series;
  series.name = json.at("name").string();
  double least = -std::numeric_limits<double>::infinity();
  for (const auto& [key, member] : kQuantiles) {
    series.*member = json.at(key).number();
    if (series.*member < least)
      json.at(key).refuse_type(fmt::format("at least {}, the quantile before it", least));
    least = series.*member;
  }
  series.mean = json.at("mean").number();
  read_histogram(json, series.histogram);
  return series;
}

}  // namespace

std::string to_json(const DataProfile& profile, const std::string& data, const std::string& model) {
  JsonWriter writer;
  writer.field("schema", kSchema);
  writer.field("version", kVersion);
  writer.field("data", data);
  writer.field("model", model);
  writer.field("samples", profile.samples);
  writer.begin_object("samples_by_modality");
  for (const Modality modality : kAllModalities) {
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
  profile.samples = root.at("samples").integer<std::int64_t>(0, kMostSamples);
  const JsonValue by_modality = root.at("samples_by_modality");
  by_modality.require_keys({"text", "image", "multi_image", "video", "audio"});
  for (const Modality modality : kAllModalities) {
    profile.by_modality[static_cast<std::size_t>(modality)] =
        by_modality.at(to_string(modality)).integer<std::int64_t>(0, kMostSamples);
  }
  const std::int64_t sum =
      std::accumulate(profile.by_modality.begin(), profile.by_modality.end(), std::int64_t{0});
  if (sum != profile.samples) {
    root.at("samples").refuse_type(fmt::format("{}, the sum over the modalities", sum));
  }
  for (const JsonValue& series : root.at("series").elements()) profile.series.push_back(read_series(series));
  return result;
}

}  // namespace dflop
