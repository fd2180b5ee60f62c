#include "backend/profile/profiler.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/host/machine.hpp"
#include "backend/model/parameter_list.hpp"
#include "core/quanta.hpp"
#include "core/refuse.hpp"
#include "core/support/host_cpu.hpp"

namespace dflop {
namespace {

/// Returns the first ranks in groups of tp: as many groups as `busy` ranks fill, at least one.
std::vector<RankContext> in_tp_groups(const std::vector<LocalRank>& ranks, const TpMode& mode, int busy) {
  const int tp = mode.tp;
  std::vector<RankContext> contexts;
  for (int g = 0; g < std::max(1, busy / tp); ++g) {
    const RankGroup group = consecutive_ranks(g * tp, tp);
    for (int t = 0; t < tp; ++t) {
      contexts.push_back(
          context_of(ranks[static_cast<std::size_t>(g) * tp + t], group, t, mode.sequence_parallel));
    }
  }
  return contexts;
}

/// Returns the number of tables that share the budget.
std::size_t tables_of(const ProfilerOptions& options) {
  return options.modes.size() * std::max<std::size_t>(1, options.shares.size());
}

/// A Measured is a model, or a part of one, and its tables in a profile.
struct Measured {
  const ModelSpec& model;
  std::vector<TpProfile>& tables;
};

/// Adds tables in their place; calls `measure` for missing ones.
template <typename Measure>
void add_tables(std::vector<TpProfile>& all, const TpMode& mode, int quanta, const Measure& measure) {
  const auto place_of = [](const TpProfile& tables) { return std::pair(tables.mode, tables.quanta); };
  const auto place = std::ranges::lower_bound(all, std::pair(mode, quanta), {}, place_of);
  if (place != all.end() && place_of(*place) == std::pair(mode, quanta)) return;
  TpProfile tables = measure();
  tables.quanta = quanta;
  all.insert(place, std::move(tables));
}

/// Measures units of a mode on a share of as many devices as it has tp ranks, with neighbors on the rest of
/// each device.
void add_part(const Measured& of, const TpMode& mode, double share, const ProfilerOptions& options,
              const ProfilerProgress& progress, ProfileTables& profile) {
  const std::unique_ptr<World> world = options.make_shared_world(mode.tp, share);
  if (profile.quanta > 1 && profile.quanta != world->quanta()) {
    refuse_input("", "devices are divided into {} quanta here, but into {} in the other tables",
                 world->quanta(), profile.quanta);
  }
  profile.quanta = world->quanta();
  for (std::vector<TpProfile>* all : {&profile.tp, &profile.second_tp}) {
    for (TpProfile& tables : *all) {
      if (!tables.part) tables.quanta = profile.quanta;  // the whole profile's
    }
  }
  add_tables(of.tables, mode, encoder_quanta(world->quanta(), share), [&] {
    std::vector<LocalRank> ranks;
    for (int r = 0; r < world->ranks(); ++r) ranks.emplace_back(*world, r, options.dtype);
    return measure_part(of.model, in_tp_groups(ranks, mode, 2 * mode.tp), options, progress);
  });
}

/// Measures units of all encoders in one mode and on one share before the next, so that `profile` is valid
/// after each.
void measure_tables(const std::vector<Measured>& all, const std::vector<LocalRank>& ranks,
                    ProfilerOptions options, const ProfilerProgress& progress, ProfileTables& profile) {
  options.budget /= static_cast<double>(all.size());
  std::size_t left = tables_of(options);
  for (const TpMode& mode : options.modes) {
    for (const double share : options.shares) {
      for (const Measured& of : all) {
        if (share < 1) {
          add_part(of, mode, share, options, progress, profile);
        } else {
          add_tables(of.tables, mode, profile.quanta, [&] {
            return measure_units(of.model, in_tp_groups(ranks, mode, options.busy), options, progress);
          });
        }
      }
      if (--left > 0 && options.on_tables) options.on_tables(profile);
    }
  }
}

/// Returns the windows of the encoder's attention; none if all its layers see whole sequences.
std::optional<AttentionWindows> windows_of(const ModelSpec& model) {
  if (model.encoder.layers == 0 || !model.architecture) return std::nullopt;
  const std::vector<bool>& windowed = model.encoder.layer_form().windowed;
  const auto layers = static_cast<int>(std::ranges::count(windowed, true));
  if (layers == 0) return std::nullopt;
  const std::int64_t side =
      std::int64_t{model.architecture->picture.window} * model.architecture->picture.merge;
  return AttentionWindows{layers, side * side};
}

/// Returns the max number of tokens of a point.
std::int64_t most_tokens(const ProfilerOptions& options) {
  return std::max(options.llm.tokens, options.encoder.value_or(options.llm).tokens);
}

}  // namespace

ProfileTables measure_profile(const ModelSpec& model, World& world, const ProfilerOptions& options,
                              const ProfilerProgress& progress) {
  require_live(model);
  std::vector<LocalRank> ranks;
  for (int r = 0; r < world.ranks(); ++r) ranks.emplace_back(world, r, options.dtype);
  ProfileTables profile;
  profile.device = world.device_name();
  profile.cpu = host_cpu();
  profile.software = world.software();
  profile.dtype = to_string(options.dtype);
  profile.value_bytes = static_cast<std::int64_t>(bytes_of(options.dtype));
  profile.sum_bytes = static_cast<std::int64_t>(sum_bytes_of(options.dtype));
  profile.row_alignment = ranks.front().device->row_alignment();
  profile.model = profiled_model(model);
  profile.quanta = std::max(1, world.quanta());
  profile.settings = {options.seed, options.budget.count(), most_tokens(options), options.busy};
  profile.windows = windows_of(model);
  const LocalRank& first = ranks.front();
  run_in_threads(1, {[&](std::size_t) { first.device->enter_thread(); },
                     [&](std::size_t) {
                       profile.optimizer = measure_optimizer(context_of(first));
                       profile.norm = measure_norm(context_of(first));
                     },
                     [&](std::size_t, const std::string& message) { first.communicator->abort(message); }});
  measure_links(ranks, sum_type_of(options.dtype), profile);
  if (options.earlier != nullptr) {
    if (options.earlier->row_alignment != profile.row_alignment) {
      refuse_input(
          "", "key 'row_alignment' of the existing tables: expected {}, as the device pads rows, found {}",
          profile.row_alignment, options.earlier->row_alignment);
    }
    profile.tp = options.earlier->tp;
    profile.second_tp = options.earlier->second_tp;
    profile.quanta = options.earlier->quanta;
    profile.all_reduce.insert(options.earlier->all_reduce.begin(),
                              options.earlier->all_reduce.end());  // of more ranks
  }
  std::vector<Measured> all = {{model, profile.tp}};
  ModelSpec second;
  if (model.second) {
    second = model.of_second();
    second.llm.layers = 0;  // the first tables have its LLM
    all.push_back({second, profile.second_tp});
  }
  measure_tables(all, ranks, options, progress, profile);
  return profile;
}

}  // namespace dflop
