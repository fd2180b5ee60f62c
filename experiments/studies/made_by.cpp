#include "experiments/studies/made_by.hpp"

#include <fmt/format.h>
#include <sys/times.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>

#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"
#include "traces/files/plan.hpp"

namespace dflop {

Provenance with_target(Provenance made_by, const Target& target) {
  made_by.model = {target.model.name, model_hash(target.model.name)};
  made_by.cluster = {target.cluster.name, cluster_hash(target.cluster.name)};
  made_by.profile = target.profile;
  made_by.kernels = target.kernels;
  return made_by;
}

Origin origin_of(const Plan& plan, const std::string& name) {
  return {name, content_hash(to_json(plan))};
}

void say_made_by(const std::string& file, const std::optional<Provenance>& made_by) {
  if (!made_by) return;
  say("dflop: {}:\n", printable(file));
  for (const std::string& line : provenance_lines(*made_by)) say("  {}\n", printable(line));
}

void note_changed_files(const std::string& file, const std::optional<Provenance>& made_by,
                        const Target& target) {
  if (!made_by) return;
  const auto note = [&](const std::optional<Origin>& then, const std::string& name, const std::string& now) {
    if (!then || then->name != name || then->hash.empty() || now.empty() || then->hash == now) return;
    say("dflop: note: {} was made with an earlier version of {}; 'dflop plan' makes one for the current "
        "version\n",
        printable(file), printable(name));
  };
  note(made_by->model, target.model.name, model_hash(target.model.name));
  note(made_by->cluster, target.cluster.name, cluster_hash(target.cluster.name));
}

void note_profile_of(const std::string& file, const std::optional<Provenance>& made_by) {
  if (!made_by || !made_by->profile) return;
  say("dflop: note: {} was made with the profile {} ({}); without '--profile', times come from the "
      "cluster and may differ\n",
      printable(file), printable(made_by->profile->name), made_by->profile->hash);
}

void note_other_cut(const std::string& file, std::string_view plan_json, const SampleCut& cut) {
  const std::optional<Provenance> made_by = parse_provenance(plan_json, file);
  if (!made_by || !made_by->data) return;
  const SampleCut& of_plan = made_by->data->cut;
  const bool none_is_cut = of_plan.samples == 0 && cut.samples == 0;
  if (none_is_cut || (of_plan.longest == cut.longest && of_plan.drops == cut.drops)) return;
  const auto length = [](const SampleCut& of) {
    if (of.longest == 0) return std::string("not cut");
    return fmt::format("{} {} tokens", of.drops ? "left out if longer than" : "cut at", of.longest);
  };
  say("dflop: note: {} was made for samples that are {}; these are {} (--max-tokens, --drop-long)\n",
      printable(file), length(of_plan), length(cut));
}

HostLoad::HostLoad() : begin_(read()) {}

std::optional<double> HostLoad::others() const {
  const std::optional<Ticks> now = read();
  if (!begin_ || !now || now->all <= begin_->all) return std::nullopt;
  const double all = now->all - begin_->all;
  const double used = all - (now->idle - begin_->idle) - (now->own - begin_->own);
  return std::clamp(used / all, 0.0, 1.0);
}

/// Reads times in clock ticks, the unit of both /proc/stat (proc(5)) and times(2).
std::optional<HostLoad::Ticks> HostLoad::read() {
  std::ifstream stat("/proc/stat");
  std::string label;
  std::array<double, 8> of{};  // user, nice, system, idle, iowait, irq, softirq, steal
  stat >> label;
  for (double& ticks : of) stat >> ticks;
  tms own{};
  if (!stat || label != "cpu" || ::times(&own) == static_cast<clock_t>(-1)) return std::nullopt;
  return Ticks{std::accumulate(of.begin(), of.end(), 0.0), of[3] + of[4],
               static_cast<double>(own.tms_utime + own.tms_stime)};
}

}  // namespace dflop
