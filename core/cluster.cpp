#include "core/cluster.hpp"

#include <algorithm>
#include <array>

namespace dflop {
namespace {

constexpr std::array<std::string_view, kCollectiveAlgorithms> kClusterNames = {"hierarchical", "ring", "tree",
                                                                               "fastest"};

}  // namespace

std::string_view to_string(CollectiveAlgorithm algorithm) {
  return kClusterNames[static_cast<std::size_t>(algorithm)];
}

std::optional<CollectiveAlgorithm> collective_algorithm_from_string(std::string_view name) {
  const auto it = std::find(kClusterNames.begin(), kClusterNames.end(), name);
  if (it == kClusterNames.end()) return std::nullopt;
  return static_cast<CollectiveAlgorithm>(it - kClusterNames.begin());
}

}  // namespace dflop
