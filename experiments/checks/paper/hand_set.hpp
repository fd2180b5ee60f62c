// This file makes baselines with hand-set plans. They replace the baselines of the published evaluation,
// which describes its baselines only as following conventional best practices.
#pragma once

#include <span>
#include <string_view>

#include "experiments/studies/comparison.hpp"

namespace dflop {

/// Returns the names of the baselines set by hand.
///   pytorch-hand   encoder and LLM layers in one list, cut evenly; the smallest tp x pp that fits, and
///                  among equal ones the largest tp
///   megatron-hand  the encoder by itself on the first of four stages, as drawn in Figure 1; the smallest
///                  tp that fits
/// Both use one sample in a microbatch of each dp rank, and all other GPUs for dp.
std::span<const std::string_view> hand_set_names();

/// Plans a baseline set by hand and runs it with random microbatches. If no plan fits, `planned` gives the
/// reason.
System run_hand_set(std::string_view name, const Target& target, const ComparisonInput& input);

}  // namespace dflop
