#include "costmodel/correction/drift.hpp"

#include <algorithm>
#include <cmath>

#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/correction/correction.hpp"

namespace dflop {
namespace {

constexpr std::uint64_t kDriftStream = 0x6472696674;
/// One draw in this many lies outside of a range: half of them on either side, or all on the only side.
constexpr int kOneIn = 1000;
constexpr int kMinResamples = 2 * kOneIn - 1;
/// Buckets are a quarter of an octave wide; a sixteenth would leave most buckets of a batch empty.
constexpr int kCoarser = 4;

/// Names are in the order of DriftAdvice::measures.
enum Measure : std::size_t { kEncoder, kLlm, kRatio, kDistance, kMeasures };
constexpr const char* kMeasureNames[kMeasures] = {"encoder_flop", "llm_flop", "flop_ratio", "shape_distance"};

std::vector<ShapeBucket> key_of(const Sample& sample) {
  std::vector<ShapeBucket> key = buckets_of(StageKind::both, sample);
  for (ShapeBucket& bucket : key) bucket = {bucket.encoder, bucket.tokens / kCoarser, 0};
  return key;
}

}  // namespace

ShapeDrift::ShapeDrift(const ModelSpec& model, std::span<const Sample> profile, DriftOptions options)
    : model_(model), options_(options) {
  if (profile.empty()) refuse_input("drift", "expected a profile with samples, found none");
  if (options.resamples < kMinResamples) {
    refuse_input("drift", "expected at least {} resamples, found {}", kMinResamples, options.resamples);
  }
  for (const Sample& sample : profile) buckets_.try_emplace(key_of(sample), buckets_.size());
  histogram_.assign(buckets_.size() + 1, 0.0);
  for (const Sample& sample : profile) profile_.push_back(shape_of(sample));
  for (const Shape& shape : profile_) histogram_[shape.bucket] += 1.0 / static_cast<double>(profile.size());
}

ShapeDrift::Shape ShapeDrift::shape_of(const Sample& sample) const {
  const auto found = buckets_.find(key_of(sample));
  return {encoder_flop(model_, sample.encoder()).count, llm_flop(model_, sample.llm()).count,
          found == buckets_.end() ? buckets_.size() : found->second};
}

std::vector<double> ShapeDrift::measure(const std::vector<Shape>& shapes) const {
  const auto count = static_cast<double>(shapes.size());
  std::vector<double> measures(kMeasures, 0.0);
  std::vector<double> histogram(histogram_.size(), 0.0);
  for (const Shape& shape : shapes) {
    measures[kEncoder] += shape.encoder_flop / count;
    measures[kLlm] += shape.llm_flop / count;
    histogram[shape.bucket] += 1 / count;
  }
  measures[kRatio] = measures[kLlm] > 0 ? measures[kEncoder] / measures[kLlm] : 0.0;
  for (std::size_t b = 0; b < histogram.size(); ++b) {
    measures[kDistance] += std::abs(histogram[b] - histogram_[b]) / 2;
  }
  return measures;
}

DriftAdvice ShapeDrift::advise(std::span<const Sample> recent) const {
  if (recent.empty()) refuse_input("drift", "expected recent samples, found none");
  std::vector<Shape> shapes;
  for (const Sample& sample : recent) shapes.push_back(shape_of(sample));
  const std::vector<double> now = measure(shapes);
  const std::vector<double> planned = measure(profile_);
  std::vector<std::vector<double>> drawn(kMeasures);
  Random random(options_.seed, kDriftStream);
  for (int r = 0; r < options_.resamples; ++r) {
    for (Shape& shape : shapes) shape = profile_[random.below(profile_.size())];
    const std::vector<double> measures = measure(shapes);
    for (std::size_t m = 0; m < kMeasures; ++m) drawn[m].push_back(measures[m]);
  }
  DriftAdvice advice;
  // Below the r-th smallest of n, r / (n + 1) of all draws are expected, and as many above the r-th largest.
  const auto rank = static_cast<std::size_t>((options_.resamples + 1) / (2 * kOneIn));
  for (std::size_t m = 0; m < kMeasures; ++m) {
    std::sort(drawn[m].begin(), drawn[m].end());
    const std::vector<double>& sorted = drawn[m];
    DriftMeasure measure{kMeasureNames[m], planned[m], now[m], sorted[rank - 1],
                         sorted[sorted.size() - rank]};
    if (m == kDistance) {
      measure.least = 0;
      measure.most = sorted[sorted.size() - 2 * rank];
    }
    const double change = m == kDistance ? measure.recent - measure.most
                                         : std::abs(measure.recent - measure.profile) / measure.profile;
    const bool matters = !(change < options_.least_change);
    advice.replan = advice.replan || (measure.drifted() && matters);
    advice.measures.push_back(std::move(measure));
  }
  return advice;
}

}  // namespace dflop
