// take_least() removes the elements with the smallest keys from a list of indices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

namespace dflop {

/// Removes up to `count` elements with the smallest keys from a list and returns them in increasing order of
/// key. Ties go to the smaller element.
template <typename Key>
std::vector<std::size_t> take_least(std::vector<std::size_t>& from, std::size_t count, const Key& key) {
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(count, from.size()));
  std::partial_sort(from.begin(), end, from.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(key(a), a) < std::tuple(key(b), b);
  });
  std::vector<std::size_t> taken(from.begin(), end);
  from.erase(from.begin(), end);
  return taken;
}

}  // namespace dflop
