// Each of these heuristics puts all items into bins in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "solver/bins.hpp"
#include "solver/bins/cap_table.hpp"

namespace dflop {

/// A BinFilling holds the loads of bins while a greedy heuristic fills them item by item. With a shared
/// encoder, all bins of a microbatch have one encoder load.
class BinFilling {
 public:
  /// All bins are empty at first. The problem must outlive the filling.
  explicit BinFilling(const BinProblem& problem);

  /// Returns whether a bin may get an item when `left` items, including this one, are still to be placed: the
  /// item fits under all caps, and the last items go only into empty bins, unless bins may be empty.
  bool takes(std::int32_t item, std::int32_t bin, std::size_t left) const {
    return (left != static_cast<std::size_t>(empty_) || filled_[bin] == 0) && caps_.fits(item, bin);
  }

  /// Returns, of the bins that take the item, the bin whose larger load is smallest afterward. Ties go to the
  /// smallest sum of loads, then to the first bin. Returns -1 if no bin takes the item.
  std::int32_t least_loaded(std::int32_t item, std::size_t left) const;

  void add(std::int32_t item, std::int32_t bin);

 private:
  const BinProblem& problem_;
  int share_;                    // number of bins that share one encoder load, cached for the inner loop
  std::vector<double> encoder_;  // per bin; with a shared encoder, its microbatch's load
  std::vector<double> llm_;
  std::vector<char> filled_;
  int empty_;  // bins that still need an item
  CapTable caps_;
};

/// Assigns with longest processing time first, in two dimensions: takes items in decreasing order of
/// max(encoder, LLM) time and puts each into its BinFilling::least_loaded() bin.
/// @return the bin of each item; empty if an item fits into no bin. There must be at least as many items as
/// bins unless bins may be empty.
std::vector<std::int32_t> lpt(const BinProblem& problem);

/// Assigns with Karmarkar and Karp's largest differencing method for `bins` sets (1982), as verl balances
/// sequence lengths: by LLM time only. Encoder times and caps are ignored. A bin left empty gets an item of
/// the bin with the most items, unless it may be empty. Memory grows with the number of items, not of bins.
/// @return the bin of each item.
std::vector<std::int32_t> karmarkar_karp(const BinProblem& problem);

/// Divides the items, in the given order, into consecutive bins whose counts differ by at most one, the
/// larger ones first. If an item does not fit its bin under the caps, it goes into the next bin where it
/// fits, wrapping around after the last. Costs are ignored.
/// @return the bin of each item; empty if an item fits into no bin or a bin gets no item.
std::vector<std::int32_t> place_in_order(const BinProblem& problem, std::span<const std::int32_t> order);

/// Returns the items 0 to count - 1 in the order in which a training loop that ignores the data draws them:
/// shuffled by (seed, stream). place_in_order() turns them into the random assignment.
std::vector<std::int32_t> shuffled_items(std::size_t count, std::uint64_t seed, std::uint64_t stream);

/// Decides which bin becomes which microbatch of which dp rank. A min-max partition leaves this open, but the
/// makespan depends on it. Each microbatch gets bins of similar load, one for each dp rank, because the dp
/// ranks wait for each other at a shared encoder. dp ranks take turns at getting the larger bins, so that
/// their sums are also similar. Microbatches grow to the largest in the middle and then shrink: the first
/// microbatches fill the pipeline and the last ones drain it, and both are faster with small microbatches. A
/// microbatch stays whole if its bins share an encoder load or a cap. No load changes, so the largest load
/// stays the same. If the new order would break a cap on microbatches in flight, the bins keep their order.
/// `bin` has one bin number per item: microbatch * dp + dp rank.
void arrange_bins(const BinProblem& problem, std::vector<std::int32_t>& bin);

}  // namespace dflop
