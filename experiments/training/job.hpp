// A TrainJob describes what 'dflop train' should train.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/target.hpp"
#include "kernels/attention_options.hpp"
#include "traces/dataset/dataset.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

constexpr std::int64_t kMaxSteps = 1'000'000;

/// A TrainJob defines the plan, the model and the batches of a training run.
struct TrainJob {
  Plan plan;
  std::string where;  ///< the plan's file; "plan" if there is none
  std::shared_ptr<const Target> target;
  std::string data;
  std::string data_fingerprint;
  DataOrigin data_origin;
  std::shared_ptr<const std::vector<Sample>> samples;  ///< the data set's samples
  std::shared_ptr<const Dataset> shards;               ///< the data set; null if contents are made up
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
  OutlierDelay delay;
  AttentionSums attention_sums = AttentionSums::fixed;

  /// Returns the batches of all steps, starting with the first.
  BatchStream batches() const { return {samples, plan.gbs, seed, delay, target->model}; }
};

}  // namespace dflop
