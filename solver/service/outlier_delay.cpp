#include "solver/service/outlier_delay.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace dflop {
namespace {

/// A Window has the batches of a window while outliers are dealt out. Samples are named by the position at
/// which they were drawn.
struct Window {
  std::vector<std::vector<std::int32_t>> others;    // of each batch, as drawn
  std::vector<std::vector<std::int32_t>> outliers;  // of each batch, as dealt out
  std::vector<double> load;                         // total cost of each batch's samples
};

/// Returns the samples that cost more than a bin's mean load, largest first.
std::vector<std::int32_t> find_outliers(std::span<const double> costs, double mean) {
  std::vector<std::int32_t> outliers;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] > mean) outliers.push_back(static_cast<std::int32_t>(i));
  }
  std::stable_sort(outliers.begin(), outliers.end(),
                   [&](std::int32_t a, std::int32_t b) { return costs[a] > costs[b]; });
  return outliers;
}

/// Returns the window without its outliers, before any are dealt out.
Window without_outliers(std::span<const double> costs, std::size_t batches, std::size_t batch, double mean) {
  Window window{std::vector<std::vector<std::int32_t>>(batches),
                std::vector<std::vector<std::int32_t>>(batches), std::vector<double>(batches, 0.0)};
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] > mean) continue;
    window.others[i / batch].push_back(static_cast<std::int32_t>(i));
    window.load[i / batch] += costs[i];
  }
  return window;
}

/// Returns the order of a window whose outliers have been dealt out.
std::vector<std::int32_t> filled_up(const Window& window, std::size_t batch) {
  std::vector<std::int32_t> spare;
  for (std::size_t k = 0; k < window.others.size(); ++k) {
    const std::vector<std::int32_t>& own = window.others[k];
    const std::size_t kept = std::min(own.size(), batch - window.outliers[k].size());
    spare.insert(spare.end(), own.begin() + static_cast<std::ptrdiff_t>(kept), own.end());
  }
  std::vector<std::int32_t> order;
  order.reserve(window.others.size() * batch);
  auto next = spare.begin();
  for (std::size_t k = 0; k < window.others.size(); ++k) {
    const std::vector<std::int32_t>& own = window.others[k];
    const std::size_t room = batch - window.outliers[k].size();
    const std::size_t kept = std::min(own.size(), room);
    order.insert(order.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(kept));
    const auto end = next + static_cast<std::ptrdiff_t>(room - kept);
    order.insert(order.end(), next, end);
    next = end;
    order.insert(order.end(), window.outliers[k].begin(), window.outliers[k].end());
  }
  return order;
}

}  // namespace

std::vector<std::int32_t> delay_outliers(std::span<const double> costs, int batch,
                                         const OutlierDelay& delay) {
  const auto size = static_cast<std::size_t>(batch);
  const std::size_t batches = costs.size() / size;
  const auto dp = static_cast<std::size_t>(delay.dp);
  const std::size_t bins = static_cast<std::size_t>(delay.microbatches) * dp;
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / static_cast<double>(batches * bins);
  const std::vector<std::int32_t> outliers = find_outliers(costs, mean);
  if (outliers.empty()) {
    std::vector<std::int32_t> as_drawn(costs.size());
    std::iota(as_drawn.begin(), as_drawn.end(), 0);
    return as_drawn;
  }
  Window window = without_outliers(costs, batches, size, mean);
  for (std::size_t begin = 0; begin < outliers.size(); begin += dp) {
    const std::size_t end = std::min(begin + dp, outliers.size());
    const auto least = std::min_element(window.load.begin(), window.load.end());
    const auto host = static_cast<std::size_t>(least - window.load.begin());
    for (std::size_t i = begin; i < end; ++i) {
      window.outliers[host].push_back(outliers[i]);
      *least += costs[static_cast<std::size_t>(outliers[i])];
    }
  }
  return filled_up(window, size);
}

void count_moved(std::span<const std::int32_t> drawn, int number, int batch, DelayCount& count) {
  for (const std::int32_t position : drawn) {
    const int distance = std::abs(position / batch - number);
    count.samples += 1;
    count.moved += distance > 0 ? 1 : 0;
    count.most = std::max<std::int64_t>(count.most, distance);
    count.distance += distance;
  }
}

}  // namespace dflop
