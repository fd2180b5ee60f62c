// Local search on bins: exchanges with the fullest one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.hpp"
#include "solver/cap_table.hpp"
#include "solver/exchange_kernel.hpp"

namespace dflop {

/// An assignment as local search changes it. Loads are floats in units of the lower bound, in one row of
/// padded slots per bin; behind the items of a row is a slot without load, for exchanges that just move.
class BinSearch {
 public:
  /// `unit_s` = 1.0 in the search's loads. The problem must outlive the search.
  BinSearch(const BinProblem& problem, double unit_s, std::span<const std::int32_t> bin,
            const Random& random);

  /// The largest load, in units.
  float largest() const { return load(fullest()); }
  std::vector<std::int32_t> assignment() const;
  void set(std::span<const std::int32_t> bin);

  /// Work done so far: tries of one offer against up to kLanes others.
  std::int64_t tries() const { return tries_; }

  /// Takes load off the fullest bin by the best exchange of single items, or move, with one of the bins
  /// looked at: some in turn, more where they give nothing. False where no bin gives any.
  bool exchange_items();

  /// The same with up to two items from each side, and the first bin that gives an exchange. `stop()` is
  /// asked after each bin.
  template <typename Stop>
  bool exchange_pairs(const Stop& stop);

  /// Swaps a few random items, one of them in the fullest bin, as far as caps allow.
  void kick();

 private:
  struct Pair {
    std::int16_t first;
    std::int16_t second;
  };
  /// Offers of up to two items of a bin.
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
  Offers items_of(std::int32_t bin) const;
  void pair_offers(std::int32_t bin, PairOffers& out) const;
  bool try_pairs(std::int32_t x, std::int32_t y, float below);
  bool fits_exchange(std::int32_t x, int s, std::int32_t y, int t) const;

  void swap_slots(std::int32_t x, int s, std::int32_t y, int t);
  void move_slot(std::int32_t x, int s, std::int32_t y);
  void sum_up(std::int32_t bin);
  void grow();

  const BinProblem& problem_;
  int share_;                             // bins that carry an encoder load together
  std::vector<std::vector<float>> item_;  // [encoder, LLM, caps][item]
  std::vector<std::vector<float>> rows_;  // the same, [.][bin, slot]
  std::vector<float> zeros_;              // encoder row of exchanges inside a microbatch that shares it
  std::vector<std::int32_t> items_;       // [bin, slot]
  std::vector<std::int32_t> count_;       // items of a bin
  int capacity_ = 0;                      // slots of a bin
  std::vector<float> encoder_;            // loads per group of `share_` bins
  std::vector<float> llm_;
  std::vector<float> bin_encoder_;
  CapTable caps_;
  Random random_;
  std::vector<std::int32_t> ring_;  // bins in the order in which they are looked at
  std::size_t next_ = 0;
  std::int64_t tries_ = 0;
  PairOffers pairs_x_;
  PairOffers pairs_y_;
};

template <typename Stop>
bool BinSearch::exchange_pairs(const Stop& stop) {
  const float below = largest() * (1 - 1e-6F);
  const std::vector<std::int32_t> from = sources();
  const std::size_t start = random_.below(ring_.size());
  for (const std::int32_t x : from) {
    pair_offers(x, pairs_x_);
    for (std::size_t k = 0; k < ring_.size(); ++k) {
      const std::int32_t y = ring_[(start + k) % ring_.size()];
      if (y != x && try_pairs(x, y, below)) return true;
      if (stop()) return false;
    }
  }
  return false;
}

}  // namespace dflop
