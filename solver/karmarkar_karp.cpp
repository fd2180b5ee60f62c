#include "solver/karmarkar_karp.hpp"

#include <algorithm>
#include <queue>
#include <utility>

namespace dflop {
namespace {

/// Some of the items, spread over all bins; sets by falling sum.
struct Partition {
  struct Set {
    double sum = 0;
    std::int32_t first = -1;  // of a list of items, see Items::next
    std::int32_t last = -1;
  };
  std::vector<Set> sets;
  std::int32_t number = 0;  // of its first item, for ties

  double spread() const { return sets.front().sum - sets.back().sum; }
};

/// Partitions of the largest spread come first, equal ones by their number.
struct SmallerSpread {
  bool operator()(const Partition& a, const Partition& b) const {
    return a.spread() != b.spread() ? a.spread() < b.spread() : a.number > b.number;
  }
};

/// Joins the largest set of one with the smallest of the other, and so on. `next` links the items of a set.
void merge(Partition& into, const Partition& other, std::vector<std::int32_t>& next) {
  for (std::size_t k = 0; k < into.sets.size(); ++k) {
    Partition::Set& a = into.sets[k];
    const Partition::Set& b = other.sets[into.sets.size() - 1 - k];
    a.sum += b.sum;
    if (b.first < 0) continue;
    (a.first < 0 ? a.first : next[a.last]) = b.first;
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
  std::priority_queue<Partition, std::vector<Partition>, SmallerSpread> queue;
  for (std::size_t i = 0; i < problem.items(); ++i) {
    const auto item = static_cast<std::int32_t>(i);
    Partition one{std::vector<Partition::Set>(problem.bins), item};
    one.sets.front() = {problem.llm_s[i], item, item};
    queue.push(std::move(one));
  }
  while (queue.size() > 1) {
    Partition a = queue.top();
    queue.pop();
    merge(a, queue.top(), next);
    queue.pop();
    queue.push(std::move(a));
  }
  const Partition& all = queue.top();
  for (int b = 0; b < problem.bins; ++b) {
    for (std::int32_t i = all.sets[b].first; i >= 0; i = next[i]) bin[i] = b;
  }
  if (!problem.allow_empty) fill_empty(problem.bins, bin);
  return bin;
}

}  // namespace dflop
