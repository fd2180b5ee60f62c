#include "core/cluster.hpp"

#include <algorithm>
#include <array>

namespace dflop {
namespace {

constexpr std::array<std::string_view, kCollectiveAlgorithms> kNames = {"hierarchical", "ring", "tree",
                                                                        "fastest"};

}  // namespace

std::string_view to_string(CollectiveAlgorithm algorithm) {
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::optional<CollectiveAlgorithm> collective_algorithm_from_string(std::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<CollectiveAlgorithm>(it - kNames.begin());
}

}  // namespace dflop
