// This file has the steps from which commands are built: from data to batches, to schedules, to simulated
// iterations. `compare` uses the same steps, so its numbers equal those of `plan`, `schedule` and `simulate`
// run one by one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/iteration/iteration.hpp"
#include "core/iteration/planner.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/support/random.hpp"
#include "costmodel/analytic/analytic.hpp"
#include "experiments/studies/profile_option.hpp"
#include "sim/engine.hpp"
#include "solver/service/outlier_delay.hpp"
#include "solver/service/scheduling_service.hpp"
#include "traces/files/schedule.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// A Use is the purpose of a Target. If its costs are not used, because other costs replace them or only its
/// shape matters, the cluster's speeds may be placeholders.
enum class Use : std::uint8_t { costs, shape };

/// A Target is a model on a cluster, with its cost model and executor.
struct Target {
  /// Finds model and cluster. `plan_file` is the file that names them, for errors; empty if the command line
  /// names them. `change` is applied to the cluster first. Costs come from `profile` if there is one, else
  /// they are analytic.
  /// @throws Error (input) as find_model() and find_cluster(), for a profile of another model, and without a
  /// profile, if costs are used, as require_speeds().
  Target(const std::string& model_name, const std::string& cluster_name, const std::string& plan_file = "",
         const std::function<void(ClusterSpec&)>& change = {}, const NamedProfile* profile = nullptr,
         Use use = Use::costs);
  Target(const Target&) = delete;  // the members refer to each other

  ModelSpec model;
  ClusterSpec cluster;
  const std::unique_ptr<const SumCostModel> owned_cost;
  const SumCostModel& cost;
  std::optional<Origin> profile = {};  ///< the profile that the costs come from
  std::optional<Origin> kernels = {};  ///< the kernel file that the profile was adjusted to
  SimExecutor executor;                ///< without conditions

  Problem problem() const { return {model, cluster, cost}; }
};

/// PlanFiles holds a plan and its schedule, read from files, and the target that the plan runs on.
struct PlanFiles {
  /// Reads both; `change` is applied to the cluster first.
  /// @throws Error (input) for a file that cannot be read, or one that does not fit the other or its model
  PlanFiles(const std::string& plan_file, const std::string& schedule_file,
            const std::function<void(ClusterSpec&)>& change = {}, const NamedProfile* profile = nullptr);

 private:
  PlanFiles(const std::string& plan_file, const std::string& plan_text, const std::string& schedule_file,
            const std::function<void(ClusterSpec&)>& change, const NamedProfile* profile);

 public:
  Plan plan;
  ScheduleFile schedule;
  Target target;
  std::optional<Provenance> plan_made_by;
};

/// Reads a data set and discards it. @throws Error (input) if load_samples() could not read it
void check_data(const std::string& file);

/// Returns "86 of 2,000 samples cut at 32,768 tokens, 12.2 % of all tokens (--max-tokens)"; empty if no
/// sample is truncated. `samples` is the number of samples, 0 if unknown.
std::string describe(const SampleCut& cut, std::int64_t samples = 0);

/// Loads and preprocesses a data set, or takes samples unchanged (traces/files/samples.hpp). With `report`,
/// prints the number of assumptions and of records left out to standard error. `origin`, if given, receives
/// the provenance for files made from the samples. `of_records` names given command-line options that control
/// how samples are made from records.
/// @throws Error (input) if no sample is left, (usage) for record options when the data are samples.
std::vector<Sample> load_samples(const std::string& file, const PreprocessOptions& options,
                                 bool report = true, DataOrigin* origin = nullptr,
                                 const std::vector<std::string>& of_records = {});

/// A BatchStream returns consecutive pieces of a seeded shuffle of the samples, reshuffled after each pass.
/// The same samples, gbs and seed give the same batches. A copy continues independently from the same
/// position; the samples are shared.
///
/// Outliers may be delayed. In that case delay_outliers() regroups the whole batches of a pass, `window` at a
/// time, so that a pass still has each sample once. A batch with samples of two passes stays as drawn. The
/// cost of a sample is its FLOP (model_flop()), because the order must not depend on anything that a run can
/// change: plan, cluster and profile.
class BatchStream {
 public:
  /// Requires at least one sample and gbs >= 1.
  BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed);
  BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed,
              const OutlierDelay& delay, const ModelSpec& model);

  Batch next();
  /// Skips the next `batches` batches.
  void skip(std::int64_t batches) {
    for (std::int64_t i = 0; i < batches; ++i) next_numbers();
  }

  /// Returns how far samples have moved, over all batches returned or skipped so far.
  const DelayCount& delayed() const { return delayed_; }

 private:
  /// Returns the indices of the next batch's samples, valid until the next call.
  std::span<const std::int32_t> next_numbers();
  void draw_window();
  std::int32_t next_number();

  std::shared_ptr<const std::vector<Sample>> samples_;
  std::size_t gbs_;
  Random random_;
  std::vector<std::int32_t> order_;
  std::size_t next_;  ///< position in order_
  OutlierDelay delay_;
  std::shared_ptr<const std::vector<double>> costs_;  ///< of all samples, if outliers are delayed
  std::vector<std::int32_t> window_;                  ///< indices of the samples of the next batches
  std::vector<std::int32_t> drawn_at_;                ///< position in the window at which each was drawn
  std::size_t given_ = 0;                             ///< number of samples of window_ already returned
  DelayCount delayed_;
};

/// Returns global batches 0 to iterations - 1 of a BatchStream. All compared systems get the same batches.
std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed);

/// FurtherBatches are batches for estimating how much memory the data may need.
struct FurtherBatches {
  std::vector<Batch> drawn;  ///< 64 batches of a BatchStream; as few as 16 if a batch has more than 256
                             ///< samples
  /// Half as many batches as `drawn`. Each begins with one of the longest samples, which a run meets once in
  /// a pass over the data: in turn the samples with the most LLM tokens and with the most encoder tokens.
  /// They are at most one in 64 samples.
  std::vector<Batch> longest;
};

FurtherBatches further_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Returns the further batches that plans should fit. First come the kHardestBatches: the batches with the
/// longest samples, with the most LLM tokens and with the most encoder tokens. Each of the longest samples is
/// in five batches. Last come the headroom_batches().
std::vector<Batch> batches_to_fit(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Returns the further batches with which estimate_headroom() estimates a plan's memory.
FurtherBatches headroom_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Like the other make_batches(). If outliers are delayed, also reports on standard error and in `origin` how
/// far samples have moved.
std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed, const OutlierDelay& delay, const ModelSpec& model,
                                DataOrigin& origin);

/// Returns "outliers are delayed in windows of 4 batches of 16x4 bins".
std::string describe(const OutlierDelay& delay);
/// Returns the same, followed by "; 92 of 4096 samples have moved, by 3 batches at most and 1.6 in the mean".
std::string describe(const OutlierDelay& delay, const DelayCount& count);

/// A SchedulerChoice holds a command's options for its microbatch scheduler.
struct SchedulerChoice {
  std::string name;
  ScheduleLimits limits = {};
  /// If true, limits.memory is the cluster's memory. None: the plan decides.
  std::optional<bool> respect_memory = {};
  /// The scheduler's own cost model, which must outlive the runs. Null: the target's.
  const CostModel* cost = nullptr;

  /// Makes the scheduler stay within memory for all plans, not only those that require it, so that they are
  /// comparable. Does nothing if the user says otherwise, or the scheduler ignores costs.
  void keep_within_memory();
  bool respects_memory(const Plan& plan) const { return respect_memory.value_or(plan.respect_memory); }
  /// Returns the limits for a plan, including the memory of a GPU of the cluster if it is respected.
  ScheduleLimits limits_on(const ClusterSpec& cluster, const Plan& plan) const;
};

/// Schedules every batch. `seconds`, if given, receives the measured time of each. An iteration whose caps
/// cannot be obeyed, or were not obeyed, has status infeasible, a reason and no bins. It is the last one.
ScheduleFile schedule_batches(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                              const SchedulerChoice& choice, std::uint64_t seed,
                              std::vector<Seconds>* seconds = nullptr);

/// An Evaluation is the simulated result of a plan and schedule.
struct Evaluation {
  std::vector<Timeline> timelines;  ///< one per iteration
  Seconds mean{0};                  ///< mean iteration time
  Seconds p95{0};                   ///< p95 iteration time, nearest rank
  double samples_per_s = 0;
  double llm_tokens_per_s = 0;
  double mfu = 0;  ///< model FLOP (no recomputation, no padding) / (time x all GPUs of the cluster x peak)
  double idle_fraction = 0;  ///< mean over the plan's ranks and iterations, weighted by iteration time
  Bytes peak_memory;
  PipelineOrder order;  ///< order of the first iteration
};

/// Returns the percentile `part` (such as 0.95) of ascending values, by nearest rank. @pre `rising` is not
/// empty
template <typename Value>
Value nearest_rank(const std::vector<Value>& rising, double part) {
  const double rank = std::ceil(part * static_cast<double>(rising.size()));
  return rising[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

/// Makes and runs every iteration of a schedule, in the user's order if one is given, and keeps spans of the
/// first `traced` iterations. Stops after the first iteration that stalls.
Evaluation evaluate(const Plan& plan, const Target& target, const ScheduleFile& schedule, int traced,
                    const Executor& executor, const std::optional<PipelineOrder>& order = {});

/// A ScheduledRun is a schedule and its evaluation, which is empty if the schedule's last iteration is
/// infeasible.
struct ScheduledRun {
  ScheduleFile schedule;
  std::optional<Evaluation> evaluation;
};

/// Combines schedule_batches() and evaluate() in less time: each batch is scheduled while the previous one is
/// evaluated.
ScheduledRun schedule_and_evaluate(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                                   const SchedulerChoice& choice, std::uint64_t seed, int traced);

/// Notes for which GPU types of a mixed cluster plans are made; prints nothing for other clusters.
void note_gpu_types(const ClusterSpec& cluster);

/// Prints a note about which parts are trained, unless all are. @throws Error as validate()
void note_trained(const TrainedParts& trained, const ModelSpec& model);

/// Returns a message about a plan that needs more memory in an iteration than a GPU has: the rank, the time
/// and its memory at that time. On a mixed cluster each rank has the memory of its own GPU. Returns nothing
/// if the plan fits.
std::optional<std::string> out_of_memory(std::span<const Timeline> timelines, const ClusterSpec& cluster);

/// Checks a schedule. `file` names it in errors.
/// @throws Error (input) unless it is for the plan's model, and its assignments fit the plan.
void validate(const ScheduleFile& schedule, const Plan& plan, const std::string& file);

/// Returns the number of assignments with each status, such as "optimal 7, node_limit 1".
std::string status_counts(const ScheduleFile& schedule);

/// Returns the mean gap of the iterations with a bound; zero if none has one.
double mean_gap(const ScheduleFile& schedule);

/// Tables put this mark on a plan whose layout has not been confirmed on GPUs.
inline constexpr std::string_view kUnconfirmed = " *";

/// Returns whether plans with this layout have never run on GPUs in the predicted way.
constexpr bool is_unconfirmed(Layout layout) {
  return layout == Layout::shared;
}

/// Returns describe(plan), with kUnconfirmed if it applies.
std::string marked(const Plan& plan);

/// Plans with the named planner, with a progress bar. With `best_parts`, the parts that neither the planner
/// nor the search options determine are chosen by simulation (solver/planners/trials/candidates.hpp). A
/// search keeps its plans within memory when it schedules them, and marks them so that later schedulers do
/// the same. A plan whose tp the search options do not allow counts as infeasible.
PlanResult make_plan(const std::string& planner, const Target& target, const std::vector<Sample>& samples,
                     const std::vector<Batch>& batches, int gbs, std::uint64_t seed,
                     const PlanOptions& options, const SearchOptions& search = {}, bool best_parts = false);

}  // namespace dflop
