#include "backend/profile/profiler.hpp"

#include <algorithm>

#include "backend/host/machine.hpp"
#include "backend/model/parameter_list.hpp"
#include "core/support/median.hpp"
#include "costmodel/recorded/recorded.hpp"

namespace dflop {
namespace {

/// Returns the seconds of one optimizer step by its parameters.
ProfileLine measure_optimizer(const RankContext& rank) {
  constexpr int kRepeats = 9;
  std::vector<LinkSample> samples;
  const auto begin = rank.device.make_event();
  const auto end = rank.device.make_event();
  for (std::int64_t parameters = 1 << 12; parameters <= 1 << 20; parameters *= 4) {
    Tensor weight(rank, 1, parameters);
    SumTensor sums[4];  // gradient, moments, master
    for (SumTensor& sum : sums) {
      sum = SumTensor(rank, 1, parameters);
      rank.kernels.zero(Sums(sum));
    }
    const DType dtype = rank.kernels.dtype();
    const bool has_master = bytes_of(dtype) < sum_bytes_of(dtype);  // as in ParameterStore::step()
    const Sums master = has_master ? sums[3].view() : Sums{weight.view().data, 1, parameters};
    rank.kernels.zero(Matrix(weight));
    std::vector<double> times;
    for (int i = 0; i <= kRepeats; ++i) {
      rank.compute.record(*begin);
      rank.kernels.adamw(weight, master, sums[1], sums[2], sums[0], {});
      rank.compute.record(*end);
      rank.compute.synchronize();
      if (i > 0) times.push_back(Seconds(end->time() - begin->time()).count());
    }
    samples.push_back({static_cast<double>(parameters), Seconds(median(times))});
  }
  const std::optional<LinkFit> fit = fit_link(samples);
  return {fit->latency.count(), fit->seconds_per_byte};
}

/// Returns the first ranks in groups of tp: as many groups as `busy` ranks fill, one at least.
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
  profile.model = profiled_model(model);
  profile.settings = {options.seed, options.budget.count(), options.most_tokens, options.busy};
  profile.optimizer = measure_optimizer(context_of(ranks.front()));
  measure_links(ranks, sum_type_of(options.dtype), profile);
  if (options.earlier != nullptr) {
    profile.tp = options.earlier->tp;
    profile.all_reduce.insert(options.earlier->all_reduce.begin(),
                              options.earlier->all_reduce.end());  // of more ranks
  }
  for (const TpMode& mode : options.modes) {
    const auto place = std::ranges::lower_bound(profile.tp, mode, {}, &TpProfile::mode);
    if (place != profile.tp.end() && place->mode == mode) continue;
    profile.tp.insert(place,
                      measure_units(model, in_tp_groups(ranks, mode, options.busy), options, progress));
    if (options.on_tables && mode != options.modes.back()) options.on_tables(profile);
  }
  return profile;
}

}  // namespace dflop
