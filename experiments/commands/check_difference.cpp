// dflop check difference predicts a difference between plans, runs the plans live in turns, and says whether
// the runs show it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/refuse.hpp"
#include "costmodel/recorded/recorded.hpp"
#include "experiments/checks/runs/verification.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/stop_signals.hpp"
#include "experiments/cli/value_text.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/live/device_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/specs.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::array<const char*, 3> kDifferenceOutputs = {"report.html", "verify.json", "verify.csv"};
constexpr std::int64_t kMinSteps = 2 * static_cast<std::int64_t>(kMinBlocks);

/// Reads "RANK:FACTOR".
SlowRank read_slow(const std::string& value) {
  ValueText text("slow", "RANK:FACTOR, such as 0:1.5, with a factor from 1 to 100", value);
  SlowRank slow;
  slow.rank = text.number(0, 1'000'000);
  text.expect(":");
  slow.factor = text.number(1.0, 100.0);
  text.expect_end();
  return slow;
}

/// Makes the variants: each plan in its own order or in each of --orders. With --slow, the first variant also
/// runs slowed down.
std::vector<Variant> make_variants(const Values& values, const std::vector<NamedPlan>& plans) {
  std::vector<Variant> variants;
  const std::string orders = read_text(values, "orders").value_or("");
  for (const NamedPlan& named : plans) {
    if (orders.empty()) {
      variants.push_back({named});
      continue;
    }
    for (const std::string_view name : split(orders, ',')) {
      const std::optional<OrderKind> kind = order_kind_from_string(name);
      if (!kind) refuse_name("orders", names_of(all_order_kinds()), std::string(name));
      Variant variant{named};
      variant.plan.order = *kind;
      variant.name = plans.size() == 1 ? std::string(name) : fmt::format("{} {}", named.name, name);
      variants.push_back(std::move(variant));
    }
  }
  for (const std::string& value : read_texts(values, "slow")) {
    Variant slow = variants.front();
    slow.slow = read_slow(value);
    slow.name += fmt::format(", rank {} x {}", slow.slow->rank, slow.slow->factor);
    variants.push_back(std::move(slow));
  }
  if (variants.size() < 2) {
    throw Error(
        ErrorKind::usage,
        "expected at least two things to compare: several plans, --orders LIST or --slow RANK:FACTOR");
  }
  return variants;
}

std::vector<NamedPlan> read_plans(const Values& values) {
  std::vector<NamedPlan> plans;
  for (const std::string& file : read_texts(values, "plans")) {
    std::string name = std::filesystem::path(file).stem().string();
    if (std::ranges::count(plans, name, &NamedPlan::name) > 0) name = file;
    plans.push_back({std::move(name), parse_plan(read_text_file(file), file)});
    const Plan& plan = plans.back().plan;
    if (plan.model != plans.front().plan.model) {
      refuse_input(file, "expected a plan for '{}', like the first plan, found one for '{}'",
                   plans.front().plan.model, plan.model);
    }
  }
  const auto gbs = read_optional_integer<int>(values, "gbs", 1, kMaxGbs);
  for (NamedPlan& named : plans) named.plan.gbs = gbs.value_or(plans.front().plan.gbs);
  return plans;
}

/// A CostsInput says for what costs are needed.
struct CostsInput {
  const Values& values;
  const Target& target;
  const std::vector<Variant>& variants;
  const std::vector<Batch>& batches;
  const VerificationOptions& options;
};

/// Costs are the costs of the variants: from a profile, from a recording, or from profiles that are measured
/// now, one for each number of ranks and mode of tp.
class Costs {
 public:
  Costs(const CostsInput& input, Provenance& made_by) {
    const Values& values = input.values;
    const std::optional<std::string> profile = read_text(values, "profile");
    const std::optional<std::string> trace = read_text(values, "trace");
    if (profile && trace) refuse_option("trace", "cannot be combined with '--profile'");
    if (trace) {
      refuse_given(values, {"budget-s", "foreign-profile"}, "applies only to profiles, found '--trace'");
      read_trace(input, *trace, made_by);
    } else if (profile) {
      refuse_given(values, {"budget-s"}, "applies only if a profile is measured, found '--profile'");
      read_profile(input, *profile, made_by);
    } else {
      measure(input);
    }
  }

  /// Returns the costs of a batch. From a recording, these are of the iteration that ran the batch, if it was
  /// recorded and is steady, else of some steady iteration.
  const SumCostModel& of(std::size_t variant, std::size_t batch) const {
    if (recorded_.empty()) return *by_variant_[variant];
    const std::size_t k = batch >= first_recorded_ ? batch - first_recorded_ : batch;
    if (k >= first_steady_ && k < recorded_.size()) return *recorded_[k];
    return *recorded_[first_steady_ + k % (recorded_.size() - first_steady_)];
  }

 private:
  void read_trace(const CostsInput& input, const std::string& file, Provenance& made_by) {
    const auto& [values, target, variants, batches, options] = input;
    const TimelineFile trace = parse_timelines(read_text_file(file), file);
    const std::string& source = trace.iterations.front().source;
    if (source != options.device.name && !values["mixed"].as<bool>()) {
      refuse_input(file, "expected a recording of device '{}', found one of '{}'; --mixed allows this",
                   options.device.name, source);
    }
    require_together(values, file, trace.made_by, "the plans", made_by);
    say_made_by(file, trace.made_by);
    if (trace.made_by) {
      first_recorded_ = static_cast<std::size_t>(trace.made_by->first_iteration.value_or(0));
    }
    first_steady_ = begins_with_warm_up(trace) ? 1 : 0;
    for (std::size_t k = 0; k < trace.iterations.size(); ++k) {
      recorded_.push_back(std::make_unique<RecordedCostModel>(
          recorded_program(trace.iterations[k], file, static_cast<int>(k)), target.cost, target.cluster));
    }
  }

  void read_profile(const CostsInput& input, const std::string& file, Provenance& made_by) {
    const auto& [values, target, variants, batches, options] = input;
    const std::string text = read_text_file(file);
    const ProfileTables tables = parse_profile_tables(text, file);
    made_by.profile = {file, content_hash(to_json(tables))};  // without provenance, as in fidelity
    const auto cost = std::make_shared<ProfiledCostModel>(tables);
    for (const Variant& variant : variants) {
      const std::unique_ptr<World> world = make_live_world(options.device, variant.plan);
      require_profile(tables, file, variant.plan,
                      {target.model, *world, options.dtype, read_foreign_profile(values)});
      require_reach(*cost, reach_of(*cost, variant.plan, target.model, batches), file,
                    read_extrapolate(values));
      by_variant_.push_back(cost);
    }
  }

  void measure(const CostsInput& input) {
    const auto& [values, target, variants, batches, options] = input;
    const StopOnSignals signals;
    const Seconds budget(read_number(values, "budget-s", 0, kMaxCheckBudgetS));
    std::map<std::tuple<int, int, int, bool, double>, std::shared_ptr<const SumCostModel>> measured;
    for (const Variant& variant : variants) {
      const Plan& plan = variant.plan;
      auto& cost =
          measured[{plan.ranks(), plan.encoder.tp, plan.llm.tp, plan.sequence_parallel, plan.encoder_share}];
      if (!cost) {
        say("dflop: measuring a profile with {} ranks (--profile FILE uses an existing one)\n", plan.ranks());
        cost = std::make_shared<ProfiledCostModel>(
            measure_for_plan(target.model, plan, {options.device, options.dtype, options.seed, budget},
                             [&] { signals.check(); }));
      }
      by_variant_.push_back(cost);
    }
  }

  std::vector<std::shared_ptr<const SumCostModel>> by_variant_;
  std::vector<std::unique_ptr<RecordedCostModel>> recorded_;
  std::size_t first_recorded_ = 0;
  std::size_t first_steady_ = 0;
};

VerificationOptions read_options(const Values& values) {
  VerificationOptions options;
  options.device = read_local_device(values);
  options.device.cores = read_cores(values, options.device);
  options.device.device_cores = read_device_cores(values, options.device);
  options.dtype = read_dtype(values);
  options.steps = read_integer(values, "steps", kMinSteps, kMaxCheckedSteps);
  options.warm_up = read_integer(values, "warm-up", 0, kMaxCheckedSteps);
  options.seed = read_seed(values);
  options.scheduler.name = "lpt";
  options.judge.tolerance = read_number(values, "tolerance", 1e-4, 1);
  options.judge.level = read_number(values, "level", 0.5, 0.9999);
  return options;
}

void write_outputs(const std::string& directory, const Provenance& made_by, const Verification& result) {
  make_output_directory(directory);
  const std::filesystem::path base(directory);
  StagedOutputs files;
  files.add(base / kDifferenceOutputs[0], verification_page(made_by, result));
  files.add(base / kDifferenceOutputs[1], with_provenance(verification_json(result), made_by));
  files.add(base / kDifferenceOutputs[2], to_csv(verdict_table(result)));
  files.commit();
  say("dflop: wrote {}: report.html, verify.json, verify.csv\n", directory);
}

int run_verify(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_text(values, "out");
  VerificationOptions options = read_options(values);
  const std::vector<NamedPlan> plans = read_plans(values);
  const std::vector<Variant> variants = make_variants(values, plans);
  const std::string file = read_texts(values, "plans").front();
  VerificationInput input;
  const Plan& first = variants.front().plan;
  const auto target =
      std::make_shared<const Target>(first.model, first.cluster, file, nullptr, nullptr, Use::shape);
  input.target = target;
  for (const Variant& variant : variants) {
    validate(variant.plan, target->model, target->cluster, variant.name);
    require_trainable(variant.plan, target->model, variant.name);
  }
  Provenance made_by = made_here(values, *target);
  made_by.plan = origin_of(first, file);
  made_by.gbs = first.gbs;
  const std::vector<Sample> samples =
      read_samples(values, target->model, options.seed, "data", &made_by.data.emplace());
  const auto batches = static_cast<int>(options.warm_up + options.steps);
  input.batches = make_batches(samples, first.gbs, batches, options.seed);
  if (out) check_output_directory(*out, kDifferenceOutputs[0]);

  const Costs costs({values, *target, variants, input.batches, options}, made_by);
  input.cost = [&](std::size_t variant, std::size_t batch) -> const SumCostModel& {
    return costs.of(variant, batch);
  };
  const StopOnSignals signals;
  Progress progress("running in turns");
  std::int64_t done = 0;
  const std::int64_t all = batches * std::ssize(variants);
  const Verification result = verify_live(variants, input, options, [&] {
    progress.update(++done, all);
    signals.check();
  });
  made_by.machine->others = result.others;
  if (out) write_outputs(*out, made_by, result);
  const auto text = [&] {
    return terminal_text(verdict_table(result)) + section("of each variant, ms", variant_table(result)) +
           section("operations", variant_operations_table(result));
  };
  print_result(
      format, text, [&] { return verification_json(result); }, verdict_table(result));
  for (const std::string& line : verdict_sentences(result)) say("dflop: {}\n", line);
  return 0;
}

int run_stoppable(const Values& values) {
  try {
    return run_verify(values);
  } catch (const Stopped& stopped) {
    say("dflop: {}; nothing is judged\n", stopped.what());
    return stopped.exit_code();
  }
}

}  // namespace

Command check_difference_command() {
  Command command{
      .name = "check difference",
      .task = Task::check,
      .summary = "predict the difference between plans, run them live in turns, and judge",
      .description =
          R"(Predicts each plan, or each order of a plan, or the first plan with a slower rank, on the same
batches, then runs them live, step by step in turns: A B, B A, A B. Each pair of steps on one batch gives a
measured and a predicted difference. Means are over blocks of two pairs, without the largest and smallest
fifth, with an interval that contains the difference with probability --level.
  confirmed   the error of the prediction is within the tolerance: --tolerance, or a quarter of the predicted
              difference if that is larger (both as logarithms)
  refuted     the error is outside the tolerance
  cannot say  neither; 'more steps' estimates how many more steps of each plan would settle it at the current
              noise

Below, the command prints the predicted and measured means of each plan and of its operations, which show
where a prediction is off. Predictions come from --profile, a recording (--trace), or a profile that is
measured first. At least 10 steps of each plan count. All variants are in memory at the same time. Measured
seconds differ from run to run.)",
      .example =
          "dflop check difference --plans traces/plans/tiny-vlm-pp2.json --orders 1f1b,gpipe --steps 10 "
          "--out verify",
      .run = run_stoppable,
      .old_name = "verify",
  };
  command.options.add({
      {"plans", texts("FILE...").required(),
       "plans of one model, from 'dflop plan'; the others are compared with the first"},
      {"orders", text("LIST").common(), "run each plan in these orders, such as 1f1b,gpipe,zb-h1"},
      {"slow", repeatable_text("RANK:FACTOR").common(),
       "also run the first plan with this rank slowed down by busy waiting: a what-if that can run live"},
      {"tolerance", number("X", JudgeOptions{}.tolerance),
       "max error, as a fraction of the first plan's time"},
      {"level", number("P", JudgeOptions{}.level), "probability of the intervals"},
  });
  add_profile_file_option(command.options);
  add_foreign_profile_option(command.options);
  add_trace_option(command.options, text("FILE"));
  add_measuring_time_option(command.options, 10);
  add_training_steps_option(command.options, whole("N", 20));
  add_uncounted_steps_option(command.options);
  add_gbs_option(command.options, whole("N"));
  add_seed_option(command.options);
  command.options.add(OptionGroup::output,
                      {{"out", text("DIR").common(), "write report.html, verify.json and verify.csv"}});
  add_live_options(command.options);
  add_cores_option(command.options);
  add_data_options(command.options, "traces/datasets/vision_mix.csv");
  add_mixed_option(command.options);
  add_extrapolate_option(command.options);
  return command;
}

}  // namespace dflop
