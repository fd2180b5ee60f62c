// dflop profile measures the time and memory of the parts of a model on a live device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "backend/profile/profiler.hpp"
#include "core/refuse.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/cli/stop_signals.hpp"
#include "experiments/cli/value_text.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/live/device_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/files/specs.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kMinTokens = 32;  // for two points of each unit
constexpr std::int64_t kProfileMostTokens = 1 << 17;
constexpr double kProfileMostBudgetS = 86'400;
constexpr int kMaxRanks = kMaxTp;

/// Reads "3/4" or "0.75". @throws Error (usage) if this is not a part of a device
double read_share(const std::string& text) {
  constexpr double kMax = 1 << 20;
  ValueText reader("shares", "parts of a device above 0 and up to 1, such as 1/2,1", text);
  double share = reader.number(0.0, kMax);
  if (reader.take("/")) share /= reader.number(1.0, kMax);
  reader.expect_end();
  if (!(share > 0 && share <= 1)) reader.fail();
  return share;
}

/// Reads --shares, sorted and without duplicates.
/// @throws Error (usage) for a share of a device that does not support shares, or a share that is not a whole
/// number of its cores
std::vector<double> read_shares(const Values& values, const LiveDevice& device) {
  constexpr double kRounding = 1e-6;
  std::set<double> shares;
  for (const std::string_view part : split(values["shares"].as<std::string>(), ',')) {
    const std::string text(part);
    const double share = read_share(text);
    if (share == 1 || device.partition) {
      shares.insert(share);
      continue;
    }
    if (device.device_cores < 2)
      refuse_value("shares", "--device-cores 2 or more, or --partition, for parts below 1", text);
    const double cores = share * device.device_cores;
    const double whole = std::round(cores);
    if (std::abs(cores - whole) > kRounding || whole < 1 || whole >= device.device_cores)
      refuse_value(
          "shares",
          fmt::format("parts that are whole numbers of the {} cores of --device-cores", device.device_cores),
          text);
    shares.insert(whole / device.device_cores);
  }
  return {shares.begin(), shares.end()};
}

/// Adds the share of the device that a row was measured on, and the slowdown of each pass while a neighbor
/// uses the rest.
void add_part_cells(std::vector<Cell>& row, const TpProfile& tp, std::size_t unit, int quanta) {
  row.push_back(fmt::format("{}/{}", tp.quanta, quanta));
  if (!tp.part) return row.resize(row.size() + 3);
  const PassFactors& factors = tp.part->beside[unit];
  row.insert(row.end(), {factors.forward, factors.backward_input, factors.backward_weight});
}

Table unit_table(const ProfileTables& profile) {
  Table table;
  const bool has_parts = std::ranges::any_of(profile.tp, [](const TpProfile& tp) { return !!tp.part; });
  table.columns = {{"tp", "tp"},
                   {"sequence_parallel", "sequence parallel"},
                   {"unit", "unit"},
                   {"tokens", "tokens"},
                   {"length", "length"},
                   {"forward_s", "forward us", 1, 1e6},
                   {"backward_input_s", "backward input us", 1, 1e6},
                   {"backward_weight_s", "backward weight us", 1, 1e6}};
  if (has_parts) {
    for (const Column& column : {Column{"quanta", "of device"}, Column{"forward_beside", "forward x", 3},
                                 Column{"backward_input_beside", "backward input x", 3},
                                 Column{"backward_weight_beside", "backward weight x", 3}}) {
      table.columns.push_back(column);
    }
  }
  const auto add_tables = [&](const std::vector<TpProfile>& tables, std::string_view before) {
    for (const TpProfile& tp : tables) {
      for (std::size_t u = 0; u < kProfileUnits; ++u) {
        const auto unit = static_cast<ProfileUnit>(u);
        for (const ProfilePoint& p : tp.units[u]) {
          table.rows.push_back({tp.mode.tp, tp.mode.sequence_parallel,
                                fmt::format("{}{}", before, to_string(unit)), p.tokens,
                                is_attention(unit) ? Cell(p.length) : Cell(), p.forward_s, p.backward_input_s,
                                p.backward_weight_s});
          if (has_parts) add_part_cells(table.rows.back(), tp, u, profile.quanta);
        }
      }
    }
  };
  add_tables(profile.tp, "");
  add_tables(profile.second_tp, "second_");
  return table;
}

std::vector<std::string> modes_of(const ProfileTables& tables) {
  std::vector<std::string> modes;
  for (const TpProfile& tp : tables.tp) modes.push_back(to_string(tp.mode, tp.quanta, tables.quanta));
  return modes;
}

/// Reads the tables that --resume continues; nothing without --resume or if there is no file yet.
std::optional<ProfileTables> read_earlier(const Values& values, const ModelSpec& model, const World& world,
                                          const ProfilerOptions& options) {
  if (!values["resume"].as<bool>()) return std::nullopt;
  const std::optional<std::string> path = read_text(values, "out");
  if (!path) refuse_option("resume", "needs '--out FILE'");
  if (!std::filesystem::exists(*path)) return std::nullopt;
  ProfileTables earlier = parse_profile_tables(read_text_file(*path), *path);
  require_measured(earlier, *path, {model, world, options.dtype});
  const ProfileSettings& settings = earlier.settings;
  if (!earlier.kernels.empty()) {
    refuse_input(*path, "expected times of the default kernels, found times with the kernels of a file ({})",
                 earlier.kernels);
  }
  if (settings.seed != options.seed || settings.most_tokens != options.llm.tokens ||
      settings.busy_ranks != options.busy) {
    refuse_input(*path,
                 "the profile was measured with other settings: expected --seed {}, --most-tokens {}, "
                 "--busy {}, found {}, {}, {}",
                 options.seed, options.llm.tokens, options.busy, settings.seed, settings.most_tokens,
                 settings.busy_ranks);
  }
  const auto is_old = [](const TpProfile& tp) { return tp.forward_buffers == BytesPerToken{}; };
  for (const TpProfile& tp : earlier.tp) {
    if (!is_old(tp)) continue;
    const bool again = std::binary_search(options.modes.begin(), options.modes.end(), tp.mode);
    say("dflop: note: {}: tables of {} have version 1, without memory; they are {}\n", *path,
        to_string(tp.mode), again ? "measured again" : "left out, because --tp does not include them");
  }
  std::erase_if(earlier.tp, is_old);
  std::erase_if(earlier.second_tp, is_old);
  return earlier;
}

int run_profile(const Values& values) {
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  LiveDevice device = read_local_device(values);
  device.cores = default_cores(device);
  device.device_cores = read_device_cores(values, device);
  ProfilerOptions options;
  options.seed = read_seed(values);
  options.dtype = read_dtype(values);
  options.budget = Seconds(read_number(values, "budget-s", 0, kProfileMostBudgetS));
  const std::int64_t most = read_optional_integer(values, "most-tokens", kMinTokens, kProfileMostTokens)
                                .value_or(usual_most_tokens(device));
  options.llm = {most, most};
  options.modes = read_tp_modes(values);
  options.shares = read_shares(values, device);
  options.make_shared_world = [device, timeout = profile_timeout(options.budget)](int devices, double share) {
    return make_shared_world(device, devices, share, timeout);
  };
  options.busy = static_cast<int>(read_integer(values, "busy", 1, kMaxRanks));
  const auto ranks = std::max(
      {static_cast<int>(read_integer(values, "ranks", 2, kMaxRanks)), options.busy, options.modes.back().tp});
  const ModelSpec model = find_model(values["model"].as<std::string>());
  require_tp_modes(model, options.modes);

  const std::unique_ptr<World> world = make_live_world(device, ranks);
  const std::optional<ProfileTables> earlier = read_earlier(values, model, *world, options);
  if (earlier) options.earlier = &*earlier;
  std::string kept = earlier ? *out + " is unchanged" : "nothing was saved";
  const HostLoad load;
  const auto write = [&](ProfileTables tables) {
    tables.dflop_version = DFLOP_VERSION;
    if (!out) return;
    Provenance made_by = made_here(values);
    made_by.model = {model.name, model_hash(model.name)};
    made_by.machine->others = load.others();
    write_file_atomically(*out, with_provenance(to_json(tables), made_by));
    kept = fmt::format("{} has {}; continue with --resume", *out, fmt::join(modes_of(tables), ", "));
  };
  options.on_tables = write;
  ProfileTables measured;
  const StopOnSignals signals;
  try {
    Progress progress("measuring");
    measured = measure_profile(model, *world, options, [&](std::int64_t done, std::int64_t total) {
      signals.check();
      progress.update(done, total);
    });
  } catch (const Stopped& stopped) {
    say("dflop: {}; {}\n", stopped.what(), kept);
    return stopped.exit_code();
  }
  write(measured);
  print_table(unit_table(measured), format);
  return 0;
}

}  // namespace

Command profile_command() {
  Command command{
      .name = "profile",
      .task = Task::run,
      .summary = "measure the parts of a model on a live device",
      .description =
          R"(Runs each part of the model by itself, forward and backward, on 16, 32, 64, ... tokens, and
attention also on sequences of these lengths; large points that do not fit into --budget-s are skipped. Prints the
means without outliers. The file also has the optimizer, memory, messages and all-reduces; 'dflop train --profile'
predicts with it. Parts are measured on one rank (tp 1) unless '--tp' and '--busy' are given: ranks that share
the cores, caches and memory of a processor take longer. Measured seconds differ from run to run.)",
      .example = "dflop profile --device host --model tiny-vlm --budget-s 1 --out profile.json",
      .run = run_profile,
  };
  add_model_option(command.options, text("NAME|FILE|DIR").required());
  add_live_options(command.options);
  command.options.add(
      OptionGroup::output,
      {
          {"out", text("FILE").common(), "write the profile to this file"},
          {"resume", flag(),
           "continue the profile in --out, which is written after each tp: measure only the tp values "
           "that it lacks"},
      });
  add_measuring_time_option(command.options, 20);
  command.options.add({
      {"most-tokens", whole("N"), "max tokens in one measurement; default: 2048 on a host, 16384 on a GPU"},
      {"ranks", whole("N", 2).common(), "measure all-reduces over 2, 4, ..., N ranks"},
      {"shares", text("PART,...", "1"),
       "for plans that share devices (docs/shares.md): measure the parts on these fractions of a device, "
       "such as 1/4,1/2,3/4,1, first with the rest idle, then with a busy neighbor on it"},
      {"busy", whole("N", 1), "ranks that run the parts at the same time, in whole tp groups"},
  });
  add_measured_tp_options(command.options);
  add_seed_option(command.options);
  add_device_cores_option(command.options);
  return command;
}

}  // namespace dflop
