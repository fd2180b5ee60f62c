#include "experiments/training/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/world.hpp"
#include "backend/host/machine.hpp"
#include "core/error.hpp"
#include "core/program/lowering.hpp"
#include "traces/files/measured.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

void require_model(const ModelSpec& model, const ProfileTables& profile, const std::string& path) {
  ModelSpec expected = profiled_model(model);
  expected.name = profile.model.name;  // a file may have been given by another path
  if (expected == profile.model) return;
  throw Error(ErrorKind::input,
              fmt::format("a profile of another model: '{}' there and '{}' here differ in sizes",
                          profile.model.name, model.name),
              path);
}

/// Returns the command that measures tables of a mode beside those of a profile.
std::string command_for(const TpMode& mode, const ProfileTables& profile, const std::string& path) {
  const ProfileSettings& settings = profile.settings;
  const bool partition = profile.device.ends_with(kPartitionName);
  const int ranks = profile.all_reduce.empty() ? 2 : std::max(2, profile.all_reduce.rbegin()->first);
  return fmt::format(
      "dflop profile --device {}{} --model {} --dtype {} --seed {} --budget-s {} --most-tokens {} --busy {} "
      "--ranks {} --tp {}{} --resume --out {}",
      profile.device == "host" ? "host" : "cuda", partition ? " --partition" : "", profile.model.name,
      profile.dtype, settings.seed, settings.budget_s, settings.most_tokens, settings.busy_ranks, ranks,
      mode.tp, mode.tp > 1 && !mode.sequence_parallel ? " --no-sequence-parallel" : "", path);
}

void require_stage(const Stage& stage, const ProfileTables& profile, const std::string& path) {
  const auto has_mode = [&](const TpProfile& tp) { return tp.mode == tp_mode(stage); };
  if (std::none_of(profile.tp.begin(), profile.tp.end(), has_mode)) {
    throw Error(ErrorKind::input,
                fmt::format("the plan needs tables of {}, which are not there; '{}' adds them",
                            to_string(tp_mode(stage)), command_for(tp_mode(stage), profile, path)),
                path);
  }
  if (stage.dp > 1 && profile.all_reduce.empty()) {
    throw Error(ErrorKind::input, "the plan has dp > 1, and no all-reduce was measured", path);
  }
}

}  // namespace

void require_measured(const ProfileTables& profile, const std::string& path, const ModelSpec& model,
                      const World& world, DType dtype, bool elsewhere) {
  const auto require = [&](const std::string& what, const std::string& expected, const std::string& found) {
    if (expected == found) return;
    throw Error(ErrorKind::input,
                fmt::format("a profile of another {}: expected '{}', found '{}'", what, expected, found),
                path);
  };
  if (!elsewhere) {
    require("device", world.device_name(), profile.device);
    require("processor", host_cpu(), profile.cpu);
    require("driver or library", world.software(), profile.software);
  }
  require("precision", std::string(to_string(dtype)), profile.dtype);
  require("size of values", std::to_string(bytes_of(dtype)), std::to_string(profile.value_bytes));
  require("size of sums", std::to_string(sum_bytes_of(dtype)), std::to_string(profile.sum_bytes));
  require_model(model, profile, path);
}

void require_profile(const ProfileTables& profile, const std::string& path, const ModelSpec& model,
                     const Plan& plan, const World& world, DType dtype, bool elsewhere) {
  require_measured(profile, path, model, world, dtype, elsewhere);
  for (const Stage& stage : plan_stages(plan, model)) require_stage(stage, profile, path);
}

std::shared_ptr<const ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                               const ModelSpec& model, const Plan& plan,
                                                               const World& world, DType dtype,
                                                               bool elsewhere) {
  if (!path) return nullptr;
  ProfileTables profile = parse_profile_tables(read_text_file(*path), *path);
  require_profile(profile, *path, model, plan, world, dtype, elsewhere);
  return std::make_shared<const ProfiledCostModel>(std::move(profile));
}

double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program) {
  double all = 0;
  double beyond = 0;
  for (const Instruction& i : program.instructions) {
    if (!is_compute(i.op)) continue;
    ++all;
    if (cost.extrapolates(program.stages[i.stage], program.works[static_cast<std::size_t>(i.index)])) {
      ++beyond;
    }
  }
  return all > 0 ? beyond / all : 0;
}

}  // namespace dflop
