// A TrainJob is what 'dflop train' is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/studies/options.hpp"
#include "experiments/studies/study.hpp"
#include "experiments/training/checkpoint.hpp"
#include "experiments/training/loop.hpp"

namespace dflop {

constexpr std::int64_t kMostSteps = 1'000'000;

/// A TrainJob says what is trained on which batches.
struct TrainJob {
  Plan plan;
  std::string where;  ///< the plan's file; "plan" without one
  std::shared_ptr<const Target> target;
  std::string data;
  std::string data_fingerprint;
  DataOrigin data_origin;
  std::shared_ptr<const std::vector<Sample>> samples;  ///< of the data set
  std::shared_ptr<const Dataset> shards;               ///< it; null where contents are made up
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
  OutlierDelay delay;
  AttentionSums attention_sums = AttentionSums::fixed;

  /// Returns the batches of the steps, from the first on.
  BatchStream batches() const { return {samples, plan.gbs, seed, delay, target->model}; }
};

/// Adds the options that ask for a plan: parallelism, microbatches, layout, order and its other parts.
void add_wanted_plan_options(Options& options);

/// Reads the job. The plan is the file's or, where the options of add_wanted_plan_options() ask for one, the
/// best that has what they say or, without either, one encoder and one LLM rank.
/// @throws Error (usage), (input) as find_model(), parse_plan(), validate() and load_samples(), and naming
/// the wish that no plan grants
TrainJob read_train_job(const Values& values);

/// Checkpoints say where the state of a run is kept, and how often.
struct Checkpoints {
  std::optional<std::string> folder;
  std::int64_t every = 0;  ///< steps; 0: only at the end
  bool resume = false;
};

/// Reads --checkpoint and what belongs to it. @throws Error (usage)
Checkpoints read_checkpoints(const Values& values);

/// Adds correction and slow shapes to the options, which have the profile. @throws Error (usage)
void read_correction(const Values& values, const TrainJob& job, TrainingOptions& options);

/// Returns, by name, what must be the same in all processes of a run; `held_out` says what it is evaluated
/// on.
std::vector<std::pair<std::string, std::string>> train_agreement(const Values& values,
                                                                 const TrainingOptions& options,
                                                                 const Plan& plan,
                                                                 const RunIdentity& identity,
                                                                 const std::string& held_out);

}  // namespace dflop
