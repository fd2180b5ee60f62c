// Range: some rows or columns that follow each other.
#pragma once

#include <cstdint>

namespace dflop {

/// [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace dflop
