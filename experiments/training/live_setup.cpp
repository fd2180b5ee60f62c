#include "experiments/training/live_setup.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "backend/cuda/world.hpp"
#include "backend/host/machine.hpp"
#include "backend/model/parameter_list.hpp"
#include "backend/process/process_world.hpp"
#include "backend/profile/profiler.hpp"
#include "backend/run/live_executor.hpp"
#include "backend/run/worlds.hpp"
#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "core/support/host_cpu.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/named_profile.hpp"
#include "traces/files/specs.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Timeout between processes. It must cover the time for another process to write its part of a checkpoint,
/// for rank 0 to verify a checkpoint, which may take minutes, and for the first step of the slowest machine.
/// A process that ends is noticed at once.
constexpr Seconds kProcessTimeout{1800};
/// Timeout between ranks of one process. None of them can go missing, but with few cores a rank may compute
/// for an hour between two messages, and a terminal may suspend all of them for a night.
constexpr Seconds kThreadTimeout{24.0 * 3600};

/// Makes the process keep memory that it frees. Activations are freed and allocated again in every
/// microbatch. If they went back to the system in between, it would have to clear their pages each time,
/// which takes a large part of the time of a forward pass, but no time when a part is measured by itself.
/// Uses only one arena, because other arenas return whole heaps regardless of the threshold.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestThreshold = 32 << 20;  // the max that glibc accepts
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

std::unique_ptr<World> make_world_of(const LiveDevice& device, int ranks, WorldOptions options) {
  options.cores = device.cores;
  options.device_cores = device.device_cores;
  options.attention = device.attention;
  const WorldKind& kind = world_kind(device.name);
  if (kind.processes) {
    options.timeout = kProcessTimeout;
    const LaunchEnvironment launch = read_launch_environment(process_environment());
    const std::string note = token_note(launch);
    if (launch.rank == 0 && !note.empty()) say("dflop: note: {}\n", note);
  }
  std::unique_ptr<World> world = make_world(device.name, ranks, options);
  if (kind.on_host) keep_freed_memory();
  return world;
}

/// Checks that two ranks can share one of these devices.
void require_shares(const LiveDevice& device) {
  const WorldKind& kind = world_kind(device.name);
  if (!kind.shares) {
    refuse_input("", "key 'layout': a shared plan needs --device {}, found --device {}",
                 world_names([](const WorldKind& other) { return other.shares; }), device.name);
  }
  if (kind.partitions && !device.partition) {
    refuse_input("",
                 "key 'layout': each rank of a shared plan needs its own part of the GPU; add --partition to "
                 "--device {}",
                 device.name);
  }
  if (kind.on_host && device.device_cores < 2) {
    refuse_input("",
                 "key 'layout': a shared plan gives each module at least one core of a device; expected "
                 "--device-cores 2 or more, found {}",
                 device.device_cores);
  }
}

/// Returns the --device option that measures the device of a profile. The host has the name of its row in the
/// table. GPUs have their own names, and the first row for GPUs in one process measures them.
std::string_view device_option(const ProfileTables& profile) {
  if (const WorldKind* kind = find_world_kind(profile.device)) return kind->name;
  const auto has_gpu = [](const WorldKind& kind) { return !kind.on_host && !kind.processes; };
  return std::ranges::find_if(world_kinds(), has_gpu)->name;
}

/// Returns the options that measure a stage's part of a device, in addition to the parts that the profile
/// has.
std::string shares_option(const Stage& stage, const ProfileTables& profile) {
  const bool on_host = world_kind(std::string(device_option(profile))).on_host;
  const int quanta = stage.share != 1 ? std::max(2, profile.quanta) : profile.quanta;
  if (quanta < 2) return "";
  std::string options = on_host ? fmt::format(" --device-cores {}", quanta) : " --partition";
  if (stage.share != 1) options += fmt::format(" --shares {}/{},1", quanta_of(stage, quanta), quanta);
  return options;
}

/// Returns the command that adds a mode's tables to a profile.
std::string command_for(const Stage& stage, const ProfileTables& profile, const std::string& path) {
  const TpMode mode = tp_mode(stage);
  const ProfileSettings& settings = profile.settings;
  const bool partition = profile.device.ends_with(kPartitionName);
  const int ranks = profile.all_reduce.empty() ? 2 : std::max(2, profile.all_reduce.rbegin()->first);
  return fmt::format(
      "dflop profile --device {}{} --model {} --dtype {} --seed {} --budget-s {} --most-tokens {} --busy {} "
      "--ranks {} --tp {}{}{} --resume --out {}",
      device_option(profile), partition ? " --partition" : "", profile.model.name, profile.dtype,
      settings.seed, settings.budget_s, settings.most_tokens, settings.busy_ranks, ranks, mode.tp,
      mode.tp > 1 && !mode.sequence_parallel ? " --no-sequence-parallel" : "", shares_option(stage, profile),
      path);
}

void require_stage(const Stage& stage, const ProfileTables& profile, const std::string& path) {
  if (!has_tables(profile, stage)) {
    refuse_input(path, "the plan needs tables of {}, which the profile lacks; '{}' adds them",
                 needed_tables(profile, stage), command_for(stage, profile, path));
  }
  if (stage.dp > 1 && profile.all_reduce.empty()) {
    throw Error(ErrorKind::input, "the plan has dp > 1, but the profile has no all-reduces", path);
  }
}

}  // namespace

std::unique_ptr<World> make_live_world(const LiveDevice& device, int ranks) {
  WorldOptions options;
  options.timeout = kThreadTimeout;
  options.partition = device.partition && ranks > 1;  // a single rank has the whole device
  return make_world_of(device, ranks, options);
}

Seconds profile_timeout(Seconds budget) {
  return std::max(WorldOptions{}.timeout, budget);
}

std::unique_ptr<World> make_shared_world(const LiveDevice& device, int devices, double share,
                                         Seconds timeout) {
  require_shares(device);
  WorldOptions options;
  options.timeout = timeout;
  options.partition = device.partition;
  options.shared_devices = devices;
  options.first_share = share;
  return make_world_of(device, 2 * devices, options);
}

void require_device(const LiveDevice& device, const Plan& plan) {
  if (plan.layout == Layout::shared) require_shares(device);
}

std::unique_ptr<World> make_live_world(const LiveDevice& device, const Plan& plan) {
  if (plan.layout != Layout::shared) return make_live_world(device, plan.ranks());
  return make_shared_world(device, plan.gpus(), plan.encoder_share, kThreadTimeout);
}

std::int64_t usual_most_tokens(const LiveDevice& device) {
  constexpr std::int64_t kGpuTokens = 16'384;
  return world_kind(device.name).on_host ? PointRange{}.tokens : kGpuTokens;
}

int default_cores(const LiveDevice& device) {
  if (!world_kind(device.name).on_host) return 0;
  const std::size_t usable = usable_processors().size();
  return static_cast<int>(usable > 0 ? usable : std::max(1U, std::thread::hardware_concurrency()));
}

void require_trainable(const Plan& plan, const ModelSpec& model, const std::string& where) {
  if (plan.gbs > kMaxGbs) {
    refuse_input(where, "key 'gbs': expected at most {} for a live step, found {}", kMaxGbs, plan.gbs);
  }
  try {
    require_live(plan);
    require_split(model, plan.encoder.tp, plan.llm.tp);
  } catch (const Error& error) {
    throw Error(error.kind(), error.message(), where);
  }
}

void require_tp_modes(const ModelSpec& model, const std::vector<TpMode>& modes) {
  require_live(model);
  for (const TpMode& mode : modes) {
    try {
      require_split(model, mode.tp, mode.tp);
    } catch (const Error& error) {
      throw Error(ErrorKind::usage, error.message(), "option '--tp'");
    }
  }
}

void require_measured(const ProfileTables& profile, const std::string& path, const ProfileUse& use) {
  const World& world = use.world;
  const auto require = [&](const std::string& what, const std::string& expected, const std::string& found) {
    if (expected == found) return;
    refuse_input(path, "the profile is of another {}: expected '{}', found '{}'", what, expected, found);
  };
  if (!use.elsewhere) {
    require("device", world.device_name(), profile.device);
    require("processor", host_cpu(), profile.cpu);
    require("driver or library", world.software(), profile.software);
    if (world.quanta() > 0)
      require("number of cores per device (--device-cores) or of parts of a GPU",
              std::to_string(world.quanta()), std::to_string(profile.quanta));
  }
  require("precision", std::string(to_string(use.dtype)), profile.dtype);
  require("size of values", std::to_string(bytes_of(use.dtype)), std::to_string(profile.value_bytes));
  require("size of sums", std::to_string(sum_bytes_of(use.dtype)), std::to_string(profile.sum_bytes));
  require_model(use.model, profile, path);
}

void require_profile(const ProfileTables& profile, const std::string& path, const Plan& plan,
                     const ProfileUse& use) {
  require_measured(profile, path, use);
  for (const Stage& stage : plan_stages(plan, use.model)) require_stage(stage, profile, path);
}

std::shared_ptr<const ProfiledCostModel> read_training_profile(const std::optional<std::string>& path,
                                                               const Plan& plan, const ProfileUse& use) {
  if (!path) return nullptr;
  ProfileTables profile = parse_profile_tables(read_text_file(*path), *path);
  require_profile(profile, *path, plan, use);
  return std::make_shared<const ProfiledCostModel>(std::move(profile));
}

double extrapolated_fraction(const ProfiledCostModel& cost, const Program& program) {
  double all = 0;
  double beyond = 0;
  for (const Instruction& i : program.instructions) {
    if (!is_compute(i.op)) continue;
    ++all;
    if (cost.reach(program.stages[i.stage], program.works[static_cast<std::size_t>(i.index)]).times() > 1)
      ++beyond;
  }
  return all > 0 ? beyond / all : 0;
}

}  // namespace dflop
