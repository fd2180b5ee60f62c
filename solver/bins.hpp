// Every scheduler solves a two-dimensional min-max partition problem: items with an encoder time and an LLM
// time go into bins, and the largest load of any bin in either dimension is minimized (DFLOP, section on the
// online scheduler).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dflop {

/// A Cap is a limit on the total that some bins hold, for example LLM tokens or bytes of activations.
struct Cap {
  std::string what;                ///< "LLM tokens", for messages
  std::span<const double> weight;  ///< per item, finite and non-negative
  double most = 0;                 ///< max total of any `window` consecutive microbatches
  int window = 1;                  ///< microbatches that are in flight together
  bool of_microbatch = false;      ///< the sum over all bins of a microbatch; otherwise of one dp rank
};

/// A BinProblem has items and bins. Both spans have one finite, non-negative time per item, in seconds. bin =
/// microbatch * dp + dp rank.
struct BinProblem {
  std::span<const double> encoder_s;
  std::span<const double> llm_s;
  int bins = 1;
  int dp = 1;
  /// If true, a bin's encoder load is the mean over all bins of its microbatch, because its ranks share that
  /// work. Otherwise each bin carries its own encoder load (published).
  bool shared_encoder = false;
  bool allow_empty = false;  ///< bins without items
  std::vector<Cap> caps = {};
  std::span<const std::string> names = {};  ///< per item, for messages; may be absent

  int microbatches() const { return bins / dp; }
  /// Returns how many bins share one encoder load.
  int share() const { return shared_encoder ? dp : 1; }
  /// Returns how many consecutive microbatches a cap covers.
  int window(const Cap& cap) const { return std::clamp(cap.window, 1, microbatches()); }
  std::size_t items() const { return encoder_s.size(); }
};

/// A problem with at most this many items x bins is small: its integer program is solved almost instantly,
/// and local search finds all it can before its usual time is up.
inline constexpr std::size_t kSmallCells = 512;

/// Returns the largest load of any bin, encoder or LLM, in seconds. Caps are ignored.
double largest_load(const BinProblem& problem, std::span<const std::int32_t> bin);

/// Returns a lower bound in seconds on the value of any assignment, with or without caps. It is computed for
/// both dimensions and three mixtures of them (a bin's larger load is at least any weighted mean of its
/// loads), as the largest of: the sum divided by the number of bins, rounded up to whole multiples if all
/// items of a dimension take multiples of one time; the largest item; and the sum of the k + 1 smallest of
/// the k * bins + 1 largest items, because some bin must hold that many of them.
double lower_bound(const BinProblem& problem);

/// Returns the numbers 0 to count - 1 in increasing order.
std::vector<std::int32_t> numbered(std::size_t count);

/// Returns the items in decreasing order of max(encoder, LLM) time; ties keep their order.
std::vector<std::int32_t> by_falling_size(const BinProblem& problem);

/// Returns a description of the first cap that an assignment breaks, such as "LLM tokens of microbatches 3 to
/// 6 on dp rank 1: 9000, at most 8192"; nothing if it obeys all.
std::optional<std::string> broken_cap(const BinProblem& problem, std::span<const std::int32_t> bin);

/// Returns whether every bin has an item, or the problem allows empty bins.
bool fills_bins(const BinProblem& problem, std::span<const std::int32_t> bin);

}  // namespace dflop
