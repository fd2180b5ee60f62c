#include "experiments/checks/runs/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "backend/model/parameter_list.hpp"
#include "backend/run/worlds.hpp"
#include "core/quanta.hpp"
#include "core/refuse.hpp"
#include "core/support/median.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/training/loop.hpp"
#include "sim/step_sequence.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

Plan read_plan(const PlanGrid& grid, const std::string& path) {
  Plan plan = parse_plan(read_text_file(path), path);
  if (plan.model == grid.model && plan.cluster == grid.cluster) return plan;
  refuse_input(path, "expected a plan for the grid's model '{}' on '{}', found one for '{}' on '{}'",
               grid.model, grid.cluster, plan.model, plan.cluster);
}

/// Splits the model's layers over the plan's stages. If there are more stages than layers, some stages stay
/// empty, which validate() rejects.
void give_layers(Plan& plan, const ModelSpec& model) {
  if (has_encoder_ranks(plan.layout)) {
    plan.encoder.layers = split_layers(model.encoder.layers, plan.encoder.pp);
    plan.llm.layers = split_layers(model.llm.layers, plan.llm.pp);
    return;
  }
  int encoder_left = model.encoder.layers;
  for (const int layers : split_layers(model.encoder.layers + model.llm.layers, plan.llm.pp)) {
    const int encoder = std::min(layers, encoder_left);
    encoder_left -= encoder;
    plan.encoder.layers.push_back(encoder);
    plan.llm.layers.push_back(layers - encoder);
  }
}

/// Returns the median of `value` applied to each item.
template <typename Items, typename Value>
double median_of(const Items& items, const Value& value) {
  std::vector<double> values;
  for (const auto& item : items) values.push_back(value(item));
  return median(std::move(values));
}

/// Returns the points with the same tokens and length, at most one from each profile.
std::vector<ProfilePoint> same_points(const std::vector<const UnitPoints*>& units, const ProfilePoint& like) {
  std::vector<ProfilePoint> same;
  for (const UnitPoints* points : units) {
    const auto found = std::find_if(points->begin(), points->end(), [&](const ProfilePoint& p) {
      return p.tokens == like.tokens && p.length == like.length;
    });
    if (found != points->end()) same.push_back(*found);
  }
  return same;
}

UnitPoints median_points(const std::vector<const UnitPoints*>& units) {
  UnitPoints medians;
  for (const ProfilePoint& point : *units.front()) {
    const std::vector<ProfilePoint> same = same_points(units, point);
    if (same.size() < units.size()) continue;
    const auto middle = [&](double ProfilePoint::*member) {
      return median_of(same, [&](const ProfilePoint& p) { return p.*member; });
    };
    ProfilePoint median_point{point.tokens, point.length, middle(&ProfilePoint::forward_s),
                              middle(&ProfilePoint::backward_input_s),
                              middle(&ProfilePoint::backward_weight_s)};
    const auto has = [](const ProfilePoint& p) { return p.recompute_s.has_value(); };
    if (std::all_of(same.begin(), same.end(), has)) {
      median_point.recompute_s = median_of(same, [](const ProfilePoint& p) { return *p.recompute_s; });
    }
    if (std::ranges::all_of(same, [](const ProfilePoint& p) { return p.host_s.has_value(); }))
      median_point.host_s = median_of(same, [](const ProfilePoint& p) { return *p.host_s; });
    medians.push_back(median_point);
  }
  return medians;
}

template <typename Line>
ProfileLine median_line(const std::vector<ProfileTables>& profiles, const Line& line) {
  return {median_of(profiles, [&](const ProfileTables& p) { return line(p).start_s; }),
          median_of(profiles, [&](const ProfileTables& p) { return line(p).s_per_unit; })};
}

using OperationKey = std::pair<std::string, std::string>;  // module, kind
using Operations = std::map<OperationKey, OperationFidelity>;

std::string module_of(const Stage& stage) {
  if (stage.encoder_layers == 0) return "llm";
  return stage.llm_layers == 0 ? "encoder" : "encoder+llm";
}

void add(Operations& operations, const OperationFidelity& more) {
  OperationFidelity& sum = operations[{more.module, more.kind}];
  sum.module = more.module;
  sum.kind = more.kind;
  sum.count += more.count;
  sum.predicted += more.predicted;
  sum.measured += more.measured;
}

std::vector<OperationFidelity> values_of(const Operations& operations) {
  std::vector<OperationFidelity> values;
  for (const auto& [key, value] : operations) values.push_back(value);
  return values;
}

/// Adds the predicted and measured times of one step's instructions, messages and reductions.
void add_step(Operations& operations, const Program& program, const ProgramCosts& predicted,
              const ProgramCosts& measured) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!is_compute(instruction.op) && instruction.op != Op::optimizer_step) continue;
    add(operations, {module_of(program.stages[instruction.stage]), std::string(to_string(instruction.op)), 1,
                     predicted.instruction[i], measured.instruction[i]});
  }
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    add(operations, {module_of(program.stage_of(program.messages[m].source)), "message", 1,
                     predicted.message[m], measured.message[m]});
  }
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    add(operations, {module_of(program.stage_of(program.collectives[c].groups.front())), "all_reduce", 1,
                     predicted.collective[c], measured.collective[c]});
  }
}

void add_ranks(std::vector<RankFidelity>& ranks, const Timeline& predicted, const Timeline& measured) {
  ranks.resize(measured.groups.size());
  for (std::size_t g = 0; g < ranks.size(); ++g) {
    RankFidelity& rank = ranks[g];
    rank.first_rank = measured.groups[g].first_rank;
    rank.ranks = measured.groups[g].ranks;
    rank.predicted_peak = std::max(rank.predicted_peak, predicted.groups[g].peak_memory);
    rank.measured_peak = std::max(rank.measured_peak, measured.groups[g].peak_memory);
  }
}

Seconds median_time(const std::vector<StepFidelity>& steps, Seconds StepFidelity::*member) {
  return Seconds(median_of(steps, [&](const StepFidelity& step) { return (step.*member).count(); }));
}

TrainingOptions training_options(const FidelityOptions& options) {
  TrainingOptions training;
  training.last_step = options.warm_up + options.steps;
  training.seed = options.seed;
  return training;
}

/// Returns the fractions of a device on which the plan's ranks compute, in whole quanta; 1 if each rank has
/// its own device.
std::vector<double> shares_of(const Plan& plan, const LiveDevice& device) {
  if (plan.layout != Layout::shared) return {1};
  const int quanta = make_live_world(device, plan)->quanta();
  double encoder = plan.encoder_share;
  if (quanta > 1) encoder = 1.0 * encoder_quanta(quanta, encoder) / quanta;
  const std::set<double> shares = {encoder, 1 - encoder};
  return {shares.begin(), shares.end()};
}

/// Returns the max number of tokens per microbatch of one module, and the max over microbatches of the mean
/// sequence length in its attention without windows.
PointRange largest_points(std::span<const Timeline> timelines, Workload Work::*module, double windowed) {
  PointRange most{1, 1};
  for (const Timeline& timeline : timelines) {
    for (const Work& work : timeline.works) {
      const Workload& all = work.*module;
      for (const Workload& own : {all, all.of_second()}) {
        if (own.tokens == 0) continue;
        most.tokens = std::max(most.tokens, own.tokens);
        const double mean = static_cast<double>(own.attention_pairs) / static_cast<double>(own.tokens);
        most.length = std::max(most.length, static_cast<std::int64_t>(std::ceil(mean / (1 - windowed))));
      }
    }
  }
  constexpr std::int64_t kMin = 32;  // enough for two points of each unit
  return {std::max(kMin, most.tokens), std::clamp(most.length, kMin, std::max(kMin, most.tokens))};
}

/// Returns the ranges of points that cover the steps.
PlanPoints points_of(std::span<const Timeline> timelines, const ModelSpec& model) {
  double windowed = 0;
  if (model.encoder.layers > 0) {
    const std::vector<bool>& layers = model.encoder.layer_form().windowed;
    const auto count = static_cast<double>(std::ranges::count(layers, true));
    windowed = count < model.encoder.layers ? count / model.encoder.layers : 0;
  }
  return {largest_points(timelines, &Work::llm, 0), largest_points(timelines, &Work::encoder, windowed)};
}

/// LiveSteps are the results of running a plan.
struct LiveSteps {
  std::vector<Timeline> timelines;  // without warm-up
  std::vector<ProfileTables> profiles;
};

LiveSteps run_live(const Plan& plan, const FidelityInput& input, const FidelityOptions& options,
                   const std::function<void()>& on_step) {
  const ModelSpec& model = input.target->model;
  const std::unique_ptr<World> world = make_live_world(options.device, plan);
  std::optional<LiveExecutor> executor;
  executor.emplace(plan, model, *world, LiveOptions{options.dtype, options.seed});
  TrainingOptions training_choice = training_options(options);
  training_choice.cores = world->cores();
  if (input.profile != nullptr) {
    training_choice.check_program = [&, cost = ProfiledCostModel(*input.profile)](const Program& program) {
      require_reach(cost, cost.reach(program), input.profile_name, input.extrapolate);
    };
  }
  const bool on_host = world_kind(options.device.name).on_host;
  LiveSteps live;
  {
    TrainingLoop training(plan, input.target, input.batches, options.scheduler, *world, *executor,
                          training_choice);
    const std::int64_t every = std::max<std::int64_t>(1, options.steps / kProfilesOfAPlan);
    training.run([&](const TrainingStep& step, Timeline&& timeline) {
      on_step();
      const std::int64_t counted = step.step - options.warm_up;
      if (counted <= 0) return true;
      live.timelines.push_back(std::move(timeline));
      if (input.profile == nullptr && on_host && (counted - 1) % every == 0) {
        live.profiles.push_back(input.measure(plan, {1.0 / kProfilesOfAPlan}));
      }
      return true;
    });
  }
  executor.reset();  // frees the memory that the profile needs
  if (input.profile == nullptr && !on_host)
    live.profiles.push_back(input.measure(plan, {1, points_of(live.timelines, model)}));
  return live;
}

}  // namespace

std::vector<NamedPlan> complete_plans(const PlanGrid& grid, const std::string& file, int gbs,
                                      const ModelSpec& model, const ClusterSpec& cluster) {
  require_live(model);
  std::vector<NamedPlan> plans;
  for (const GridPlan& from : grid.plans) {
    const std::string where = fmt::format("{}: plan '{}'", file, from.name);
    Plan plan = from.plan;
    if (from.file.empty()) {
      give_layers(plan, model);
    } else {
      plan = read_plan(grid, (std::filesystem::path(file).parent_path() / from.file).string());
    }
    plan.gbs = gbs;
    validate(plan, model, cluster, where);
    require_trainable(plan, model, where);
    plans.push_back({from.name, std::move(plan)});
  }
  return plans;
}

void require_measurable(const Plan& plan, const ModelSpec& model) {
  for (const int tp : {plan.encoder.tp, plan.llm.tp}) require_split(model, tp, tp);
}

ProfileTables median_profile(const std::vector<ProfileTables>& profiles) {
  ProfileTables result = profiles.front();
  for (const auto tables : {&ProfileTables::tp, &ProfileTables::second_tp}) {
    for (std::size_t t = 0; t < (result.*tables).size(); ++t) {
      for (std::size_t u = 0; u < kProfileUnits; ++u) {
        std::vector<const UnitPoints*> units;
        for (const ProfileTables& profile : profiles) units.push_back(&(profile.*tables)[t].units[u]);
        (result.*tables)[t].units[u] = median_points(units);
      }
    }
  }
  result.optimizer = median_line(profiles, [](const ProfileTables& p) { return p.optimizer; });
  result.norm = median_line(profiles, [](const ProfileTables& p) { return p.norm; });
  result.message = median_line(profiles, [](const ProfileTables& p) { return p.message; });
  for (auto& entry : result.all_reduce) {
    entry.second =
        median_line(profiles, [&](const ProfileTables& p) { return p.all_reduce.at(entry.first); });
  }
  return result;
}

Seconds PlanFidelity::measured() const {
  return median_time(steps, &StepFidelity::measured);
}
Seconds PlanFidelity::predicted() const {
  return median_time(steps, &StepFidelity::predicted);
}
Seconds PlanFidelity::replayed() const {
  return median_time(steps, &StepFidelity::replayed);
}

void add_operations(std::vector<OperationFidelity>& operations, const Program& program,
                    const ProgramCosts& predicted, const ProgramCosts& measured) {
  Operations sums;
  for (const OperationFidelity& operation : operations) add(sums, operation);
  add_step(sums, program, predicted, measured);
  operations = values_of(sums);
}

ProfileTables measure_for_plan(const ModelSpec& model, const Plan& plan, const PlanMeasurement& how,
                               const std::function<void()>& progress) {
  const LiveDevice& device = how.device;
  ProfilerOptions options;
  const std::int64_t usual = usual_most_tokens(device);
  const PlanPoints most = how.points.value_or(PlanPoints{{usual, usual}});
  options.llm = most.llm;
  options.encoder = most.encoder;
  options.seed = how.seed;
  options.budget = how.budget;
  options.dtype = how.dtype;
  std::set<TpMode> modes;
  for (const int tp : {plan.encoder.tp, plan.llm.tp}) modes.insert(tp_mode(tp, plan.sequence_parallel));
  options.modes.assign(modes.begin(), modes.end());
  options.shares = shares_of(plan, device);
  options.make_shared_world = [device, timeout = profile_timeout(how.budget)](int devices, double share) {
    return make_shared_world(device, devices, share, timeout);
  };
  const int at_once = std::max(1, device.cores / device.device_cores);
  options.busy = device.cores > 0 ? std::min(plan.ranks(), at_once) : plan.ranks();
  LiveDevice used = device;
  if (plan.ranks() == 1) {  // the second rank only serves to measure messages
    used.partition = false;
    if (used.device_cores == 1) used.cores = 0;
  }
  const std::unique_ptr<World> world = make_live_world(used, std::max(2, plan.ranks()));
  return measure_profile(model, *world, options, [&](std::int64_t, std::int64_t) { progress(); });
}

PlanFidelity judge_steps(const std::string& name, const std::string& plan, std::span<const Timeline> steps,
                         const ProfiledCostModel& cost, const std::string& file, int first) {
  PlanFidelity result{name, plan, {}, {}, {}};
  Operations operations;
  int iteration = first;
  const bool in_sequence = std::ranges::any_of(steps, begin_apart);
  std::array<StepStart, 2> starts = {};
  if (in_sequence) starts.fill(start_of(steps.front()));
  for (const Timeline& timeline : steps) {
    const auto run = [&](const PricedProgram& priced, StepStart& start) {
      return simulate_next(priced.program, priced.costs, Detail::usage, {.cores = timeline.cores},
                           in_sequence ? &start : nullptr);
    };
    const RecordedProgram recorded = recorded_program(timeline, file, iteration++);
    const PricedProgram expected{recorded.program, cost.price(recorded.program)};
    const Timeline predicted = run(expected, starts[0]);
    const Timeline replayed = run(recorded, starts[1]);
    result.steps.push_back({timeline.makespan, predicted.makespan, replayed.makespan, idle_fraction(timeline),
                            idle_fraction(predicted), extrapolated_fraction(cost, recorded.program)});
    add_step(operations, recorded.program, expected.costs, recorded.costs);
    add_ranks(result.ranks, predicted, timeline);
  }
  result.operations = values_of(operations);
  return result;
}

PlanFidelity study_plan(const NamedPlan& named, const FidelityInput& input, const FidelityOptions& options,
                        const std::function<void()>& on_step) {
  const HostLoad load;
  const LiveSteps live = run_live(named.plan, input, options, on_step);
  const std::optional<double> others = load.others();
  std::optional<ProfileTables> measured;
  if (input.profile == nullptr) measured = median_profile(live.profiles);
  const ProfiledCostModel cost(measured ? *measured : *input.profile);
  if (measured && launches_kernels(*measured)) {
    for (const Timeline& step : live.timelines) {
      const RecordedProgram recorded = recorded_program(step, "the recorded step", 0);
      require_reach(cost, cost.reach(recorded.program), "the measured profile", input.extrapolate);
    }
  }
  PlanFidelity result =
      judge_steps(named.name, describe(named.plan), live.timelines, cost, "the recorded step");
  result.others = others;
  result.profile = std::move(measured);
  return result;
}

std::vector<OperationFidelity> all_operations(const std::vector<PlanFidelity>& plans) {
  Operations operations;
  for (const PlanFidelity& plan : plans) {
    for (const OperationFidelity& operation : plan.operations) add(operations, operation);
  }
  return values_of(operations);
}

}  // namespace dflop
