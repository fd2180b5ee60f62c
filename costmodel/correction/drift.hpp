// ShapeDrift tells whether the data still resemble the samples that a plan was made for.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/measured/correction_fit.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A DriftMeasure compares one quantity of the recent samples with the planning profile. It has drifted if it
/// is outside of [least, most], the range of 99.9 % of same-sized random draws from the profile.
struct DriftMeasure {
  std::string name;
  double profile = 0;
  double recent = 0;
  double least = 0;
  double most = 0;

  bool drifted() const { return recent < least || recent > most; }
};

struct DriftAdvice {
  std::vector<DriftMeasure> measures;  ///< encoder_flop, llm_flop, flop_ratio, shape_distance
  bool replan = false;                 ///< whether any measure has drifted far enough to matter
};

struct DriftOptions {
  int resamples = 3999;  ///< at least 1999; 99.9 % lie between the smallest and the largest
  /// Smaller drifts do not call for a new plan. For loads and their ratio, the change is relative. For the
  /// distance, it is the fraction of samples that moved to other buckets beyond the fraction that chance
  /// explains.
  double least_change = 0.05;
  std::uint64_t seed = 1;
};

/// A ShapeDrift compares the shapes of batches with the samples that a plan was made from: the mean FLOP of
/// each module, which the split of GPUs depends on; the ratio of both; and the total variation distance
/// between the histograms over shape buckets of both modules. Ranges come from a bootstrap (Efron 1979). It
/// is deterministic.
class ShapeDrift {
 public:
  /// Computes the profile's quantities and their ranges.
  /// @throws Error (input) for an empty profile or too few resamples
  ShapeDrift(const ModelSpec& model, std::span<const Sample> profile, DriftOptions options = {});

  /// Compares recent samples with the profile. @throws Error (input) if there are no recent samples
  DriftAdvice advise(std::span<const Sample> recent) const;

 private:
  struct Shape {
    double encoder_flop;
    double llm_flop;
    std::size_t bucket;  ///< index into histogram_
  };
  using Key = std::vector<ShapeBucket>;

  std::vector<double> measure(const std::vector<Shape>& shapes) const;
  Shape shape_of(const Sample& sample) const;

  const ModelSpec& model_;
  DriftOptions options_;
  std::map<Key, std::size_t> buckets_;
  std::vector<double> histogram_;  ///< of the profile; the last entry, 0, is for buckets that it lacks
  std::vector<Shape> profile_;
};

}  // namespace dflop
