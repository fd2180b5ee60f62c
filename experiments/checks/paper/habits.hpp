// Habits are ways to run a baseline that cost throughput and that the published evaluation may have compared
// with: it says only that its baselines follow conventional best practices.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "experiments/studies/comparison.hpp"

namespace dflop {

/// A Habit is one way to run Megatron-LM with the encoder on the first stage. Everything that it leaves free
/// is tuned on the measured batches.
struct Habit {
  std::string_view name;  ///< of the row
  std::string_view what;
  bool pads = false;           ///< microbatches of kPaddedSamples samples, padded to the longest of them
  bool keeps_states = false;   ///< no distributed optimizer: each rank keeps all optimizer states
  bool recomputes = false;     ///< full recomputation, also where memory suffices
  bool encoder_alone = false;  ///< if there are several stages, the first has no LLM layers
};

inline constexpr int kPaddedSamples = 4;

/// Returns the tuned baseline without habits, each habit by itself, and all of them together.
std::span<const Habit> habits();

/// Plans the baseline with a habit and runs it with random microbatches. If no plan fits, `planned` gives the
/// reason.
System run_habit(const Habit& habit, const Target& target, const ComparisonInput& input);

/// Returns batches with their samples in random order, in which each sample has as many LLM tokens as the
/// longest of its group. A group is `samples` samples in a row.
std::vector<Batch> padded(const std::vector<Batch>& batches, int samples, std::uint64_t seed);

}  // namespace dflop
