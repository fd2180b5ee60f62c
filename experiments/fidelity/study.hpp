// This study tells how far predictions are from runs, and whose fault it is: the cost model's or the
// engine's. Its report is what `dflop fidelity` prints, writes and draws.
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
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/study.hpp"
#include "experiments/training/kernels.hpp"
#include "experiments/training/live_setup.hpp"
#include "kernels/kernels.hpp"
#include "traces/files/plan.hpp"

namespace dflop {

struct NamedPlan {
  std::string name;
  Plan plan;
};

/// Reads the plans that stand in files, gives the stages of the others their layers, as evenly as they go,
/// and all of them `gbs`. `file` is the grid's path, from which plan files are found and errors tell.
/// @throws Error (input) naming the plan that is for another model or cluster, does not fit the model, the
/// cluster or `gbs`, or cannot be run live; also where the model cannot.
std::vector<NamedPlan> complete_plans(const PlanGrid& grid, const std::string& file, int gbs,
                                      const ModelSpec& model, const ClusterSpec& cluster);

/// Checks that measure_for_plan() can measure what predicts a plan: all parts of the model at each tp of the
/// plan. @throws Error (input) as require_split()
void require_measurable(const Plan& plan, const ModelSpec& model);

/// A StepFidelity is one step under one plan.
struct StepFidelity {
  Seconds measured{0};
  Seconds predicted{0};  ///< the profile's costs through the engine
  Seconds replayed{0};   ///< the step's own durations through the engine
  double measured_idle = 0;
  double predicted_idle = 0;
  double extrapolated = 0;  ///< of compute instructions, beyond the profile's points
};

/// An OperationFidelity has all instructions of one kind in the measured steps.
struct OperationFidelity {
  std::string
      module;        ///< "encoder", "llm", "encoder+llm" by the layers of its stage; of messages the sender's
  std::string kind;  ///< an op, "message" or "all_reduce"
  std::int64_t count = 0;
  Seconds predicted{0};  ///< sums
  Seconds measured{0};
};

/// A RankFidelity has the ranks of one tp group.
struct RankFidelity {
  std::int32_t first_rank = 0;
  std::int32_t ranks = 1;
  Bytes predicted_peak;  ///< model state, activations and buffers
  Bytes measured_peak;   ///< of the device, the largest of all steps; zero where the recording has none
};

/// A PlanFidelity is a run of one plan.
struct PlanFidelity {
  std::string name;                           ///< of its row
  std::string plan;                           ///< in short, as describe() says it
  std::vector<StepFidelity> steps;            ///< without warm-up
  std::vector<OperationFidelity> operations;  ///< by module, then kind
  std::vector<RankFidelity> ranks;
  std::optional<double> others = {};  ///< part of the machine's processor time that other processes took
  std::optional<ProfileTables> profile = {};  ///< that predicted it, where it was measured for it
  std::string failure = {};                   ///< why the run failed; then there are no steps

  bool failed() const { return !failure.empty(); }

  /// measured(), predicted() and replayed() are medians over the steps.
  Seconds measured() const;
  Seconds predicted() const;
  Seconds replayed() const;
  /// error() and engine_error() compare them: predicted / measured - 1, likewise replayed.
  double error() const { return predicted() / measured() - 1; }
  double engine_error() const { return replayed() / measured() - 1; }
};

struct FidelityOptions {
  LiveDevice device;
  DType dtype = DType::f32;
  std::int64_t steps = 1;    ///< that count
  std::int64_t warm_up = 0;  ///< before them
  std::uint64_t seed = 1;
  SchedulerChoice scheduler;
  KernelRequest kernels = {};  ///< of the runs and of the profiles that are measured between their steps
};

/// A host's profile is measured so often between the steps of a plan, or as often as there are steps, as
/// hosts are not equally fast at all times.
inline constexpr int kProfilesOfAPlan = 6;

/// PlanPoints say how large the points of a profile become.
struct PlanPoints {
  PointRange llm = {};
  std::optional<PointRange> encoder = {};  ///< none: as the LLM's
};

/// A MeasureRequest asks for a profile with the kernels that the steps of a plan have.
struct MeasureRequest {
  ProfilerKernels kernels = {};
  double part = 1;                        ///< of the plan's budget
  std::optional<PlanPoints> points = {};  ///< none: the usual ones
};

/// A FidelityInput has either `profile` or `measure`.
struct FidelityInput {
  std::shared_ptr<const Target> target;
  BatchStream batches;                     ///< one a step, warm-up included
  const ProfileTables* profile = nullptr;  ///< as require_profile() wants it
  std::string profile_name = {};           ///< its place for errors
  bool extrapolate = false;                ///< see require_reach()
  /// Measures a profile for a plan: on a host in parts that are spread over the run, whose medians predict
  /// all steps; on a GPU once, after the steps, when it is known how large their microbatches are.
  std::function<ProfileTables(const Plan&, const MeasureRequest&)> measure = {};
};

/// Returns a profile of the medians of the times of the points that all have, of the lines' coefficients, and
/// the rest of the first. @pre there is one, and all are of the same model, device and tp
ProfileTables median_profile(const std::vector<ProfileTables>& profiles);

/// Predicts the steps of a run of `plan`, and runs them again by their own durations, on the cores that they
/// ran on. `file` is their place for errors, in which they begin at iteration `first`.
/// @throws Error (input) as recorded_program()
PlanFidelity judge_steps(const std::string& name, const std::string& plan, std::span<const Timeline> steps,
                         const ProfiledCostModel& cost, const std::string& file, int first = 0);

/// Runs a plan live and predicts each of its steps. Calls `on_step` after each; what it throws ends the run.
/// @throws as TrainingLoop::run()
PlanFidelity study_plan(const NamedPlan& plan, const FidelityInput& input, const FidelityOptions& options,
                        const std::function<void()>& on_step);

/// Adds what one step's instructions, messages and reductions were predicted to take and took.
void add_operations(std::vector<OperationFidelity>& operations, const Program& program,
                    const ProgramCosts& predicted, const ProgramCosts& measured);

/// Measures what a plan needs up to these points, or usual_most_tokens(), with as many ranks busy as it has
/// and the device has cores for, in `budget`: of a shared one on the parts of devices that its ranks have.
/// Calls `progress` in between; what it throws ends the measurement.
/// @throws as measure_profile()
ProfileTables measure_for_plan(const ModelSpec& model, const Plan& plan, const LiveDevice& device,
                               DType dtype, std::uint64_t seed, Seconds budget,
                               const std::function<void()>& progress, const ProfilerKernels& kernels = {},
                               const std::optional<PlanPoints>& points = {});

/// Returns columns and cells of a table of operations; `all` is the time of all that was measured beside one.
std::vector<Column> operation_columns();
std::vector<Cell> operation_cells(const OperationFidelity& operation, Seconds all);
Seconds measured_in_all(const std::vector<OperationFidelity>& operations);

/// Adds up the operations of one kind over all plans.
std::vector<OperationFidelity> all_operations(const std::vector<PlanFidelity>& plans);

/// Returns a row for each plan.
Table fidelity_table(const std::vector<PlanFidelity>& plans);

/// Returns a row for each plan and two below: means and maxima of absolute errors.
Table fidelity_table_with_summary(const std::vector<PlanFidelity>& plans);

/// Returns a row for each plan and kind of operation.
Table operations_table(const std::vector<PlanFidelity>& plans);
/// Returns a row for each kind of operation, all plans together.
Table all_operations_table(const std::vector<PlanFidelity>& plans);

/// Returns all as JSON: {"plans", "summary", "operations"}.
std::string fidelity_json(const std::vector<PlanFidelity>& plans);

/// Makes a page of all this.
std::string fidelity_page(const Provenance& made_by, const std::vector<PlanFidelity>& plans);

}  // namespace dflop
