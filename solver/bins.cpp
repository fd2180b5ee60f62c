#include "solver/bins.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace dflop {
namespace {

/// Returns a lower bound on the largest load of one dimension. `weights` are in decreasing order.
double bound_of(const std::vector<double>& weights, int bins) {
  double bound = weights.empty() ? 0.0 : weights.front();
  bound = std::max(bound, std::accumulate(weights.begin(), weights.end(), 0.0) / bins);
  for (std::size_t k = 1; k * bins < weights.size(); ++k) {
    const auto last = weights.begin() + static_cast<std::ptrdiff_t>(k * bins);
    bound = std::max(bound, std::accumulate(last - static_cast<std::ptrdiff_t>(k), last + 1, 0.0));
  }
  return bound;
}

/// Returns the largest time of which `a` and `b` are multiples, by Euclid's algorithm. Remainders below
/// `nothing` are treated as rounding errors.
double common_part(double a, double b, double nothing) {
  while (b > nothing) {
    const double rest = std::fmod(a, b);
    a = std::exchange(b, b - rest > nothing ? rest : 0.0);
  }
  return a;
}

/// Returns the time of one tile if all items take a whole number of tiles, as encoder times often do; zero if
/// there is no such time. The time is rounded down, so that no item takes less time than its tiles.
double tile_time(std::span<const double> times) {
  constexpr double kMaxTiles = 1e6;  // max per item
  constexpr double kRounding = 1e-10;
  const double largest = times.empty() ? 0.0 : *std::max_element(times.begin(), times.end());
  double tile = largest;
  for (const double time : times) {
    tile = common_part(tile, time, largest * 1e-10);
    if (tile * kMaxTiles < largest) return 0;
  }
  double least = tile;
  for (const double time : times) {
    const double tiles = tile > 0 ? std::round(time / tile) : 0.0;
    if (std::abs(time - tiles * tile) > kRounding * time) return 0;
    if (tiles > 0) least = std::min(least, time / tiles);
  }
  return least;
}

/// Returns a lower bound for items that are whole numbers of tiles: some bin has at least the mean, rounded
/// up to whole tiles.
double tile_bound(std::span<const double> times, int bins) {
  const double tile = tile_time(times);
  if (tile <= 0) return 0;
  double tiles = 0;
  for (const double time : times) tiles += std::round(time / tile);
  return std::ceil(tiles / bins) * tile;
}

}  // namespace

double largest_load(const BinProblem& problem, std::span<const std::int32_t> bin) {
  const int share = problem.share();
  std::vector<double> encoder(problem.bins / share, 0.0);
  std::vector<double> llm(problem.bins, 0.0);
  for (std::size_t i = 0; i < problem.items(); ++i) {
    encoder[bin[i] / share] += problem.encoder_s[i];
    llm[bin[i]] += problem.llm_s[i];
  }
  return std::max(std::ranges::max(encoder) / share, std::ranges::max(llm));
}

double lower_bound(const BinProblem& problem) {
  double bound = 0;
  std::vector<double> weights(problem.items());
  const auto weigh = [&](double encoder_part, int share) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = (encoder_part * problem.encoder_s[i] + (1.0 - encoder_part) * problem.llm_s[i]) / share;
    }
    std::sort(weights.begin(), weights.end(), std::greater<>());
    bound = std::max(bound, bound_of(weights, problem.bins / share));
  };
  const int share = problem.share();
  weigh(0.0, 1);
  for (const double encoder_part : {0.25, 0.5, 0.75, 1.0}) weigh(encoder_part, share);
  bound = std::max(bound, tile_bound(problem.encoder_s, problem.bins / share) / share);
  return std::max(bound, tile_bound(problem.llm_s, problem.bins));
}

double iteration_s(const BinProblem& problem) {
  return problem.microbatches() * lower_bound(problem);
}

std::vector<std::int32_t> numbered(std::size_t count) {
  std::vector<std::int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<std::int32_t> by_falling_size(const BinProblem& problem) {
  std::vector<std::int32_t> order = numbered(problem.items());
  const auto size_s = [&](std::int32_t i) { return std::max(problem.encoder_s[i], problem.llm_s[i]); };
  std::ranges::stable_sort(order, std::greater(), size_s);
  return order;
}

namespace {

/// Returns the sums of a cap's weight: per dp rank and microbatch, or per microbatch.
std::vector<double> held(const BinProblem& problem, const Cap& cap, std::span<const std::int32_t> bin) {
  std::vector<double> sums(cap.of_microbatch ? problem.microbatches() : problem.bins, 0.0);
  for (std::size_t i = 0; i < bin.size(); ++i) {
    const int microbatch = bin[i] / problem.dp;
    const int rank = bin[i] % problem.dp;
    sums[cap.of_microbatch ? microbatch : rank * problem.microbatches() + microbatch] += cap.weight[i];
  }
  return sums;
}

}  // namespace

std::optional<std::string> broken_cap(const BinProblem& problem, std::span<const std::int32_t> bin) {
  const int microbatches = problem.microbatches();
  for (const Cap& cap : problem.caps) {
    const std::vector<double> sums = held(problem, cap, bin);
    const int window = problem.window(cap);
    for (std::size_t first = 0; first < sums.size(); ++first) {
      const int microbatch = static_cast<int>(first) % microbatches;
      if (microbatch + window > microbatches) continue;
      const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(first);
      const double sum = std::accumulate(begin, begin + window, 0.0);
      if (sum <= cap.most) continue;
      const std::string rank =
          cap.of_microbatch ? "" : fmt::format(" on dp rank {}", static_cast<int>(first) / microbatches);
      return fmt::format("{} of microbatches {} to {}{}: {:.6g}, at most {:.6g}", cap.what, microbatch,
                         microbatch + window - 1, rank, sum, cap.most);
    }
  }
  return std::nullopt;
}

bool fills_bins(const BinProblem& problem, std::span<const std::int32_t> bin) {
  std::vector<char> filled(problem.bins, problem.allow_empty ? 1 : 0);
  for (const std::int32_t b : bin) filled[b] = 1;
  return std::ranges::find(filled, 0) == filled.end();
}

}  // namespace dflop
