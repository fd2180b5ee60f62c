// This file evaluates the loss on held-out data during training, with forward passes only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/content/content_loader.hpp"
#include "backend/run/live_executor.hpp"
#include "backend/world.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/training/content_ahead.hpp"
#include "experiments/training/job.hpp"

namespace dflop {

/// HeldOutData holds the data of --eval-data and how often to evaluate on it.
struct HeldOutData {
  std::shared_ptr<const std::vector<Sample>> samples;
  std::shared_ptr<const Dataset> shards;  ///< null if contents are made up
  std::string fingerprint;
  std::int64_t every = 0;               ///< interval in steps; 0: only at the end
  std::optional<std::int64_t> batches;  ///< max number of batches; none: kMaxHeldOutBatches

  /// Returns whether a run with last step `last` is evaluated after `step`.
  bool is_due(std::int64_t step, std::int64_t last) const {
    return step == last || (every > 0 && step % every == 0);
  }
};

/// The default max number of batches to evaluate.
constexpr std::int64_t kMaxHeldOutBatches = 100;

/// Returns a text of the held-out settings, which must be equal in all processes of a run.
std::string describe(const std::optional<HeldOutData>& data);

/// Returns the samples in batches of gbs, in the order of the data. The remaining samples form a last batch
/// if there is at least one for each bin; otherwise they are left out.
std::vector<Batch> held_out_batches(const std::vector<Sample>& samples, const Plan& plan,
                                    std::int64_t most_batches);

/// A HeldOutLoss is the result of an evaluation. Only the leading process has it.
struct HeldOutLoss {
  double loss = 0;  ///< mean over all tokens that count in the loss
  Seconds time{0};
};

/// A HeldOutEvaluation runs forward passes on the same batches each time, under the training plan. It does
/// not affect training steps. All processes of the world construct it and make the same calls.
class HeldOutEvaluation {
 public:
  /// Schedules the batches with the run's scheduler. `dtype` is the precision of the contents. `job` and
  /// `world` must outlive it.
  /// @throws Error (input) if no schedule obeys the caps
  HeldOutEvaluation(HeldOutData data, const TrainJob& job, const SchedulerChoice& scheduler, World& world,
                    int data_threads, DType dtype);

  const HeldOutData& data() const { return data_; }

  /// Evaluates with the kernel variants in `kernels`, if not null.
  /// @throws what LiveExecutor::step() throws; and, in all processes, what ContentLoader::wait() throws in
  /// one of them
  HeldOutLoss run(const LiveExecutor& executor, const KernelChoices* kernels);

  /// If run() threw, returns whether the reason was that data could not be read. All processes then return
  /// true.
  bool failed_reading() const { return failed_reading_; }

 private:
  void wait_for_content();
  double batch_loss(std::size_t batch, const LiveExecutor& executor, const KernelChoices* kernels) const;

  HeldOutData data_;
  const TrainJob& job_;
  World& world_;
  std::vector<Batch> batches_;
  std::vector<Assignment> assignments_;
  std::shared_ptr<ContentLoader> loader_;  // null if contents are made up
  std::shared_ptr<const Contents> contents_;
  std::optional<ContentAhead> ahead_;  // empty if contents are made up
  bool failed_reading_ = false;
};

}  // namespace dflop
