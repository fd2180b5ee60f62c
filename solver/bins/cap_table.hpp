// A CapTable tracks how much of each cap the bins use while an assignment is built or changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "solver/bins.hpp"

namespace dflop {

/// A CapTable has, for each cap, the weight that the bins hold. It counts in integers, so that sums are exact
/// in any order and in float. Integer weights are unchanged if the cap is at most 2^22; all others are
/// rounded up to multiples of 2^-22 of the cap.
class CapTable {
 public:
  /// All bins are empty at first. The problem must outlive the table.
  explicit CapTable(const BinProblem& problem);

  int caps() const { return static_cast<int>(caps_.size()); }
  double weight(int cap, std::int32_t item) const { return caps_[cap].weight[item]; }

  void add(std::int32_t item, std::int32_t bin) { change(item, bin, 1.0); }
  void remove(std::int32_t item, std::int32_t bin) { change(item, bin, -1.0); }

  bool fits(std::int32_t item, std::int32_t bin) const;

  /// Returns the largest amount by which the weight in `bin` may grow while the weight in `other` shrinks by
  /// the same amount (other < 0: no bin shrinks). It is negative if a cap is already broken.
  double room(int cap, std::int32_t bin, std::int32_t other = -1) const;

 private:
  struct Counted {
    std::vector<double> weight;  // per item
    std::vector<double> held;    // per chain and first microbatch of a window
    double most = 0;
    int window = 1;
    bool of_microbatch = false;
  };

  void change(std::int32_t item, std::int32_t bin, double sign);
  int chain(const Counted& cap, std::int32_t bin) const { return cap.of_microbatch ? 0 : bin % dp_; }

  int dp_;
  int microbatches_;
  std::vector<Counted> caps_;
};

/// Returns why no assignment can obey the caps, if one item is too large or all items together exceed what
/// the bins can hold; nullopt otherwise. Example: "item 17 ('id') has 9000 LLM tokens, the cap is 8192".
std::optional<std::string> impossible_cap(const BinProblem& problem);

}  // namespace dflop
