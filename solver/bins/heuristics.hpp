// Each heuristic for bins makes a whole assignment in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "solver/bins.hpp"
#include "solver/bins/cap_table.hpp"

namespace dflop {

/// BinFilling holds the loads of bins that are being filled, item by item: what a greedy heuristic is made
/// of. With a shared encoder a bin's encoder load is that of its microbatch.
class BinFilling {
 public:
  /// All bins are empty at first. The problem must outlive the filling.
  explicit BinFilling(const BinProblem& problem);

  /// Returns whether a bin may get an item of which `left` are still to place, this one among them: it has
  /// room under all caps, and the last items go where nothing is yet, unless bins may be empty.
  bool takes(std::int32_t item, std::int32_t bin, std::size_t left) const {
    return (left != static_cast<std::size_t>(empty_) || filled_[bin] == 0) && caps_.fits(item, bin);
  }

  /// Returns the bin that takes the item and whose larger load is then smallest; among equal ones that with
  /// the smallest sum of loads, then the first; -1 where no bin takes it.
  std::int32_t least_loaded(std::int32_t item, std::size_t left) const;

  void add(std::int32_t item, std::int32_t bin);

 private:
  const BinProblem& problem_;
  int share_;                    // how many bins carry an encoder load together, kept for the inner loop
  std::vector<double> encoder_;  // per bin; of a shared encoder that of its microbatch
  std::vector<double> llm_;
  std::vector<char> filled_;
  int empty_;  // bins that still need an item
  CapTable caps_;
};

/// Assigns by longest processing time first, in two dimensions: takes items by falling max(encoder, LLM) time
/// and puts each into the bin that is BinFilling::least_loaded() with it.
/// @return the bin of each item; empty where an item found no bin with room. There must be at least as many
/// items as bins unless bins may be empty.
std::vector<std::int32_t> lpt(const BinProblem& problem);

/// Assigns by Karmarkar and Karp's largest differencing for `bins` sets (1982), as verl balances sequence
/// lengths: on one dimension only, the LLM time. Encoder times and caps are not looked at. A bin that stays
/// empty is given an item of the bin with most items, unless it may be empty. Memory grows with the items,
/// not with the bins.
/// @return the bin of each item.
std::vector<std::int32_t> karmarkar_karp(const BinProblem& problem);

/// Cuts the items, in the given order, into consecutive bins whose counts differ by at most one, the larger
/// ones first. Where an item does not fit its bin under the caps, the next bin with room takes it, after the
/// last the first. No cost is looked at.
/// @return the bin of each item; empty where an item found no bin or a bin no item.
std::vector<std::int32_t> place_in_order(const BinProblem& problem, std::span<const std::int32_t> order);

/// Returns the items 0 to count - 1 in the order in which a data-blind training loop draws them: shuffled by
/// (seed, stream). place_in_order() makes the random assignment of it.
std::vector<std::int32_t> shuffled_items(std::size_t count, std::uint64_t seed, std::uint64_t stream);

/// Says which bin becomes which microbatch of which dp rank, which min-max partition does not, though the
/// makespan depends on it. Each microbatch holds bins of like load on all dp ranks, since the encoder they
/// share makes them wait for each other; dp ranks take turns at getting the larger ones, so that their sums
/// are like as well. Microbatches rise to the largest in the middle and fall again: the first fills the
/// pipeline and the last drains it, and both do so faster when small. Where the bins of a microbatch belong
/// together, as they share an encoder load or a cap, it stays whole. No load changes, so the largest is as
/// before. Bins stay where they are if the new order would break a cap on microbatches in flight. `bin` = one
/// bin per item, bin = microbatch * dp + dp rank.
void arrange_bins(const BinProblem& problem, std::vector<std::int32_t>& bin);

}  // namespace dflop
