// Baselines set by hand stand for those of the published evaluation, of which it says no more than that they
// follow conventional best practices.
#pragma once

#include <span>
#include <string_view>

#include "experiments/studies/comparison.hpp"

namespace dflop {

/// Returns the names of baselines set by hand.
///   pytorch-hand   encoder and LLM layers in one list, cut evenly; of all tp x pp that fit the smallest, and
///   of those
///                  the one with the largest tp
///   megatron-hand  the encoder alone on the first of four stages, as drawn in Figure 1; the smallest tp that
///   fits
/// Both have one sample in a microbatch of each dp rank, and all other GPUs in dp.
std::span<const std::string_view> hand_set_names();

/// Plans one of them and runs it with random microbatches. `planned` says why where none fits.
System run_hand_set(std::string_view name, const Target& target, const ComparisonInput& input);

}  // namespace dflop
