#include "backend/profile/profiler.hpp"

#include <functional>
#include <memory>
#include <vector>

#include "core/support/median.hpp"
#include "costmodel/recorded/recorded.hpp"

namespace dflop {
namespace {

/// Returns the numbers of parameters at which lines are measured. If there is a cache from which steps do not
/// profit, the numbers are so large that it holds only a small part of the parameters, as in a step.
std::vector<std::int64_t> sizes_for(const Device& device) {
  const std::int64_t cache = device.cache().count;
  if (cache > 0) return {1 << 12, cache / kFp32Bytes, cache};
  return {1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20};
}

/// Fits a line to the median times of run() over the number of parameters.
/// @param prepare makes the data for run()
ProfileLine line_over_parameters(const RankContext& rank,
                                 const std::function<std::function<void()>(std::int64_t)>& prepare) {
  constexpr int kRepeats = 9;
  const auto begin = rank.device.make_event();
  const auto end = rank.device.make_event();
  std::vector<LinkSample> samples;
  for (const std::int64_t parameters : sizes_for(rank.device)) {
    const std::function<void()> run = prepare(parameters);
    std::vector<double> times;
    for (int i = 0; i <= kRepeats; ++i) {
      rank.compute.record(*begin);
      run();
      rank.compute.record(*end);
      rank.compute.synchronize();
      if (i > 0) times.push_back(Seconds(end->time() - begin->time()).count());
    }
    samples.push_back({static_cast<double>(parameters), Seconds(median(times))});
  }
  const std::optional<LinkFit> fit = fit_link(samples);
  return {fit->latency.count(), fit->seconds_per_byte};
}

/// Returns sums of zeros.
std::shared_ptr<SumTensor> zero_sums(const RankContext& rank, std::int64_t parameters) {
  auto sums = std::make_shared<SumTensor>(rank, 1, parameters);
  rank.kernels.zero(Sums(*sums));
  return sums;
}

}  // namespace

ProfileLine measure_optimizer(const RankContext& rank) {
  return line_over_parameters(rank, [&rank](std::int64_t parameters) -> std::function<void()> {
    auto weight = std::make_shared<Tensor>(rank, 1, parameters);
    rank.kernels.zero(Matrix(*weight));
    const DType dtype = rank.kernels.dtype();
    const bool has_master = bytes_of(dtype) < sum_bytes_of(dtype);  // as in ParameterStore::step()
    return [&rank, weight, gradient = zero_sums(rank, parameters), first = zero_sums(rank, parameters),
            second = zero_sums(rank, parameters), master = zero_sums(rank, has_master ? parameters : 0)] {
      const Sums masters =
          master->view().size() > 0 ? master->view() : Sums{weight->view().data, 1, weight->view().size()};
      rank.kernels.adamw(*weight, masters, *first, *second, *gradient, {});
    };
  });
}

ProfileLine measure_norm(const RankContext& rank) {
  return line_over_parameters(rank, [&rank](std::int64_t parameters) -> std::function<void()> {
    return [&rank, sum = zero_sums(rank, 1), gradient = zero_sums(rank, parameters)] {
      rank.kernels.sum_of_squares(*sum, *gradient);
    };
  });
}

}  // namespace dflop
