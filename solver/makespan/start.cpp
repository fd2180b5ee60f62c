#include "solver/makespan/start.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "solver/bins/lpt.hpp"
#include "solver/bins/order.hpp"

namespace dflop {
namespace {

/// Cells of a microbatch, about: enough to shape it, few enough to be quick.
constexpr std::size_t kCellsPerMicrobatch = 16;

/// Room that is left below caps for the difference between an item and the mean of its cell.
constexpr double kCapPart = 0.98;

using Items = std::span<std::int32_t>;

/// Cuts items into cells of `size` (the last may have fewer), halving along the time in which they differ
/// most.
void cut(const BinProblem& problem, std::size_t size, Items items, std::vector<Items>& cells) {
  if (items.size() <= size) {
    cells.push_back(items);
    return;
  }
  const auto spread = [&](std::span<const double> time) {
    const auto [least, most] = std::minmax_element(
        items.begin(), items.end(), [&](std::int32_t a, std::int32_t b) { return time[a] < time[b]; });
    return time[*most] - time[*least];
  };
  const auto time = spread(problem.encoder_s) > spread(problem.llm_s) ? problem.encoder_s : problem.llm_s;
  const std::size_t half = (items.size() / size + 1) / 2 * size;
  std::nth_element(
      items.begin(), items.begin() + static_cast<std::ptrdiff_t>(half), items.end(),
      [&](std::int32_t a, std::int32_t b) { return time[a] != time[b] ? time[a] > time[b] : a < b; });
  cut(problem, size, items.first(half), cells);
  cut(problem, size, items.subspan(half), cells);
}

/// The mean replica, with a cell in place of an item.
class MeanReplica {
 public:
  MeanReplica(const AssignmentProblem& problem, std::span<const Items> cells) : pipeline_(*problem.pipeline) {
    const int dp = problem.bins.dp;
    pipeline_.dp = 1;
    std::fill(pipeline_.shared.begin(), pipeline_.shared.end(), 0);
    for (Load& load : pipeline_.loads) {
      for (double& part : load.mix) part *= load.of_microbatch ? dp : 1;
      load.of_microbatch = false;
    }
    const auto mean = [&](std::span<const double> values) -> std::span<const double> {
      std::vector<double>& means = means_.emplace_back();
      for (const Items cell : cells) {
        double sum = 0;
        for (const std::int32_t item : cell) sum += values[item];
        means.push_back(sum / dp);
      }
      return means;
    };
    means_.reserve(2 + problem.features.size() + problem.bins.caps.size());  // spans point into it
    problem_.bins = {mean(problem.bins.encoder_s), mean(problem.bins.llm_s), problem.bins.microbatches(), 1};
    problem_.bins.allow_empty = problem.bins.allow_empty;
    for (const Cap& cap : problem.bins.caps) {
      const double most = kCapPart * cap.most / (cap.of_microbatch ? dp : 1);
      problem_.bins.caps.push_back({cap.what, mean(cap.weight), most, cap.window, false});
    }
    for (const std::span<const double> feature : problem.features) problem_.features.push_back(mean(feature));
    problem_.pipeline = &pipeline_;
  }
  MeanReplica(const MeanReplica&) = delete;

  const AssignmentProblem& problem() const { return problem_; }

 private:
  LoadPipeline pipeline_;
  std::vector<std::vector<double>> means_;
  AssignmentProblem problem_;
};

/// Deals the items of each cell to the replicas of its microbatch, the largest to that with the least so far.
class Dealer {
 public:
  explicit Dealer(const BinProblem& problem)
      : problem_(problem), load_(problem.bins, 0.0), bin_(problem.items()) {}

  void deal(Items cell, int microbatch) {
    std::sort(cell.begin(), cell.end(),
              [&](std::int32_t a, std::int32_t b) { return work(a) != work(b) ? work(a) > work(b) : a < b; });
    const auto dp = static_cast<std::size_t>(problem_.dp);
    double* loads = &load_[microbatch * dp];
    std::vector<std::size_t> count(dp, 0);
    for (std::size_t i = 0; i < cell.size(); ++i) {
      std::size_t least = dp;
      for (std::size_t d = 0; d < dp; ++d) {
        if (count[d] <= i / dp && (least == dp || loads[d] < loads[least])) least = d;
      }
      ++count[least];
      loads[least] += work(cell[i]);
      bin_[cell[i]] = static_cast<std::int32_t>(microbatch * dp + least);
    }
  }

  std::vector<std::int32_t> take() { return std::move(bin_); }

 private:
  double work(std::int32_t item) const { return problem_.encoder_s[item] + problem_.llm_s[item]; }

  const BinProblem& problem_;
  std::vector<double> load_;  // per bin
  std::vector<std::int32_t> bin_;
};

bool obeys(const BinProblem& problem, std::span<const std::int32_t> bin) {
  if (!problem.allow_empty) {
    std::vector<char> filled(problem.bins, 0);
    for (const std::int32_t b : bin) filled[b] = 1;
    if (std::find(filled.begin(), filled.end(), 0) != filled.end()) return false;
  }
  return !broken_cap(problem, bin);
}

}  // namespace

std::vector<std::int32_t> mean_replica_start(const AssignmentProblem& problem, Random& random,
                                             const SearchControl& control) {
  const BinProblem& bins = problem.bins;
  const auto dp = static_cast<std::size_t>(bins.dp);
  const std::size_t rounds = bins.items() / (dp * bins.microbatches() * kCellsPerMicrobatch);
  std::vector<std::int32_t> items(bins.items());
  std::iota(items.begin(), items.end(), 0);
  std::vector<Items> cells;
  cut(bins, dp * std::max<std::size_t>(1, rounds), items, cells);
  if (cells.size() < static_cast<std::size_t>(bins.microbatches())) return {};

  const MeanReplica mean(problem, cells);
  std::vector<std::int32_t> microbatch = lpt(mean.problem().bins);
  if (microbatch.empty() || broken_cap(mean.problem().bins, microbatch)) return {};
  std::vector<std::int32_t> arranged = microbatch;
  arrange_bins(mean.problem().bins, arranged);
  if (!broken_cap(mean.problem().bins, arranged)) microbatch = std::move(arranged);
  makespan_search(mean.problem(), MakespanKernel(mean.problem().pipeline[0]), random, control, microbatch);

  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), 0);
  const std::span<const double> size = mean.problem().bins.llm_s;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return size[a] > size[b]; });
  Dealer dealer(bins);
  for (const std::size_t c : order) dealer.deal(cells[c], microbatch[c]);
  std::vector<std::int32_t> bin = dealer.take();
  return obeys(bins, bin) ? bin : std::vector<std::int32_t>();
}

}  // namespace dflop
