// Local search reduces the largest load of any bin by exchanging items with the fullest bin.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/support/random.hpp"
#include "solver/assignment_problem.hpp"
#include "solver/bins/cap_table.hpp"
#include "solver/bins/exchange_kernel.hpp"

namespace dflop {

/// A BinSearch is an assignment during local search. Loads are floats in units of the lower bound, in one row
/// of padded slots per bin. After the items of a row comes a slot without load, for exchanges that only move
/// an item.
class BinSearch {
 public:
  using Stop = std::function<bool()>;

  /// One unit of the search's loads is `unit_s` seconds. The problem must outlive the search.
  BinSearch(const BinProblem& problem, double unit_s, std::span<const std::int32_t> bin,
            const Random& random);

  /// Returns the largest load, in units.
  float largest() const { return load(fullest()); }
  std::vector<std::int32_t> assignment() const;
  void set(std::span<const std::int32_t> bin);

  /// Returns the work done so far: comparisons of one offer with up to kLanes others.
  std::int64_t tries() const { return tries_; }

  /// Reduces the fullest bin's load by the best exchange or move of single items with one of the other bins.
  /// It tries some bins in turn, and more if those give no improvement. From a bin with more than kBlock
  /// items it tries one block of items, and the next block if that gives no improvement. `stop()` is called
  /// at least every kAskAfter tries plus a pair of bins. Returns false if no bin gives an improvement, or if
  /// stopped before one did.
  bool exchange_items(const Stop& stop);

  /// Reduces the fullest bin's load with up to two items from each side, using the first bin that gives an
  /// improvement. `stop()` is called before each bin.
  bool exchange_pairs(const Stop& stop);

  /// Swaps a few random items, one of them in the fullest bin, as far as caps permit.
  void kick();

 private:
  static constexpr int kBlock = 256;               // items of a bin that are tried together
  static constexpr int kChunk = 24;                // bins tried in one round of exchange_items()
  static constexpr std::int64_t kAskAfter = 4096;  // tries, a few microseconds

  using Pair = std::pair<std::int32_t, std::int32_t>;
  /// A Found is the best exchange so far and its bins.
  struct Found {
    Exchange exchange;
    std::int32_t x = -1;
    std::int32_t y = -1;
  };
  /// PairOffers are offers of up to two items of a bin.
  struct PairOffers {
    std::vector<std::vector<float>> rows;  // encoder, LLM, caps
    std::vector<Pair> slots;
    Offers offers;
  };

  float* row(int dimension, std::int32_t bin) {
    return &rows_[dimension][static_cast<std::size_t>(bin) * capacity_];
  }
  const float* row(int dimension, std::int32_t bin) const {
    return &rows_[dimension][static_cast<std::size_t>(bin) * capacity_];
  }
  std::int32_t& item(std::int32_t bin, int slot) {
    return items_[static_cast<std::size_t>(bin) * capacity_ + slot];
  }
  float load(std::int32_t bin) const {
    return encoder_[bin / share_] < llm_[bin] ? llm_[bin] : encoder_[bin / share_];
  }
  int dimensions() const { return static_cast<int>(rows_.size()); }

  std::int32_t fullest() const;
  std::vector<std::int32_t> sources() const;
  ExchangeQuery query(std::int32_t x, std::int32_t y) const;
  /// Returns item `first` and the `count` - 1 items after it.
  Offers items_of(std::int32_t bin, int first, int count) const;
  void pair_offers(std::int32_t bin, PairOffers& out) const;
  void try_items(std::int32_t x, int block, std::int32_t y, Found& best);
  void apply(const Found& found);
  bool try_pairs(std::int32_t x, std::int32_t y, float below);
  bool fits_exchange(std::int32_t x, int s, std::int32_t y, int t) const;

  void swap_slots(std::int32_t x, int s, std::int32_t y, int t);
  void move_slot(std::int32_t x, int s, std::int32_t y);
  void sum_up(std::int32_t bin);
  void grow();

  const BinProblem& problem_;
  int share_;                             // how many bins share one encoder load, cached for the inner loop
  std::vector<std::vector<float>> item_;  // [encoder, LLM, caps][item]
  std::vector<std::vector<float>> rows_;  // the same, [.][bin, slot]
  std::vector<float> zeros_;  // encoder row for exchanges within a microbatch that shares its encoder load
  std::vector<std::int32_t> items_;  // [bin, slot]
  std::vector<std::int32_t> count_;  // items of a bin
  int capacity_ = 0;                 // slots of a bin
  std::vector<float> encoder_;       // loads per group of `share_` bins
  std::vector<float> llm_;
  std::vector<float> bin_encoder_;
  CapTable caps_;
  Random random_;
  std::vector<std::int32_t> ring_;  // bins in the order in which they are tried
  std::size_t next_ = 0;
  int next_block_ = 0;
  std::int64_t tries_ = 0;
  PairOffers pairs_x_;
  PairOffers pairs_y_;
};

/// Local search starts from lpt() and reduces the load of the fullest bin step by step: by the best exchange
/// or move of single items with one of some bins; if none helps, by exchanges of up to two items on each
/// side; if those do not help either, it continues from the best assignment so far with a few random swaps.
/// It ends when lower_bound() is met or at `limits`. A step of `limits.steps` is one offer compared with
/// sixteen others. Without a limit of steps or time there are two million steps, which take some
/// milliseconds, or a hundred thousand for at most kSmallCells items x bins. The result is never worse than
/// lpt(). `improved` is called with each better assignment.
/// @return no bins and status infeasible if no assignment was found that obeys the caps; the result of
/// obey_caps() and status fallback if there are more than kMaxCaps caps (solver/bins/exchange_kernel.hpp).
AssignmentSolution local_search(const BinProblem& problem, const SolveLimits& limits);

/// Finds any assignment that obeys the caps: lpt()'s, or one found by applying the same search to cap use,
/// which fills windows of microbatches evenly. If that finds none and there are at most 2^20 assignments, it
/// tries all of them, so that none is missed.
/// @return the bin of each item; empty if none was found within the limits.
std::vector<std::int32_t> obey_caps(const BinProblem& problem, const SolveLimits& limits);

}  // namespace dflop
