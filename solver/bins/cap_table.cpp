#include "solver/bins/cap_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace dflop {
namespace {

constexpr double kMaxCount = 4194304;  // 2^22: sums of a few are exact integers in float

std::string item_name(const BinProblem& problem, std::size_t item) {
  return problem.names.empty() ? fmt::format("item {}", item)
                               : fmt::format("item {} ('{}')", item, problem.names[item]);
}

/// An AmountText prints amounts of a cap: bytes are in GiB if the largest amount of the message is big
/// enough.
class AmountText {
 public:
  AmountText(const Cap& cap, double largest)
      : is_gib_(cap.what.starts_with(kBytes) && largest >= kGib / 10), what_(cap.what) {
    if (is_gib_) what_.replace(0, kBytes.size(), "GiB");
  }

  const std::string& what() const { return what_; }
  std::string operator()(double amount) const {
    return is_gib_ ? fmt::format("{:.2f}", amount / kGib) : fmt::format("{:.10g}", amount);
  }

 private:
  static constexpr double kGib = 1 << 30;
  static constexpr std::string_view kBytes = "bytes";

  bool is_gib_;
  std::string what_;
};

}  // namespace

CapTable::CapTable(const BinProblem& problem) : dp_(problem.dp), microbatches_(problem.microbatches()) {
  for (const Cap& cap : problem.caps) {
    Counted& counted = caps_.emplace_back();
    counted.window = problem.window(cap);
    counted.of_microbatch = cap.of_microbatch;
    const auto is_whole = [](double weight) { return weight == std::floor(weight); };
    const bool whole = cap.most <= kMaxCount && std::ranges::all_of(cap.weight, is_whole);
    const double unit = whole || cap.most <= 0 ? 1.0 : cap.most / kMaxCount;
    counted.most = std::floor(cap.most / unit);
    counted.weight.reserve(cap.weight.size());
    for (const double weight : cap.weight) counted.weight.push_back(std::ceil(weight / unit));
    const int chains = cap.of_microbatch ? 1 : dp_;
    counted.held.assign(static_cast<std::size_t>(chains) * (microbatches_ - counted.window + 1), 0.0);
  }
}

void CapTable::change(std::int32_t item, std::int32_t bin, double sign) {
  const int microbatch = bin / dp_;
  for (Counted& cap : caps_) {
    const int windows = microbatches_ - cap.window + 1;
    double* held = &cap.held[static_cast<std::size_t>(chain(cap, bin)) * windows];
    const int last = std::min(microbatch, windows - 1);
    for (int first = std::max(0, microbatch - cap.window + 1); first <= last; ++first)
      held[first] += sign * cap.weight[item];
  }
}

bool CapTable::fits(std::int32_t item, std::int32_t bin) const {
  for (int c = 0; c < caps(); ++c) {
    if (weight(c, item) > room(c, bin)) return false;
  }
  return true;
}

double CapTable::room(int c, std::int32_t bin, std::int32_t other) const {
  const Counted& cap = caps_[c];
  const int windows = microbatches_ - cap.window + 1;
  const int microbatch = bin / dp_;
  const bool together = other >= 0 && chain(cap, bin) == chain(cap, other);
  const double* held = &cap.held[static_cast<std::size_t>(chain(cap, bin)) * windows];
  const int last = std::min(microbatch, windows - 1);
  double most = -1;
  for (int first = std::max(0, microbatch - cap.window + 1); first <= last; ++first) {
    const int its = other / dp_;
    if (together && its >= first && its < first + cap.window) continue;  // one loses what the other gains
    most = std::max(most, held[first]);
  }
  return most < 0 ? std::numeric_limits<double>::infinity() : cap.most - most;
}

std::optional<std::string> impossible_cap(const BinProblem& problem) {
  for (const Cap& cap : problem.caps) {
    const auto largest = std::max_element(cap.weight.begin(), cap.weight.end());
    if (largest == cap.weight.end()) continue;
    if (*largest > cap.most) {
      const AmountText text(cap, *largest);
      return fmt::format("{} has {} {}, but the cap is {}", item_name(problem, largest - cap.weight.begin()),
                         text(*largest), text.what(), text(cap.most));
    }
    // Windows that do not overlap, each filled to its cap, and the remaining microbatches in one more window.
    const int window = problem.window(cap);
    const int windows = (problem.microbatches() + window - 1) / window;
    const double holds = windows * cap.most * (cap.of_microbatch ? 1 : problem.dp);
    const double sum = std::accumulate(cap.weight.begin(), cap.weight.end(), 0.0);
    if (sum > holds * (1 + 1e-12)) {
      const AmountText text(cap, sum);
      return fmt::format("{} {} in total, but {} bins hold at most {} under the cap of {}", text(sum),
                         text.what(), problem.bins, text(holds), text(cap.most));
    }
  }
  return std::nullopt;
}

}  // namespace dflop
