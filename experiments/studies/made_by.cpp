#include "experiments/studies/made_by.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/times.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <thread>

#include "core/support/host_cpu.hpp"
#include "experiments/cli/commit.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"
#include "traces/files/plan.hpp"

namespace dflop {
namespace {

MachineOrigin this_machine() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return {host.data(), host_cpu(), std::max<std::int64_t>(1, std::thread::hardware_concurrency())};
}

}  // namespace

Provenance made_here(const Values& values) {
  Provenance made_by{DFLOP_VERSION, commit(), command_line()};
  if (values.count("gbs") > 0) made_by.gbs = values["gbs"].as<std::int64_t>();
  if (values.count("seed") > 0) made_by.seed = static_cast<std::uint64_t>(values["seed"].as<std::int64_t>());
  made_by.machine = this_machine();
  return made_by;
}

Provenance with_target(Provenance made_by, const Target& target) {
  made_by.model = {target.model.name, model_hash(target.model.name)};
  made_by.cluster = {target.cluster.name, cluster_hash(target.cluster.name)};
  made_by.profile = target.profile;
  made_by.kernels = target.kernels;
  return made_by;
}

Provenance made_here(const Values& values, const Target& target) {
  return with_target(made_here(values), target);
}

Provenance made_here(const Values& values, const Target& target, const DataOrigin& data) {
  Provenance made_by = made_here(values, target);
  made_by.data = data;
  return made_by;
}

Provenance made_here(const Values& values, const PlanFiles& files) {
  Provenance made_by = made_here(values, files.target);
  made_by.plan = origin_of(files.plan, values["plan"].as<std::string>());
  made_by.gbs = files.schedule.gbs;
  made_by.seed = files.schedule.seed;
  if (files.schedule.made_by) made_by.data = files.schedule.made_by->data;
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

void add_mixed_option(Options& options) {
  options.add(OptionGroup::times,
              {{"mixed", flag(), "allow mixing files made with different models, clusters or data"}});
}

void require_together(const Values& values, const std::string& file, const std::optional<Provenance>& made_by,
                      const std::string& other, const std::optional<Provenance>& others) {
  if (!made_by || !others) return;
  const std::vector<std::string> found = contradictions(*made_by, *others);
  if (found.empty()) return;
  const std::string what = fmt::format("made with other inputs than {}: {}", other, fmt::join(found, "; "));
  if (!values["mixed"].as<bool>()) {
    throw Error(ErrorKind::input, what + "; --mixed allows this", file);
  }
  say("dflop: note: {} was {}\n", printable(file), printable(what));
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
