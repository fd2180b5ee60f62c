// A TrainJob describes what 'dflop train' should train.
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

/// A TrainJob says which plan and model are trained on which batches.
struct TrainJob {
  Plan plan;
  std::string where;  ///< the plan's file; "plan" without one
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

/// Adds the options that request a plan: parallelism, microbatches, layout, order and its other parts.
void add_wanted_plan_options(Options& options);

/// Reads the job. The plan comes from a file or, if options of add_wanted_plan_options() are given, is the
/// best plan that satisfies them; without either it has one encoder and one LLM rank.
/// @throws Error (usage), (input) as find_model(), parse_plan(), validate() and load_samples(), and naming
/// the requirement that no plan satisfies
TrainJob read_train_job(const Values& values);

/// Checkpoints say where and how often the state of a run is saved.
struct Checkpoints {
  std::optional<std::string> folder;
  std::int64_t every = 0;  ///< steps; 0: only at the end
  bool resume = false;
};

/// Reads --checkpoint and the options that belong to it. @throws Error (usage)
Checkpoints read_checkpoints(const Values& values);

/// Adds the settings for correction and slow shapes to `options`, which already have the profile. @throws
/// Error (usage)
void read_correction(const Values& values, const TrainJob& job, TrainingOptions& options);

/// Returns, by name, the values that must be equal in all processes of a run; `held_out` describes the
/// evaluation data.
std::vector<std::pair<std::string, std::string>> train_agreement(const Values& values,
                                                                 const TrainingOptions& options,
                                                                 const Plan& plan,
                                                                 const RunIdentity& identity,
                                                                 const std::string& held_out);

}  // namespace dflop
