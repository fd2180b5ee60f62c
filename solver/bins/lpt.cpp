#include "solver/bins/lpt.hpp"

#include <algorithm>
#include <limits>

#include "solver/bins/cap_table.hpp"

namespace dflop {
namespace {

/// Loads of the bins that are being filled.
class Filling {
 public:
  explicit Filling(const BinProblem& problem)
      : problem_(problem),
        share_(problem.shared_encoder ? problem.dp : 1),
        encoder_(problem.bins, 0.0),
        llm_(problem.bins, 0.0),
        filled_(problem.bins, 0),
        empty_(problem.allow_empty ? 0 : problem.bins),
        caps_(problem) {}

  /// The best bin for an item of which `left` are still to place, this one among them; -1: none.
  int best_bin(std::int32_t item, std::size_t left) const {
    // Items without work fill no bin by themselves: the last ones go where nothing is yet.
    const bool only_empty = left == static_cast<std::size_t>(empty_);
    const double item_e = problem_.encoder_s[item] / share_;
    const double item_l = problem_.llm_s[item];
    int best = -1;
    double least = std::numeric_limits<double>::infinity();
    double least_sum = least;
    for (int b = 0; b < problem_.bins; ++b) {
      const double e = encoder_[b] + item_e;
      const double l = llm_[b] + item_l;
      const double load = std::max(e, l);
      if (load > least) continue;  // of nearly all bins: first, and alone
      if (load == least && e + l >= least_sum) continue;
      if ((only_empty && filled_[b] != 0) || !caps_.fits(item, b)) continue;
      best = b;
      least = load;
      least_sum = e + l;
    }
    return best;
  }

  void add(std::int32_t item, int bin) {
    const int first = bin / share_ * share_;
    for (int b = first; b < first + share_; ++b) encoder_[b] += problem_.encoder_s[item] / share_;
    llm_[bin] += problem_.llm_s[item];
    if (filled_[bin] == 0 && empty_ > 0) --empty_;
    filled_[bin] = 1;
    caps_.add(item, bin);
  }

 private:
  const BinProblem& problem_;
  int share_;
  std::vector<double> encoder_;  // per bin; of a shared encoder that of its microbatch
  std::vector<double> llm_;
  std::vector<char> filled_;
  int empty_;  // bins that still need an item
  CapTable caps_;
};

}  // namespace

std::vector<std::int32_t> lpt(const BinProblem& problem) {
  Filling filling(problem);
  std::vector<std::int32_t> bin(problem.items());
  std::size_t left = problem.items();
  for (const std::int32_t item : by_falling_size(problem)) {
    const int best = filling.best_bin(item, left--);
    if (best < 0) return {};
    bin[item] = best;
    filling.add(item, best);
  }
  return bin;
}

}  // namespace dflop
