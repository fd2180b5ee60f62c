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
  std::string what;                ///< name in messages, such as "LLM tokens"
  std::span<const double> weight;  ///< per item, finite and non-negative
  double most = 0;                 ///< max total of any `window` consecutive microbatches
  int window = 1;                  ///< microbatches that are in flight together
  bool of_microbatch = false;      ///< total over all bins of a microbatch; otherwise over one dp rank's
};

/// A BinProblem has items and bins. encoder_s and llm_s have one finite, non-negative time per item, in
/// seconds. Bins are numbered microbatch * dp + dp rank.
struct BinProblem {
  std::span<const double> encoder_s;
  std::span<const double> llm_s;
  int bins = 1;
  int dp = 1;
  /// If true, a bin's encoder load is the mean over all bins of its microbatch, because the encoder's ranks
  /// share this work. Otherwise each bin has its own encoder load, as in the published scheduler.
  bool shared_encoder = false;
  bool allow_empty = false;  ///< bins may be left without items
  std::vector<Cap> caps = {};
  std::span<const std::string> names = {};  ///< per item, for messages; may be empty

  int microbatches() const { return bins / dp; }
  /// Returns the number of bins that share one encoder load.
  int share() const { return shared_encoder ? dp : 1; }
  /// Returns the number of consecutive microbatches that a cap covers.
  int window(const Cap& cap) const { return std::clamp(cap.window, 1, microbatches()); }
  std::size_t items() const { return encoder_s.size(); }
};

/// A problem is small if items times bins is at most this. Its integer program is solved almost instantly,
/// and local search needs only a fraction of its usual steps.
inline constexpr std::size_t kSmallCells = 512;

/// Returns the largest load of any bin, encoder or LLM, in seconds. Caps are ignored.
double largest_load(const BinProblem& problem, std::span<const std::int32_t> bin);

/// Returns a lower bound in seconds on the value of any assignment, with or without caps. It is the largest
/// bound for the encoder times, the LLM times and three weighted means of both. (A bin's larger load is at
/// least any weighted mean of its loads.) The bound for one kind of time is the largest of:
///   the sum divided by the number of bins; if all times of a module are multiples of one time, this is
///   rounded up to such a multiple;
///   the largest item;
///   the sum of the k + 1 smallest of the k * bins + 1 largest items, because some bin must hold k + 1
///   of them.
double lower_bound(const BinProblem& problem);

/// Returns an estimate in seconds of the time of an iteration: the number of microbatches times the
/// lower_bound() of their loads.
double iteration_s(const BinProblem& problem);

/// Returns the numbers 0 to count - 1 in increasing order.
std::vector<std::int32_t> numbered(std::size_t count);

/// Returns the items in decreasing order of max(encoder, LLM) time; ties keep their order.
std::vector<std::int32_t> by_falling_size(const BinProblem& problem);

/// Returns a description of the first cap that an assignment breaks, such as "LLM tokens of microbatches 3 to
/// 6 on dp rank 1: 9000, at most 8192"; nullopt if it obeys all caps.
std::optional<std::string> broken_cap(const BinProblem& problem, std::span<const std::int32_t> bin);

/// Returns whether every bin has an item, or the problem allows empty bins.
bool fills_bins(const BinProblem& problem, std::span<const std::int32_t> bin);

}  // namespace dflop
