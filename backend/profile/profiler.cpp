#include "backend/profile/profiler.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/host/machine.hpp"
#include "backend/model/live_checks.hpp"
#include "backend/profile/link_bench.hpp"
#include "core/support/median.hpp"
#include "costmodel/recorded/link_fit.hpp"

namespace dflop {
namespace {

/// A Rank is what a rank of the measuring works with.
struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<Kernels> kernels;
};

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

RankContext context_of(const Rank& rank, const RankGroup& tp = {{0}}, int tp_rank = 0,
                       bool sequence_parallel = false) {
  return {*rank.device, *rank.stream, *rank.kernels, *rank.communicator, tp, tp_rank, sequence_parallel};
}

/// Returns the first ranks in groups of tp: as many groups as `busy` ranks fill, one at least.
std::vector<RankContext> in_tp_groups(const std::vector<Rank>& ranks, const TpMode& mode, int busy) {
  const int tp = mode.tp;
  std::vector<RankContext> contexts;
  for (int g = 0; g < std::max(1, busy / tp); ++g) {
    RankGroup group{std::vector<std::int32_t>(static_cast<std::size_t>(tp))};
    std::iota(group.ranks.begin(), group.ranks.end(), g * tp);
    for (int t = 0; t < tp; ++t) {
      contexts.push_back(
          context_of(ranks[static_cast<std::size_t>(g * tp + t)], group, t, mode.sequence_parallel));
    }
  }
  return contexts;
}

}  // namespace

ProfileTables measure_profile(const ModelSpec& model, World& world, const ProfilerOptions& options,
                              const ProfilerProgress& progress) {
  require_live(model);
  std::vector<Rank> ranks;
  std::vector<LinkEnd> ends;
  for (int r = 0; r < world.ranks(); ++r) {
    Rank rank{world.make_device(r), world.make_communicator(r), nullptr, nullptr};
    rank.stream = rank.device->make_stream();
    rank.kernels = rank.device->make_kernels(*rank.stream, options.dtype);
    ends.push_back({*rank.communicator, *rank.device, *rank.stream});
    ranks.push_back(std::move(rank));
  }
  ProfileTables profile;
  profile.device = world.device_name();
  profile.cpu = host_cpu();
  profile.software = world.software();
  profile.dtype = to_string(options.dtype);
  profile.value_bytes = static_cast<std::int64_t>(bytes_of(options.dtype));
  profile.sum_bytes = static_cast<std::int64_t>(sum_bytes_of(options.dtype));
  profile.model = profiled_model(model);
  profile.settings = {options.seed, options.budget.count(), options.most_tokens, options.busy};
  const UnitProfilerOptions units{options.seed, options.budget / static_cast<double>(options.modes.size()),
                                  options.most_tokens};
  profile.optimizer = measure_optimizer(context_of(ranks.front()));
  const LinkLines lines = measure_links(ends, sum_element_of(options.dtype));
  profile.message = lines.message;
  profile.all_reduce = lines.all_reduce;
  if (options.earlier != nullptr) {
    profile.tp = options.earlier->tp;
    profile.all_reduce.insert(options.earlier->all_reduce.begin(),
                              options.earlier->all_reduce.end());  // of more ranks
  }
  for (const TpMode& mode : options.modes) {
    const auto place =
        std::lower_bound(profile.tp.begin(), profile.tp.end(), mode,
                         [](const TpProfile& has, const TpMode& wanted) { return has.mode < wanted; });
    if (place != profile.tp.end() && place->mode == mode) continue;
    profile.tp.insert(place, measure_units(model, in_tp_groups(ranks, mode, options.busy), units, progress));
    if (options.on_tables && mode != options.modes.back()) options.on_tables(profile);
  }
  return profile;
}

}  // namespace dflop
