#include "experiments/studies/named_profile.hpp"

#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "costmodel/profiled/chosen_kernels.hpp"
#include "costmodel/profiled/profiled.hpp"
#include "costmodel/sample_costs.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"
#include "traces/files/cluster_notes.hpp"
#include "traces/files/kernels.hpp"
#include "traces/files/specs.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

class MeasuredCostModel final : public SumCostModel {
 public:
  explicit MeasuredCostModel(const ProfileTables& profile) : cost_(profile) {}

  Seconds compute(Op op, const Stage& stage, const Work& work) const override {
    return has_tp(stage) ? cost_.compute(op, stage, work) : kNever;
  }
  Seconds message(const Message& message, const Program& program) const override {
    return cost_.message(message, program);
  }
  Seconds all_reduce(const Collective& collective, const Program& program) const override {
    return cost_.profile().all_reduce.empty() ? kNever : cost_.all_reduce(collective, program);
  }
  Seconds optimizer_step(const Stage& stage) const override {
    return stage.share == 1 || has_tp(stage) ? cost_.optimizer_step(stage) : kNever;
  }
  bool knows_shares() const override { return cost_.knows_shares(); }
  int share_quanta() const override { return cost_.share_quanta(); }
  double bandwidth(Op op, const Stage& stage, const Work& work) const override {
    return has_tp(stage) ? cost_.bandwidth(op, stage, work) : 0;
  }
  double optimizer_bandwidth(const Stage& stage) const override {
    return has_tp(stage) ? cost_.optimizer_bandwidth(stage) : 0;
  }
  ModelState model_state(const Stage& stage) const override {
    ModelState state = cost_.model_state(stage);
    if (!has_tp(stage) || (stage.dp > 1 && cost_.profile().all_reduce.empty())) state.parameters = kTooMuch;
    return state;
  }
  Bytes activation(const Stage& stage, const Work& work) const override {
    return has_tp(stage) ? cost_.activation(stage, work) : Bytes{};
  }
  Bytes split_activation(const Stage& stage, const Work& work) const override {
    return has_tp(stage) ? cost_.split_activation(stage, work) : Bytes{};
  }
  Bytes workspace(Op op, const Stage& stage, const Work& work) const override {
    return has_tp(stage) ? cost_.workspace(op, stage, work) : Bytes{};
  }

 protected:
  std::vector<Nanoseconds> compute_times(const Program& program) const override {
    std::vector<Nanoseconds> times = SumCostModel::compute_times(program);
    const bool is_known =
        std::ranges::all_of(program.stages, [&](const Stage& stage) { return has_tp(stage); });
    if (is_known) cost_.add_host_times(program, times);
    return times;
  }

 private:
  static constexpr Seconds kNever{1e3};  // time of a plan's part that never runs; finite, so that sums stay
                                         // numbers
  static constexpr Bytes kTooMuch{std::int64_t{1} << 50};

  bool has_tp(const Stage& stage) const { return has_tables(cost_.profile(), stage); }

  ProfiledCostModel cost_;
};

}  // namespace

NamedProfile read_named_profile(const std::string& path) {
  NamedProfile profile{path, parse_profile_tables(read_text_file(path), path)};
  profile.hash = content_hash(to_json(profile.tables));
  return profile;
}

void take_kernels(NamedProfile& profile, const std::string& kernels_file) {
  const KernelFile file = parse_kernel_file(read_text_file(kernels_file), kernels_file);
  const std::string hash = kernels_hash(file);
  ProfileTables& tables = profile.tables;
  if (!tables.kernels.empty() && tables.kernels != hash) {
    refuse_input(profile.path,
                 "key 'kernels': expected a profile measured with the default kernels, found one measured "
                 "with the kernels of another file ({}); '--kernels-file' has {}",
                 tables.kernels, hash);
  }
  profile.kernels = Origin{kernels_file, hash};
  if (tables.kernels == hash) return;
  if (std::ranges::any_of(tables.tp, [](const TpProfile& tp) { return tp.part.has_value(); })) {
    refuse_input(
        profile.path,
        "expected only tables of whole devices with '--kernels-file', found tables of parts (--shares), "
        "on which the kernels of {} were not measured: measure the profile with that file, or omit it",
        kernels_file);
  }
  const auto require = [&](std::string_view key, const std::string& expected, const std::string& found) {
    if (expected != found) {
      refuse_key(kernels_file, key, "measured on another machine: expected '{}', as in '{}', found '{}'",
                 expected, profile.path, found);
    }
  };
  require("device", tables.device, file.machine.device);
  require("cpu", tables.cpu, file.machine.cpu);
  if (tables.software.empty()) {  // a host profile, which does not name its libraries
    require("threads", std::to_string(tables.quanta), std::to_string(file.machine.threads));
  } else {
    require("software", tables.software, file.machine.software);
  }
  tables = with_chosen_kernels(std::move(tables), file.table);
  tables.kernels = hash;
}

void require_speeds(const ClusterSpec& cluster, std::string_view option) {
  if (!cluster.placeholder) return;
  refuse_key(cluster.name, kPlaceholderKey,
             "the cluster's speeds are placeholders: expected measurements instead, by {}, found none",
             option);
}

void require_model(const ModelSpec& model, const ProfileTables& profile, const std::string& path) {
  ModelSpec expected = profiled_model(model);
  expected.name = profile.model.name;  // a file may have been given under another path
  if (expected == profile.model) return;
  refuse_input(path, "the profile is of another model: '{}' in the profile and '{}' here differ in size",
               profile.model.name, model.name);
}

void require_recorded_model(const NamedProfile& profile, const Origin& model) {
  std::optional<ModelSpec> recorded;
  try {
    recorded = find_model(model.name);
  } catch (const Error&) {  // the model's file no longer exists
    if (model.name == profile.tables.model.name) return;
    refuse_input(profile.path, "expected a profile of the recording's model '{}', found one of '{}'",
                 model.name, profile.tables.model.name);
  }
  require_model(*recorded, profile.tables, profile.path);
}

void require_measured(const NamedProfile& profile, std::span<const Stage> stages) {
  for (const Stage& stage : stages) {
    if (!has_tables(profile.tables, stage)) {
      refuse_input(profile.path, "expected what the plan needs, {}, found {}",
                   needed_tables(profile.tables, stage), measured_tables(profile.tables));
    }
    if (stage.dp > 1 && profile.tables.all_reduce.empty())
      refuse_input(profile.path, "expected times of all-reduces, because the plan has dp {}, found none",
                   stage.dp);
  }
}

void require_measured(const NamedProfile& profile, const Plan& plan, const ModelSpec& model) {
  require_measured(profile, plan_stages(plan, model));
  const std::vector<bool> windowed = model.encoder.layer_form().windowed;
  if (std::ranges::count(windowed, true) == 0 || profile.tables.windows) return;
  say_once(
      fmt::format("dflop: note: {}: attention within windows was not measured separately; encoder layers "
                  "with windows are priced by the mean length of their sequences\n",
                  printable(profile.path)));
}

void require_reach(const ProfiledCostModel& cost, const ProfileReach& reach, const std::string& path,
                   bool extrapolate) {
  constexpr double kFarthest = 2;
  if (reach.times() <= 1) return;
  const std::string found =
      fmt::format("the unit '{}' was measured up to {:.0f} {}", reach.name(), reach.last,
                  is_attention(reach.unit) ? "tokens of a sequence" : "tokens");
  if (reach.times() > kFarthest && launches_kernels(cost.profile()) && !extrapolate) {
    const bool of_torch = cost.profile().software.starts_with("torch ");
    const std::string measure =
        of_torch ? fmt::format("dflop.torch.profile(most_tokens={:.0f})", reach.asked)
                 : fmt::format("'dflop profile --most-tokens {:.0f}' and a larger --budget-s", reach.asked);
    refuse_input(
        path,
        "{}, but microbatches need {:.0f} ({:.1f} times as many): expected at most twice as many; measure "
        "it with {}, or add --extrapolate",
        found, reach.asked, reach.times(), measure);
  }
  say_once(fmt::format("dflop: note: {}: {}, but microbatches need more; their times are guesses\n",
                       printable(path), found));
}

ProfileReach reach_of(const ProfiledCostModel& cost, const Plan& plan, const ModelSpec& model,
                      std::span<const Batch> batches) {
  ProfileReach farthest;
  for (const Stage& stage : plan_stages(plan, model)) {
    const auto ask = [&](const Work& work) {
      farthest.extend(cost.reach(stage, {stage.encoder_layers > 0 ? work.encoder : Workload{},
                                         stage.llm_layers > 0 ? work.llm : Workload{}}));
    };
    for (const Batch& batch : batches) {
      const Work total = total_work(batch);
      const int encoder_dp = encoder_parts(plan);
      ask({mean_part(total.encoder, std::int64_t{plan.microbatches} * encoder_dp),
           mean_part(total.llm, plan.bins())});
      const auto longest = std::ranges::max_element(batch, {}, &Sample::llm_tokens);
      if (longest != batch.end()) ask({{}, longest->llm()});
    }
  }
  return farthest;
}

void require_reach(const NamedProfile& profile, const Plan& plan, const ModelSpec& model,
                   std::span<const Batch> batches, bool extrapolate) {
  const ProfiledCostModel cost(profile.tables);
  require_reach(cost, reach_of(cost, plan, model, batches), profile.path, extrapolate);
}

std::unique_ptr<const SumCostModel> measured_cost(const ProfileTables& profile) {
  return std::make_unique<MeasuredCostModel>(profile);
}

}  // namespace dflop
