// This study measures the error of predictions for live runs, and whether the cost model or the engine causes
// it. `dflop check runs` prints, writes and draws the study's report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/profile/profiler.hpp"
#include "core/cluster.hpp"
#include "core/measured/profile.hpp"
#include "core/model.hpp"
#include "core/timeline.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/training/live_setup.hpp"
#include "kernels/kernels.hpp"
#include "traces/files/plan.hpp"

namespace dflop {

// Limits of the commands that compare runs with predictions.
inline constexpr std::int64_t kMaxCheckedSteps = 10'000;  ///< steps per plan
inline constexpr double kMaxCheckBudgetS = 86'400;        ///< time to measure a profile

struct NamedPlan {
  std::string name;
  Plan plan;
};

/// Completes the plans of a grid and sets their `gbs`. Reads the plans that are files, and distributes the
/// layers of the others as evenly as possible over their stages. `file` is the grid's path, which errors
/// name. Paths of plan files are relative to the grid's folder.
/// @throws Error (input) naming a plan that is for another model or cluster, does not fit the model, the
/// cluster or `gbs`, or cannot run live; also if the model cannot run live
std::vector<NamedPlan> complete_plans(const PlanGrid& grid, const std::string& file, int gbs,
                                      const ModelSpec& model, const ClusterSpec& cluster);

/// Checks that measure_for_plan() can measure everything needed to predict a plan: all parts of the model at
/// each tp of the plan. @throws what require_split() throws
void require_measurable(const Plan& plan, const ModelSpec& model);

/// A StepFidelity compares one step of one plan with its prediction.
struct StepFidelity {
  Seconds measured{0};
  Seconds predicted{0};  ///< from the profile's costs, simulated by the engine
  Seconds replayed{0};   ///< from the step's own durations, simulated by the engine
  double measured_idle = 0;
  double predicted_idle = 0;
  double extrapolated = 0;  ///< see extrapolated_fraction()
};

/// An OperationFidelity adds up the times of all operations of one kind in the measured steps.
struct OperationFidelity {
  std::string module;  ///< "encoder", "llm" or "encoder+llm", by the layers of the operation's stage; for a
                       ///< message, of the sender's stage
  std::string kind;    ///< name of an Op, "message" or "all_reduce"
  std::int64_t count = 0;
  Seconds predicted{0};  ///< sum over `count` operations
  Seconds measured{0};
};

/// A RankFidelity describes the ranks of one tp group.
struct RankFidelity {
  std::int32_t first_rank = 0;
  std::int32_t ranks = 1;
  Bytes predicted_peak;  ///< model state, activations and buffers
  Bytes measured_peak;   ///< measured on the device, max over all steps; zero if not recorded
};

/// A PlanFidelity is the result of one plan's run.
struct PlanFidelity {
  std::string name;                           ///< name in the report
  std::string plan;                           ///< short form, as returned by describe()
  std::vector<StepFidelity> steps;            ///< without warm-up steps
  std::vector<OperationFidelity> operations;  ///< by module, then kind
  std::vector<RankFidelity> ranks;
  std::optional<double> others = {};  ///< fraction of the machine's processor time used by other processes
  std::optional<ProfileTables> profile = {};  ///< measured for this plan; none: the user gave a profile
  std::string failure = {};                   ///< why the run failed; then there are no steps

  bool failed() const { return !failure.empty(); }

  /// Return the median time over the steps.
  Seconds measured() const;
  Seconds predicted() const;
  Seconds replayed() const;
  /// error() is the relative error of the predicted time. engine_error() is the relative error of the
  /// replayed time, to which only the engine contributes.
  double error() const { return predicted() / measured() - 1; }
  double engine_error() const { return replayed() / measured() - 1; }
};

struct FidelityOptions {
  LiveDevice device;
  DType dtype = DType::f32;
  std::int64_t steps = 1;    ///< counted steps
  std::int64_t warm_up = 0;  ///< uncounted steps before the counted ones
  std::uint64_t seed = 1;
  SchedulerChoice scheduler;
};

/// On a host, the profile is measured this many times between the steps of a plan, because a host's speed
/// varies over time. With fewer steps, it is measured once per step.
inline constexpr int kProfilesOfAPlan = 6;

/// PlanPoints gives the largest sizes to measure for a profile.
struct PlanPoints {
  PointRange llm = {};
  std::optional<PointRange> encoder = {};  ///< none: the range of the LLM
};

/// A MeasureRequest asks for a profile, or a part of one.
struct MeasureRequest {
  double part = 1;                        ///< fraction of the plan's budget
  std::optional<PlanPoints> points = {};  ///< none: the default sizes
};

/// A FidelityInput has either `profile` or `measure`.
struct FidelityInput {
  std::shared_ptr<const Target> target;
  BatchStream batches;                     ///< has a batch for each step, including warm-up steps
  const ProfileTables* profile = nullptr;  ///< must satisfy require_profile()
  std::string profile_name = {};           ///< its name in errors
  bool extrapolate = false;                ///< see require_reach()
  /// Measures a profile for a plan. On a host, it is called several times during the run, each time with a
  /// part of the budget; the median times predict all steps. On a GPU, it is called once after the steps,
  /// when the sizes of the microbatches are known.
  std::function<ProfileTables(const Plan&, const MeasureRequest&)> measure = {};
};

/// Returns the median of several profiles: the median time of each size that all profiles measured, and the
/// median coefficients of fitted lines. Everything else comes from the first profile.
/// @pre there is at least one profile, and all have the same model, device and tp
ProfileTables median_profile(const std::vector<ProfileTables>& profiles);

/// Predicts the steps of a run of `plan`, and also replays them with their own durations. Uses the
/// recording's number of cores. Errors name `file` and count iterations from `first`.
/// @throws what recorded_program() throws
PlanFidelity judge_steps(const std::string& name, const std::string& plan, std::span<const Timeline> steps,
                         const ProfiledCostModel& cost, const std::string& file, int first = 0);

/// Runs a plan live and predicts each of its steps. Calls `on_step` after each step; an exception from it
/// ends the run.
/// @throws what TrainingLoop::run() throws
PlanFidelity study_plan(const NamedPlan& plan, const FidelityInput& input, const FidelityOptions& options,
                        const std::function<void()>& on_step);

/// Adds the predicted and measured times of one step's instructions, messages and reductions to `operations`.
void add_operations(std::vector<OperationFidelity>& operations, const Program& program,
                    const ProgramCosts& predicted, const ProgramCosts& measured);

/// A PlanMeasurement says how a profile is measured.
struct PlanMeasurement {
  const LiveDevice& device;
  DType dtype = DType::f32;
  std::uint64_t seed = 1;
  Seconds budget{0};
  std::optional<PlanPoints> points = {};  ///< the largest sizes; none: usual_most_tokens()
};

/// Measures everything needed to predict a plan. As many ranks compute at the same time as in the plan, up to
/// the number that the device has cores for. For a shared plan, each module is measured on the parts of
/// devices that its ranks use. Calls `progress` between measurements; an exception from it ends them.
/// @throws what measure_profile() throws
ProfileTables measure_for_plan(const ModelSpec& model, const Plan& plan, const PlanMeasurement& how,
                               const std::function<void()>& progress);

/// Return the columns, and the cells of a row, of a table of operations. `all` is the total measured time.
std::vector<Column> operation_columns();
std::vector<Cell> operation_cells(const OperationFidelity& operation, Seconds all);
Seconds measured_in_all(const std::vector<OperationFidelity>& operations);

/// Returns the operations of all plans, added up by module and kind.
std::vector<OperationFidelity> all_operations(const std::vector<PlanFidelity>& plans);

/// Returns a row for each plan.
Table fidelity_table(const std::vector<PlanFidelity>& plans);

/// Returns fidelity_table() with two more rows: the means and the maxima of absolute errors.
Table fidelity_table_with_summary(const std::vector<PlanFidelity>& plans);

/// Returns a table with a row for each plan and kind of operation.
Table operations_table(const std::vector<PlanFidelity>& plans);
/// Returns a table with a row for each kind of operation, summed over all plans.
Table all_operations_table(const std::vector<PlanFidelity>& plans);

/// Returns the results as JSON: {"plans", "summary", "operations"}.
std::string fidelity_json(const std::vector<PlanFidelity>& plans);

/// Makes an HTML page with all results.
std::string fidelity_page(const Provenance& made_by, const std::vector<PlanFidelity>& plans);

}  // namespace dflop
