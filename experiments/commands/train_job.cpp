#include "experiments/commands/train_job.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/model/parameter_list.hpp"
#include "backend/run/live_executor.hpp"
#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/plan_options.hpp"
#include "experiments/options/search_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/training/checkpoint_folder.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/specs.hpp"
#include "traces/shards/shard_list.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr int kPlannedBatches = 4;  // with which a plan that is asked for is chosen
constexpr const char* kDefaultModel = "tiny-vlm";
constexpr const char* kDefaultCluster = "a100-80g:1";

/// Returns a plan of one encoder and one LLM rank, or of only one rank if there is no encoder.
Plan default_plan(const std::string& model_name, const std::string& cluster, const ModelSpec& model,
                  int gbs) {
  Plan plan;
  plan.planner = "train";
  plan.model = model_name;
  plan.cluster = cluster;
  plan.gbs = gbs;
  if (model.encoder.layers == 0) plan.layout = Layout::uniform;
  plan.encoder = {1, 1, 1, {model.encoder.layers}};
  plan.llm = {1, 1, 1, {model.llm.layers}};
  plan.microbatches = std::min(4, gbs);
  plan.recomputation = Recomputation::none;
  return plan;
}

Plan read_plan(const Values& values, const std::string& path, const std::string& text) {
  Plan plan = parse_plan(text, path);
  if (values.count("model") > 0 && values["model"].as<std::string>() != plan.model) {
    refuse_option("model", fmt::format("expected the model of {}, '{}', found '{}'", path, plan.model,
                                       values["model"].as<std::string>()));
  }
  plan.gbs = read_optional_integer<int>(values, "gbs", plan.bins(), kMaxGbs).value_or(plan.gbs);
  return plan;
}

/// Returns the names of the given options that request parts of a plan.
std::vector<std::string> wanted_parts(const Values& values) {
  Options options;
  add_wanted_plan_options(options);
  std::vector<std::string> given;
  for (const Option& option : options.rows()) {
    if (values.count(option.name) > 0 && !values[option.name].defaulted()) given.push_back(option.name);
  }
  return given;
}

/// Rejects options of plans that live ranks cannot run, before data are read and a plan is searched.
void require_live_options(const Values& values) {
  const PlanOptions options = read_plan_options(values, true);
  if (const std::string why = why_untrainable(options.trained); !why.empty())
    refuse_option(options.trained.lora_rank > 0 ? "lora" : "freeze", why);
  if (!values["optimizer-states"].defaulted() && options.optimizer_states != OptimizerStates::fp32)
    refuse_value("optimizer-states", "fp32, in which live ranks keep gradients and Adam's states",
                 std::string(to_string(options.optimizer_states)));
}

/// Finds the best plan with the requested parts, on a node of the default cluster.
Plan wanted_plan(const Values& values, const TrainJob& job, int gbs) {
  SearchOptions search = read_search_options(values);
  search.wish = read_wish(values);
  search.shared &= !search.layouts.empty();  // live runs share GPUs only on request
  search.seeds = read_seed_plans(values, *job.target, gbs);
  search.can_split = [&, known = std::map<std::pair<int, int>, bool>()](int encoder_tp, int llm_tp) mutable {
    const auto [place, is_new] = known.try_emplace({encoder_tp, llm_tp});
    if (is_new) place->second = is_splittable(job.target->model, encoder_tp, llm_tp);
    return place->second;
  };
  read_padding(values, job.target->model, search);
  PlanOptions options = read_plan_options(values, true);
  if (traits(options.order).spreads_encoder)
    options.order = PlanOptions{}.order;  // the search has it as a wish
  // Defaults for live ranks, unless the user overrides them.
  const auto is_given = [&](const char* option) {
    return values.count(option) > 0 && !values[option].defaulted();
  };
  if (!is_given("optimizer-states")) options.optimizer_states = OptimizerStates::fp32;
  if (!is_given("reshard")) options.reshard = Reshard::direct;
  const std::vector<Batch> batches = make_batches(*job.samples, gbs, kPlannedBatches, job.seed);
  const PlanResult found =
      make_plan("search", {*job.target, *job.samples, batches, gbs, job.seed, options, search});
  if (!found.plan)
    throw Error(ErrorKind::infeasible, "no plan satisfies these options: " + found.infeasible_reason);
  say("dflop: plan: {}\n", describe(*found.plan));
  return *found.plan;
}

void read_data(const Values& values, TrainJob& job) {
  job.data = values["data"].as<std::string>();
  if (kind_of_shards(job.data)) {
    job.shards = open_shards(values, job.target->model, "data", &job.data_origin);
    job.samples = {job.shards, &job.shards->samples()};
  } else {
    job.samples = std::make_shared<const std::vector<Sample>>(
        read_samples(values, job.target->model, job.seed, "data", &job.data_origin));
  }
  job.data_fingerprint = fingerprint(*job.samples);
  // A run with made-up contents of the same shapes counts as a different run.
  if (job.shards) job.data_fingerprint += " with contents";
  // A half turn keeps the shape, so the fingerprint of the samples does not show the rule.
  if (job.shards && read_text(values, "exif") == "ignore") job.data_fingerprint += " as stored";
}

/// Adds the delay of outliers to the data's fingerprint, because it changes the batches. Reports the effect
/// of the delay over all steps, or over the first of many.
void note_delay(TrainJob& job) {
  constexpr std::int64_t kMaxCounted = 1000;
  job.data_fingerprint += "; " + describe(job.delay);
  BatchStream batches = job.batches();
  batches.skip(std::min(job.steps, kMaxCounted));
  job.data_origin.delay = describe(job.delay, batches.delayed());
  say("dflop: note: {}\n", job.data_origin.delay);
}

}  // namespace

void add_wanted_plan_options(Options& options) {
  add_wish_options(options);
  add_search_options(options);
  add_plan_options(options);
}

TrainJob read_train_job(const Values& values) {
  TrainJob job;
  job.seed = read_seed(values);
  job.steps = read_integer(values, "steps", 1, kMaxSteps);
  const std::vector<std::string> wanted = wanted_parts(values);
  if (values.count("plan") > 0) {
    if (!wanted.empty())
      refuse_option(wanted.front(),
                    "cannot be combined with '--plan', which fixes the "
                    "plan");
    job.where = values["plan"].as<std::string>();
    const std::string text = read_text_file(job.where);
    job.plan = read_plan(values, job.where, text);
    const bool measured = values.count("profile") > 0;
    job.target = std::make_shared<const Target>(job.plan.model, job.plan.cluster, job.where, nullptr, nullptr,
                                                measured ? Use::shape : Use::costs);
    const std::optional<Provenance> made_by = parse_provenance(text, job.where);
    if (!measured) note_profile_of(job.where, made_by);
    note_changed_files(job.where, made_by, *job.target);
  } else {
    job.where = "plan";
    const auto model = read_text(values, "model").value_or(kDefaultModel);
    job.target = std::make_shared<const Target>(model, kDefaultCluster);
    const int gbs = read_optional_integer<int>(values, "gbs", 1, kMaxGbs).value_or(16);
    if (wanted.empty()) {
      job.plan = default_plan(model, kDefaultCluster, job.target->model, gbs);
    } else {
      require_live_options(values);
      read_data(values, job);
      job.plan = wanted_plan(values, job, gbs);
    }
  }
  validate(job.plan, job.target->model, job.target->cluster, job.where);
  require_trainable(job.plan, job.target->model, job.where);
  if (!job.samples) read_data(values, job);
  job.delay = read_delay(values, job.plan.gbs, &job.plan);
  if (job.delay.is_on()) note_delay(job);
  return job;
}

}  // namespace dflop
