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

/// A BinSearch is an assignment during local search. Its loads are floats in units of the lower bound. Each
/// bin has a row of slots, one per item, with padding at the end. After the items comes a slot without load,
/// for exchanges that only move an item.
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
  /// It first tries kChunk bins, and more bins if these give no improvement. If a bin has more than kBlock
  /// items, it first tries one block of them, and the next block if that gives no improvement. Between two
  /// calls of `stop()` there are at most kAskAfter tries, plus the tries of one pair of bins. Returns false
  /// if no bin gives an improvement, or if stopped before.
  bool exchange_items(const Stop& stop);

  /// Reduces the fullest bin's load by an exchange of up to two items of each bin, with the first bin that
  /// gives an improvement. Calls `stop()` before it tries each bin.
  bool exchange_pairs(const Stop& stop);

  /// Swaps a few random items, one of them in the fullest bin, as far as caps permit.
  void kick();

 private:
  static constexpr int kBlock = 256;               // items of a bin that are tried together
  static constexpr int kChunk = 24;                // bins tried in one round of exchange_items()
  static constexpr std::int64_t kAskAfter = 4096;  // tries, a few microseconds

  using Pair = std::pair<std::int32_t, std::int32_t>;
  /// A Found has the best exchange so far and its two bins.
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
  int share_;  // number of bins that share one encoder load, cached for the inner loop
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

/// Starts from lpt() and reduces the load of the fullest bin step by step. It tries exchanges or moves of
/// single items; if none helps, exchanges of up to two items of each bin; and if none of these helps, it
/// restarts from the best assignment so far with a few random swaps. It ends when lower_bound() is met or at
/// `limits`. A step of `limits.steps` compares one offer with sixteen others. Without a limit of steps or
/// time there are two million steps, which take some milliseconds, or a hundred thousand if items times bins
/// is at most kSmallCells. The result is never worse than lpt(). Calls `improved` with each better
/// assignment.
/// @return an assignment; no bins and status infeasible if none was found that obeys the caps. If there are
/// more than kMaxCaps caps (solver/bins/exchange_kernel.hpp), returns the result of obey_caps() with status
/// fallback.
AssignmentSolution local_search(const BinProblem& problem, const SolveLimits& limits);

/// Finds any assignment that obeys the caps. It first tries lpt(), then a local search that balances the use
/// of the caps instead of the loads. If both fail and there are at most 2^20 assignments, it tries all of
/// them.
/// @return the bin of each item; empty if none was found within the limits.
std::vector<std::int32_t> obey_caps(const BinProblem& problem, const SolveLimits& limits);

}  // namespace dflop
