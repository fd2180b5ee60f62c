#include "solver/bins/karmarkar_karp.hpp"

#include <algorithm>
#include <queue>
#include <utility>

namespace dflop {
namespace {

/// Some of the items, spread over all bins; sets by falling sum. Bins without items are not stored: they come
/// last, and all partitions together have no more sets than there are items.
struct Partition {
  struct Set {
    double sum = 0;
    std::int32_t first = -1;  // of a list of items, see Items::next
    std::int32_t last = -1;
  };
  std::vector<Set> sets;
  std::int32_t number = 0;  // of its first item, for ties

  double spread(std::size_t bins) const {
    return sets.front().sum - (sets.size() < bins ? 0.0 : sets.back().sum);
  }
};

/// Partitions of the largest spread come first, equal ones by their number.
struct SmallerSpread {
  std::size_t bins;

  bool operator()(const Partition& a, const Partition& b) const {
    const double of_a = a.spread(bins);
    const double of_b = b.spread(bins);
    return of_a != of_b ? of_a < of_b : a.number > b.number;
  }
};

/// Joins the largest set of one with the smallest of the other, and so on. `next` links the items of a set.
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
  std::stable_sort(into.sets.begin(), into.sets.end(),
                   [](const auto& a, const auto& b) { return a.sum > b.sum; });
}

void fill_empty(int bins, std::vector<std::int32_t>& bin) {
  std::vector<std::vector<std::int32_t>> items(bins);
  for (std::size_t i = 0; i < bin.size(); ++i) items[bin[i]].push_back(static_cast<std::int32_t>(i));
  for (int b = 0; b < bins; ++b) {
    if (!items[b].empty()) continue;
    auto& fullest = *std::max_element(items.begin(), items.end(),
                                      [](const auto& x, const auto& y) { return x.size() < y.size(); });
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

}  // namespace dflop
