// Held-out data tell while a run trains what it has learned: their loss, by forwards alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/content/content_loader.hpp"
#include "backend/run/live_executor.hpp"
#include "backend/world.hpp"
#include "experiments/studies/study.hpp"
#include "experiments/training/content_ahead.hpp"
#include "experiments/training/job.hpp"

namespace dflop {

/// HeldOutData are what --eval-data names, and how often a run is evaluated on them.
struct HeldOutData {
  std::shared_ptr<const std::vector<Sample>> samples;
  std::shared_ptr<const Dataset> shards;  ///< null where contents are made up
  std::string fingerprint;
  std::int64_t every = 0;               ///< steps; 0: only at the end
  std::optional<std::int64_t> batches;  ///< at most; none: kMostHeldOutBatches at most

  /// Returns whether a run that ends after `last` is evaluated after `step`.
  bool is_due(std::int64_t step, std::int64_t last) const {
    return step == last || (every > 0 && step % every == 0);
  }
};

/// So many batches are evaluated where the user does not say how many.
constexpr std::int64_t kMostHeldOutBatches = 100;

/// Adds --eval-data, --eval-every and --eval-steps.
void add_held_out_options(Options& options);
/// Reads them; nothing without --eval-data.
/// @throws Error (usage) for the others without it; as read_samples() and open_shards(), and Error (input)
/// for fewer samples than a step of the plan needs
std::optional<HeldOutData> read_held_out(const Values& values, const TrainJob& job);
/// Returns what must be the same in all processes of a run.
std::string describe(const std::optional<HeldOutData>& data);

/// Returns the samples in batches of gbs in the order of the data. A rest that has a sample for each bin is a
/// batch, too; a smaller one is left out.
std::vector<Batch> held_out_batches(const std::vector<Sample>& samples, const Plan& plan,
                                    std::int64_t most_batches);

/// A HeldOutLoss is what an evaluation came to, in the process that leads the world.
struct HeldOutLoss {
  double loss = 0;  ///< mean over the trained tokens of all batches
  Seconds time{0};
};

/// A HeldOutEvaluation runs the forwards of the same batches each time, under the plan that is trained. It
/// changes nothing that a step reads. All processes of the world make it and call it alike.
class HeldOutEvaluation {
 public:
  /// Schedules the batches as the run's are, whose precision is `dtype`. Job and world outlive it.
  /// @throws Error (input) where no schedule obeys the caps
  HeldOutEvaluation(HeldOutData data, const TrainJob& job, const SchedulerChoice& scheduler, World& world,
                    int data_threads, DType dtype);

  const HeldOutData& data() const { return data_; }

  /// Evaluates. `kernels`, where it is not null, are the variants of operations that run.
  /// @throws as LiveExecutor::step(), and as ContentLoader::wait(), in all processes alike
  HeldOutLoss run(const LiveExecutor& executor, const KernelChoices* kernels);

  /// Tells, when run() has thrown, whether data could not be read, of which all processes know.
  bool failed_reading() const { return failed_reading_; }

 private:
  void wait_for_content();
  double batch_loss(std::size_t batch, const LiveExecutor& executor, const KernelChoices* kernels) const;

  HeldOutData data_;
  const TrainJob& job_;
  World& world_;
  std::vector<Batch> batches_;
  std::vector<Assignment> assignments_;
  std::shared_ptr<ContentLoader> loader_;  // null where contents are made up
  std::shared_ptr<const Contents> contents_;
  std::optional<ContentAhead> ahead_;  // none where contents are made up
  bool failed_reading_ = false;
};

}  // namespace dflop
