#include "backend/profile/profiler.hpp"

#include <vector>

#include "core/support/median.hpp"
#include "costmodel/recorded/recorded.hpp"

namespace dflop {

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

}  // namespace dflop
