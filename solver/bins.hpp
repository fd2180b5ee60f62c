// Under every scheduler is the two-dimensional min-max partition problem: items with an encoder and an LLM
// time go into bins, and the largest load of any bin in either dimension is to be small (DFLOP, section on
// the online scheduler).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dflop {

/// A Cap is a limit on what some bins hold together, as LLM tokens or bytes of activations.
struct Cap {
  std::string what;                ///< "LLM tokens", for messages
  std::span<const double> weight;  ///< per item, finite and non-negative
  double most = 0;                 ///< of any `window` microbatches in a row
  int window = 1;                  ///< microbatches that are in flight together
  bool of_microbatch = false;      ///< the sum over all bins of a microbatch; else of one dp rank
};

/// A BinProblem has items and bins. Both spans have one finite, non-negative time per item, in seconds. bin =
/// microbatch * dp + dp rank.
struct BinProblem {
  std::span<const double> encoder_s;
  std::span<const double> llm_s;
  int bins = 1;
  int dp = 1;
  /// The encoder's load of a bin is the mean over all bins of its microbatch, as its ranks share that work;
  /// else each bin carries its own (published).
  bool shared_encoder = false;
  bool allow_empty = false;  ///< bins without items
  std::vector<Cap> caps = {};
  std::span<const std::string> names = {};  ///< per item, for messages; may be absent

  int microbatches() const { return bins / dp; }
  /// Returns how many bins carry an encoder load together.
  int share() const { return shared_encoder ? dp : 1; }
  /// Returns how many microbatches in a row a cap looks at.
  int window(const Cap& cap) const { return std::clamp(cap.window, 1, microbatches()); }
  std::size_t items() const { return encoder_s.size(); }
};

/// An integer program of at most so many items x bins is solved in moments, and a local search finds all that
/// it finds in less than its usual time.
inline constexpr std::size_t kSmallCells = 512;

/// Returns the largest load of any bin, encoder or LLM, in seconds. Caps are not looked at.
double largest_load(const BinProblem& problem, std::span<const std::int32_t> bin);

/// Returns a number of seconds that no assignment goes below, caps or not. It is the largest of, over both
/// dimensions and three mixtures of them (a bin's larger load is at least any weighted mean of its loads):
/// the sum over the bins, rounded up to whole tiles where all items of a dimension take whole multiples of
/// one time; the largest item; and the k + 1 smallest of the k * bins + 1 largest items, as some bin must
/// hold that many of them.
double lower_bound(const BinProblem& problem);

/// Returns the numbers 0 to count - 1 in rising order.
std::vector<std::int32_t> numbered(std::size_t count);

/// Returns the items by falling max(encoder, LLM) time, equal ones in their order.
std::vector<std::int32_t> by_falling_size(const BinProblem& problem);

/// Returns the first cap that an assignment breaks, as "LLM tokens of microbatches 3 to 6 on dp rank 1: 9000,
/// at most 8192"; nothing where it obeys all.
std::optional<std::string> broken_cap(const BinProblem& problem, std::span<const std::int32_t> bin);

/// Returns whether every bin has an item, or the problem allows empty bins.
bool fills_bins(const BinProblem& problem, std::span<const std::int32_t> bin);

}  // namespace dflop
