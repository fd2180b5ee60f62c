// ShapeDrift tells whether the data are still those that a plan was made for.
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

/// A DriftMeasure compares one quantity of the recent samples with the planning profile's. It has drifted
/// outside of [least, most], where 99.9 % of draws of as many samples from the profile are expected.
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
  bool replan = false;                 ///< any has drifted and matters
};

struct DriftOptions {
  int resamples = 3999;  ///< at least 1999, of which the smallest and the largest have 99.9 % between them
  /// Smaller drifts leave the plan a good one: of loads and their ratio relative, of the distance the part of
  /// samples beyond what chance would move.
  double least_change = 0.05;
  std::uint64_t seed = 1;
};

/// A ShapeDrift compares the shapes of batches with those a plan was made from: mean FLOP of each module, on
/// which the split of GPUs rests, their ratio, and the total variation distance of the histograms over shape
/// buckets of both modules. Ranges by bootstrap (Efron 1979). Deterministic.
class ShapeDrift {
 public:
  /// Keeps the profile's quantities.
  /// @throws Error (input) for an empty profile or too few resamples
  ShapeDrift(const ModelSpec& model, std::span<const Sample> profile, DriftOptions options = {});

  /// Compares recent samples with the profile. @throws Error (input) for no samples
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
  std::vector<double> histogram_;  ///< of the profile; the last entry, 0, is for all buckets that it lacks
  std::vector<Shape> profile_;
};

}  // namespace dflop
