// Items taken together in a bound.
#pragma once

#include <span>
#include <vector>

#include "core/sample.hpp"

namespace dflop {

/// Items and, for each module, the work that stands for each of them in a lower bound.
struct Bundle {
  int items = 1;
  Workload encoder;
  Workload llm;
};

/// What stands for the items of a bundle: the mean of their work where costs are convex in it, else the least
/// of each count.
enum class BundleBy : std::uint8_t { mean, least };

/// One bundle for each item.
std::vector<Bundle> single_items(std::span<const Sample> items);

/// The items that have work for the same modules, each such set halved `halvings` times at the median of
/// their tokens: of the encoder, then of the LLM, and so on.
std::vector<Bundle> bundle_items(std::span<const Sample> items, int halvings, BundleBy by);

/// Work that is in no count more than the mean (BundleBy::mean) or the least (BundleBy::least) of
/// share_of_batch() over the items of a bundle; share_of_batch() itself for a bundle of one.
Workload share_of_bundle(const Workload& work, int items, int gbs, std::int64_t shares);

}  // namespace dflop
