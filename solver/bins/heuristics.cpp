#include "solver/bins/heuristics.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "core/support/random.hpp"

namespace dflop {

BinFilling::BinFilling(const BinProblem& problem)
    : problem_(problem),
      share_(problem.share()),
      encoder_(problem.bins, 0.0),
      llm_(problem.bins, 0.0),
      filled_(problem.bins, 0),
      empty_(problem.allow_empty ? 0 : problem.bins),
      caps_(problem) {}

std::int32_t BinFilling::least_loaded(std::int32_t item, std::size_t left) const {
  const double item_e = problem_.encoder_s[item] / share_;
  const double item_l = problem_.llm_s[item];
  std::int32_t best = -1;
  double least = std::numeric_limits<double>::infinity();
  double least_sum = least;
  for (std::int32_t b = 0; b < problem_.bins; ++b) {
    const double e = encoder_[b] + item_e;
    const double l = llm_[b] + item_l;
    const double load = std::max(e, l);
    if (load > least) continue;  // skips nearly all bins, so it comes first
    if (load == least && e + l >= least_sum) continue;
    if (!takes(item, b, left)) continue;
    best = b;
    least = load;
    least_sum = e + l;
  }
  return best;
}

void BinFilling::add(std::int32_t item, std::int32_t bin) {
  const std::int32_t first = bin / share_ * share_;
  for (std::int32_t b = first; b < first + share_; ++b) encoder_[b] += problem_.encoder_s[item] / share_;
  llm_[bin] += problem_.llm_s[item];
  if (filled_[bin] == 0 && empty_ > 0) --empty_;
  filled_[bin] = 1;
  caps_.add(item, bin);
}

std::vector<std::int32_t> lpt(const BinProblem& problem) {
  BinFilling filling(problem);
  std::vector<std::int32_t> bin(problem.items());
  std::size_t left = problem.items();
  for (const std::int32_t item : by_falling_size(problem)) {
    const std::int32_t best = filling.least_loaded(item, left--);
    if (best < 0) return {};
    bin[item] = best;
    filling.add(item, best);
  }
  return bin;
}

namespace {

/// A Partition has some of the items, spread over all bins, as sets in decreasing order of sum. Bins without
/// items would come last and are not stored. So all partitions together have at most as many sets as there
/// are items.
struct Partition {
  struct Set {
    double sum = 0;
    std::int32_t first = -1;  // start of a linked list of items
    std::int32_t last = -1;
  };
  std::vector<Set> sets;
  std::int32_t number = 0;  // of its first item, for ties

  double spread(std::size_t bins) const {
    return sets.front().sum - (sets.size() < bins ? 0.0 : sets.back().sum);
  }
};

/// SmallerSpread orders partitions by decreasing spread; ties go by their number.
struct SmallerSpread {
  std::size_t bins;

  bool operator()(const Partition& a, const Partition& b) const {
    const double of_a = a.spread(bins);
    const double of_b = b.spread(bins);
    return of_a != of_b ? of_a < of_b : a.number > b.number;
  }
};

/// Joins the largest set of one partition with the smallest set of the other partition, the second largest
/// with the second smallest, and so on. `next` links the items of a set.
void merge(Partition& into, const Partition& other, std::size_t bins, std::vector<std::int32_t>& next) {
  const std::size_t before = into.sets.size();
  for (std::size_t k = bins - other.sets.size(); k < bins; ++k) {
    const Partition::Set& b = other.sets[bins - 1 - k];
    if (k >= before) {
      into.sets.push_back(b);
      continue;
    }
    Partition::Set& a = into.sets[k];
    a.sum += b.sum;
    next[a.last] = b.first;
    a.last = b.last;
  }
  std::ranges::stable_sort(into.sets, std::greater(), &Partition::Set::sum);
}

void fill_empty(int bins, std::vector<std::int32_t>& bin) {
  std::vector<std::vector<std::int32_t>> items(bins);
  for (std::size_t i = 0; i < bin.size(); ++i) items[bin[i]].push_back(static_cast<std::int32_t>(i));
  for (int b = 0; b < bins; ++b) {
    if (!items[b].empty()) continue;
    auto& fullest = *std::ranges::max_element(items, {}, [](const auto& of_bin) { return of_bin.size(); });
    items[b].push_back(fullest.back());
    bin[fullest.back()] = b;
    fullest.pop_back();
  }
}

}  // namespace

std::vector<std::int32_t> karmarkar_karp(const BinProblem& problem) {
  std::vector<std::int32_t> bin(problem.items(), 0);
  if (problem.items() == 0) return bin;
  std::vector<std::int32_t> next(problem.items(), -1);
  const auto bins = static_cast<std::size_t>(problem.bins);
  std::priority_queue<Partition, std::vector<Partition>, SmallerSpread> queue(SmallerSpread{bins});
  for (std::size_t i = 0; i < problem.items(); ++i) {
    const auto item = static_cast<std::int32_t>(i);
    queue.push({{{problem.llm_s[i], item, item}}, item});
  }
  while (queue.size() > 1) {
    Partition a = queue.top();
    queue.pop();
    merge(a, queue.top(), bins, next);
    queue.pop();
    queue.push(std::move(a));
  }
  const Partition& all = queue.top();
  for (std::size_t b = 0; b < all.sets.size(); ++b) {
    for (std::int32_t i = all.sets[b].first; i >= 0; i = next[i]) bin[i] = static_cast<std::int32_t>(b);
  }
  if (!problem.allow_empty) fill_empty(problem.bins, bin);
  return bin;
}

std::vector<std::int32_t> place_in_order(const BinProblem& problem, std::span<const std::int32_t> order) {
  CapTable caps(problem);
  std::vector<std::int32_t> bin(order.size());
  const std::size_t count = order.size() / problem.bins;
  const std::size_t larger = order.size() % problem.bins;  // number of bins with one more
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::size_t in_larger = larger * (count + 1);
    const std::size_t own = k < in_larger ? k / (count + 1) : larger + (k - in_larger) / count;
    auto b = static_cast<std::int32_t>(own);
    int tried = 0;
    while (tried < problem.bins && !caps.fits(order[k], b)) {
      b = (b + 1) % problem.bins;
      ++tried;
    }
    if (tried == problem.bins) return {};
    bin[order[k]] = b;
    caps.add(order[k], b);
  }
  return fills_bins(problem, bin) ? bin : std::vector<std::int32_t>();
}

std::vector<std::int32_t> shuffled_items(std::size_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<std::int32_t> order = numbered(count);
  Random(seed, stream).shuffle(std::span(order));
  return order;
}

namespace {

/// Returns the larger load of each bin, by which arrange_bins() sorts. If the encoder is shared, the encoder
/// load is the mean over the microbatch.
std::vector<double> bin_loads(const BinProblem& problem, const std::vector<std::int32_t>& bin) {
  const int share = problem.share();
  std::vector<double> encoder(problem.bins / share, 0.0);
  std::vector<double> loads(problem.bins, 0.0);
  for (std::size_t i = 0; i < bin.size(); ++i) {
    encoder[bin[i] / share] += problem.encoder_s[i] / share;
    loads[bin[i]] += problem.llm_s[i];
  }
  for (int b = 0; b < problem.bins; ++b) loads[b] = std::max(loads[b], encoder[b / share]);
  return loads;
}

/// Sorts indices by increasing load; ties keep their order.
void sort_by_load(std::span<std::int32_t> order, const std::vector<double>& loads) {
  std::ranges::stable_sort(order, {}, [&](std::int32_t i) { return loads[i]; });
}

/// Returns the bins in layers of similar load, one for each microbatch, from the smallest to the largest.
std::vector<std::int32_t> layers(const BinProblem& problem, const std::vector<double>& loads, bool whole) {
  std::vector<std::int32_t> order = numbered(problem.bins);
  if (!whole) {
    sort_by_load(order, loads);
    return order;
  }
  const int dp = problem.dp;
  std::vector<double> largest(problem.microbatches());
  std::vector<std::int32_t> microbatches = numbered(problem.microbatches());
  for (const std::int32_t j : microbatches)
    largest[j] = std::ranges::max(std::span(loads).subspan(static_cast<std::size_t>(j) * dp, dp));
  sort_by_load(microbatches, largest);
  for (std::size_t k = 0; k < microbatches.size(); ++k) {
    const auto layer = std::span(order).subspan(k * dp, dp);
    std::iota(layer.begin(), layer.end(), microbatches[k] * dp);
    sort_by_load(layer, loads);
  }
  return order;
}

}  // namespace

void arrange_bins(const BinProblem& problem, std::vector<std::int32_t>& bin) {
  const int dp = problem.dp;
  const bool whole = problem.shared_encoder || std::ranges::any_of(problem.caps, &Cap::of_microbatch);
  const std::vector<std::int32_t> order = layers(problem, bin_loads(problem, bin), whole);
  std::vector<std::int32_t> renamed(problem.bins);
  for (int k = 0; k < problem.bins; ++k) {
    const int layer = k / dp;
    const bool even = layer % 2 == 0;
    // Layers in increasing order become microbatches 0, last, 1, last - 1, and so on to the middle.
    const int microbatch = even ? layer / 2 : problem.microbatches() - 1 - layer / 2;
    renamed[order[k]] = microbatch * dp + (even ? k % dp : dp - 1 - k % dp);
  }
  std::vector<std::int32_t> arranged = bin;
  for (std::int32_t& b : arranged) b = renamed[b];
  if (!broken_cap(problem, arranged)) bin = std::move(arranged);
}

}  // namespace dflop
