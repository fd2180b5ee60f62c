#include "solver/makespan/state.hpp"

#include <algorithm>
#include <utility>

namespace dflop {

MakespanState::MakespanState(const AssignmentProblem& problem, const MakespanKernel& kernel,
                             std::span<const std::int32_t> bin)
    : problem_(problem.bins),
      kernel_(kernel),
      loads_(problem.pipeline->loads.size()),
      caps_(problem.bins),
      item_loads_(problem.bins.items() * loads_, 0.0),
      bin_loads_(problem.bins.bins * loads_, 0.0),
      values_(kernel.groups(), std::vector<double>(kernel.columns(), 0.0)),
      paths_(kernel.groups()) {
  for (std::size_t l = 0; l < loads_; ++l) {
    const std::vector<double>& mix = problem.pipeline->loads[l].mix;
    for (std::size_t f = 0; f < mix.size(); ++f) {
      if (mix[f] == 0) continue;
      for (std::size_t i = 0; i < problem.bins.items(); ++i) {
        item_loads_[i * loads_ + l] += mix[f] * problem.features[f][i];
      }
    }
  }
  set(bin);
}

void MakespanState::set(std::span<const std::int32_t> bin) {
  bin_.assign(bin.begin(), bin.end());
  items_.assign(problem_.bins, {});
  for (std::size_t i = 0; i < bin.size(); ++i) items_[bin[i]].push_back(static_cast<std::int32_t>(i));
  if (caps_.caps() > 0) {
    caps_ = CapTable(problem_);
    for (std::size_t i = 0; i < bin.size(); ++i) caps_.add(static_cast<std::int32_t>(i), bin[i]);
  }
  for (std::vector<double>& values : values_) std::fill(values.begin(), values.end(), 0.0);
  std::fill(bin_loads_.begin(), bin_loads_.end(), 0.0);
  for (int b = 0; b < problem_.bins; ++b) sum_loads(b);
  for (int q = 0; q < kernel_.groups(); ++q) evaluate(q);
}

void MakespanState::moved_loads(const BinExchange& e, std::span<double> loads) const {
  for (std::size_t l = 0; l < loads_; ++l) {
    double sum = e.all ? bin_loads(e.from)[l] - bin_loads(e.to)[l] : 0.0;
    for (const std::int32_t item : e.out) sum += item < 0 ? 0.0 : item_loads(item)[l];
    for (const std::int32_t item : e.in) sum -= item < 0 ? 0.0 : item_loads(item)[l];
    loads[l] = sum;
  }
}

int MakespanState::slowest() const {
  return static_cast<int>(std::ranges::max_element(paths_, {}, &CriticalPath::smooth_s) - paths_.begin());
}

double MakespanState::makespan_s() const {
  double latest = 0;
  for (const CriticalPath& path : paths_) latest = std::max(latest, path.makespan_s);
  return latest;
}

double MakespanState::moved_weight(int cap, const BinExchange& e) const {
  const auto sum = [&](const auto& items) {
    double weight = 0;
    for (const std::int32_t item : items) weight += item < 0 ? 0.0 : caps_.weight(cap, item);
    return weight;
  };
  return e.all ? sum(items_[e.from]) - sum(items_[e.to]) : sum(e.out) - sum(e.in);
}

bool MakespanState::allows(const BinExchange& e) const {
  const auto count = [](const Parcel& parcel) { return (parcel[0] >= 0 ? 1 : 0) + (parcel[1] >= 0 ? 1 : 0); };
  if (!problem_.allow_empty && !e.all) {
    const int moved = count(e.out) - count(e.in);
    if (static_cast<int>(items_[e.from].size()) == moved || static_cast<int>(items_[e.to].size()) == -moved) {
      return false;
    }
  }
  for (int c = 0; c < caps_.caps(); ++c) {
    const double moved = moved_weight(c, e);
    if (moved > 0 && moved > caps_.room(c, e.to, e.from)) return false;
    if (moved < 0 && -moved > caps_.room(c, e.from, e.to)) return false;
  }
  return true;
}

void MakespanState::give(std::int32_t from, std::int32_t to, const Parcel& parcel) {
  for (const std::int32_t item : parcel) {
    if (item < 0) continue;
    std::erase(items_[from], item);
    items_[to].push_back(item);
    bin_[item] = to;
    caps_.remove(item, from);
    caps_.add(item, to);
  }
}

void MakespanState::swap_contents(std::int32_t a, std::int32_t b) {
  std::swap(items_[a], items_[b]);
  for (const auto& [now, before] : {std::pair(a, b), std::pair(b, a)}) {
    for (const std::int32_t item : items_[now]) {
      bin_[item] = now;
      caps_.remove(item, before);
      caps_.add(item, now);
    }
  }
  sum_loads(a);
  sum_loads(b);
}

void MakespanState::put(const BinExchange& e) {
  if (e.all) return swap_contents(e.from, e.to);
  give(e.from, e.to, e.out);
  give(e.to, e.from, e.in);
  sum_loads(e.from);
  sum_loads(e.to);
}

void MakespanState::put(const Reorder& reorder) {
  const int dp = problem_.dp;
  const auto swap_microbatches = [&](int a, int b) {
    for (int d = 0; d < dp; ++d) {
      if (kernel_.group(d) == reorder.group) swap_contents(a * dp + d, b * dp + d);
    }
  };
  if (!reorder.shift) return swap_microbatches(reorder.from, reorder.to);
  const int step = reorder.from < reorder.to ? 1 : -1;
  for (int j = reorder.from; j != reorder.to; j += step) swap_microbatches(j, j + step);
}

void MakespanState::sum_loads(std::int32_t bin) {
  double* sums = &bin_loads_[static_cast<std::size_t>(bin) * loads_];
  std::vector<double>& values = values_[kernel_.group(bin)];
  const std::span<const std::int32_t> columns = kernel_.columns_of(bin);
  for (std::size_t l = 0; l < loads_; ++l) {
    double sum = 0;
    for (const std::int32_t item : items_[bin]) sum += item_loads(item)[l];
    values[columns[l]] += sum - sums[l];
    sums[l] = sum;
  }
}

void MakespanState::apply(const BinExchange& exchange) {
  put(exchange);
  const int from = kernel_.group(exchange.from);
  const int to = kernel_.group(exchange.to);
  evaluate(from);
  if (to != from) evaluate(to);
}

bool MakespanState::apply_if(const BinExchange& e, double less_s) {
  apply(e);
  if (smooth_s(kernel_.group(e.from)) < less_s && smooth_s(kernel_.group(e.to)) < less_s) return true;
  apply(BinExchange{e.from, e.to, e.in, e.out, e.all});
  return false;
}

bool MakespanState::apply_if(const Reorder& reorder, double less_s) {
  put(reorder);
  evaluate(reorder.group);
  if (paths_[reorder.group].smooth_s < less_s && obeys_caps()) return true;
  put(Reorder{reorder.group, reorder.to, reorder.from, reorder.shift});
  evaluate(reorder.group);
  return false;
}

bool MakespanState::obeys_caps() const {
  for (int c = 0; c < caps_.caps(); ++c) {
    for (int b = 0; b < problem_.bins; ++b) {
      if (caps_.room(c, b) < 0) return false;
    }
  }
  return true;
}

}  // namespace dflop
