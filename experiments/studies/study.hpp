// Commands are made of these steps: data to batches, batches to schedules, schedules to measured iterations.
// `compare` runs exactly these, so its numbers are those of `plan`, `schedule` and `simulate` run one by one.
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

/// A Use says what a Target is made for. Where its costs do not count, as those of something else do or only
/// its shape is asked for, the cluster may have placeholders as speeds.
enum class Use : std::uint8_t { costs, shape };

/// A Target is a model on a cluster, with what it costs and what runs it.
struct Target {
  /// Finds model and cluster. `plan_file` is the file that names them, for errors; empty where the command
  /// line does. `change` is applied to the cluster before anything is made of it. Costs are those of
  /// `profile` where there is one, else analytic.
  /// @throws Error (input) as find_model() and find_cluster(), for a profile of another model, and without
  /// one as require_speeds() where costs count.
  Target(const std::string& model_name, const std::string& cluster_name, const std::string& plan_file = "",
         const std::function<void(ClusterSpec&)>& change = {}, const NamedProfile* profile = nullptr,
         Use use = Use::costs);
  Target(const Target&) = delete;  // the members refer to each other

  ModelSpec model;
  ClusterSpec cluster;
  const std::unique_ptr<const SumCostModel> owned_cost;
  const SumCostModel& cost;
  std::optional<Origin> profile = {};  ///< that the costs are of
  std::optional<Origin> kernels = {};  ///< the file to whose kernels these were adjusted
  SimExecutor executor;                ///< without conditions

  Problem problem() const { return {model, cluster, cost}; }
};

/// PlanFiles are what the files of a plan and of its schedule hold, and what the plan runs on.
struct PlanFiles {
  /// Reads both; `change` is applied to the cluster before anything is made of it.
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

/// Reads a data set and forgets it. @throws Error (input) for what load_samples() cannot read
void check_data(const std::string& file);

/// Returns "86 of 2,000 samples cut at 32,768 tokens, 12.2 % of all tokens (--max-tokens)"; empty where none
/// is cut. `samples` is how many there are, 0 where that is unknown.
std::string describe(const SampleCut& cut, std::int64_t samples = 0);

/// Loads and preprocesses a data set, or takes samples as they are (traces/files/samples.hpp); `report`
/// counts assumptions and left-out records on stderr. `origin`, where given, receives what a file that is
/// made of the samples says of them. `of_records` names options of the command line that say how samples are
/// made of records.
/// @throws Error (input) where no sample is left, (usage) for options of records beside samples.
std::vector<Sample> load_samples(const std::string& file, const PreprocessOptions& options,
                                 bool report = true, DataOrigin* origin = nullptr,
                                 const std::vector<std::string>& of_records = {});

/// A BatchStream gives consecutive pieces of a seeded shuffle of the samples, shuffled anew each time all of
/// them are used up. The same samples, gbs and seed give the same batches. A copy goes on from where the
/// other is, by itself; the samples are shared.
///
/// Outliers may be delayed: the whole batches of a pass, `window` at a time, are then regrouped by
/// delay_outliers(), so that a pass still has each sample once. A batch with samples of two passes stays as
/// it was drawn. Samples cost their FLOP (model_flop()), as an order must not hang on what a run can change:
/// plan, cluster and profile.
class BatchStream {
 public:
  /// Takes at least one sample; gbs >= 1.
  BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed);
  BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed,
              const OutlierDelay& delay, const ModelSpec& model);

  Batch next();
  /// Passes over so many batches.
  void skip(std::int64_t batches) {
    for (std::int64_t i = 0; i < batches; ++i) next_numbers();
  }

  /// Returns how far samples have moved, of all batches that were given or passed over.
  const DelayCount& delayed() const { return delayed_; }

 private:
  /// Returns the numbers of the next batch's samples, until it is called again.
  std::span<const std::int32_t> next_numbers();
  void draw_window();
  std::int32_t next_number();

  std::shared_ptr<const std::vector<Sample>> samples_;
  std::size_t gbs_;
  Random random_;
  std::vector<std::int32_t> order_;
  std::size_t next_;  ///< in order_
  OutlierDelay delay_;
  std::shared_ptr<const std::vector<double>> costs_;  ///< of all samples, where outliers are delayed
  std::vector<std::int32_t> window_;                  ///< numbers of the samples of the next batches
  std::vector<std::int32_t> drawn_at_;                ///< where in the window each of these was drawn
  std::size_t given_ = 0;                             ///< of window_
  DelayCount delayed_;
};

/// Returns global batches 0 to iterations - 1 of a BatchStream. Every system that is compared sees the same
/// ones.
std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed);

/// FurtherBatches show what the data may need of memory.
struct FurtherBatches {
  std::vector<Batch> drawn;  ///< 64 of a BatchStream; of more than 256 samples fewer, down to 16
  /// Half as many. Each begins with one of the longest samples, which a run meets once in a pass over the
  /// data: the sample with the most LLM tokens, the one with the most encoder tokens, the next of each. Of 64
  /// samples one at most is among them.
  std::vector<Batch> longest;
};

FurtherBatches further_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Returns the further batches that plans are to fit, first the kHardestBatches: those with the longest
/// samples, with the most LLM tokens and with the most encoder tokens. Each of the longest samples is in
/// five. The last are the headroom_batches().
std::vector<Batch> batches_to_fit(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Returns the further batches from which estimate_headroom() says what memory a plan needs.
FurtherBatches headroom_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed);

/// Does that of make_batches(), and where outliers are delayed says on standard error and in `origin` how far
/// samples have moved.
std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed, const OutlierDelay& delay, const ModelSpec& model,
                                DataOrigin& origin);

/// Returns "outliers are delayed in windows of 4 batches of 16x4 bins".
std::string describe(const OutlierDelay& delay);
/// Returns that with "; 92 of 4096 samples have moved, by 3 batches at most and 1.6 in the mean".
std::string describe(const OutlierDelay& delay, const DelayCount& count);

/// A SchedulerChoice is what a command says of its microbatch scheduler.
struct SchedulerChoice {
  std::string name;
  ScheduleLimits limits = {};
  /// Limits.memory is then that of the cluster. None: as the plan says.
  std::optional<bool> respect_memory = {};
  /// The scheduler predicts with this, which must outlive the runs. Null: with the target's.
  const CostModel* cost = nullptr;

  /// Has all plans kept within memory, not only those that ask for it, so that they can be compared; unless
  /// the user says otherwise, or the scheduler does not look at costs.
  void keep_within_memory();
  bool respects_memory(const Plan& plan) const { return respect_memory.value_or(plan.respect_memory); }
  /// Returns the limits for a plan, with the memory of a GPU of the cluster where that is respected.
  ScheduleLimits limits_on(const ClusterSpec& cluster, const Plan& plan) const;
};

/// Schedules every batch. `seconds`, where given, receives the measured time of each. An iteration whose caps
/// cannot be obeyed, or were not, has status infeasible, its reason and no bins, and is the last.
ScheduleFile schedule_batches(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                              const SchedulerChoice& choice, std::uint64_t seed,
                              std::vector<Seconds>* seconds = nullptr);

/// An Evaluation is what a plan and schedule come to.
struct Evaluation {
  std::vector<Timeline> timelines;  ///< one per iteration
  Seconds mean{0};                  ///< of iteration time
  Seconds p95{0};                   ///< nearest rank
  double samples_per_s = 0;
  double llm_tokens_per_s = 0;
  double mfu = 0;  ///< model FLOP (no recomputation, no padding) / (time x all GPUs of the cluster x peak)
  double idle_fraction = 0;  ///< mean over ranks of the plan and iterations, weighted by iteration time
  Bytes peak_memory;
  PipelineOrder order;  ///< of the first iteration
};

/// Returns the percentile `part` (0.95) of values in rising order, by nearest rank. @pre there are some
template <typename Value>
Value nearest_rank(const std::vector<Value>& rising, double part) {
  const double rank = std::ceil(part * static_cast<double>(rising.size()));
  return rising[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

/// Makes and runs every iteration of a schedule, in one order of the user's where that is given, and keeps
/// spans of the first `traced` of them. Ends with the first iteration that stalls.
Evaluation evaluate(const Plan& plan, const Target& target, const ScheduleFile& schedule, int traced,
                    const Executor& executor, const std::optional<PipelineOrder>& order = {});

/// A ScheduledRun is a schedule and what it comes to; nothing where an iteration, the schedule's last, is
/// infeasible.
struct ScheduledRun {
  ScheduleFile schedule;
  std::optional<Evaluation> evaluation;
};

/// Does schedule_batches() and then evaluate() in less time: each batch is scheduled while the one before is
/// evaluated.
ScheduledRun schedule_and_evaluate(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                                   const SchedulerChoice& choice, std::uint64_t seed, int traced);

/// Says of a cluster of several GPU types for which of them plans are made; nothing of others.
void note_gpu_types(const ClusterSpec& cluster);

/// Says what is trained, where that is not all. @throws Error as validate()
void note_trained(const TrainedParts& trained, const ModelSpec& model);

/// Returns what to say of a plan that needs more memory in one of its iterations than a GPU has: which rank,
/// when and what is live then. Of a mixed cluster each rank has the memory of its own GPU. Nothing where it
/// fits.
std::optional<std::string> out_of_memory(std::span<const Timeline> timelines, const ClusterSpec& cluster);

/// Checks a schedule. `file` is its place for errors.
/// @throws Error (input) unless it is one of the plan's model, whose assignments fit the plan.
void validate(const ScheduleFile& schedule, const Plan& plan, const std::string& file);

/// Returns how the scheduler came to its assignments, as "optimal 7, node_limit 1".
std::string status_counts(const ScheduleFile& schedule);

/// Returns the mean gap of the iterations that have a bound; zero where none has.
double mean_gap(const ScheduleFile& schedule);

/// The plan of a table's row has this mark where no GPU has confirmed what is predicted of its layout.
inline constexpr std::string_view kUnconfirmed = " *";

/// Returns whether plans of a layout have run on no GPU in the way in which they are predicted.
constexpr bool is_unconfirmed(Layout layout) {
  return layout == Layout::shared;
}

/// Returns describe(plan), with kUnconfirmed where it applies.
std::string marked(const Plan& plan);

/// Plans with the named planner, with a progress bar. `best_parts`: what the planner does not choose and the
/// search options leave open is chosen for its plan by simulation (solver/planners/trials/candidates.hpp). A
/// search has filled its plans within memory, and they ask for as much of those that fill them later. A plan
/// whose tp the search options do not allow counts as infeasible.
PlanResult make_plan(const std::string& planner, const Target& target, const std::vector<Sample>& samples,
                     const std::vector<Batch>& batches, int gbs, std::uint64_t seed,
                     const PlanOptions& options, const SearchOptions& search = {}, bool best_parts = false);

}  // namespace dflop
