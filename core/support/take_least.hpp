// Taking the elements with the smallest keys out of a list of indices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

namespace dflop {

/// Takes the elements with the smallest keys out of a list, `count` at most, rising; of equal ones the
/// smallest element first.
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
