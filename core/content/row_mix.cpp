#include "core/content/row_mix.hpp"

namespace dflop {

void RowMix::add_mean(std::int64_t first, std::int64_t last) {
  add_row();
  for (std::int64_t row = first; row < last; ++row) add_tap(row, 1.0 / static_cast<double>(last - first));
}

void RowMix::append(const RowMix& other, std::int64_t first) {
  const auto taps = static_cast<std::int32_t>(index.size());
  for (const std::int32_t tap : other.begin) begin.push_back(tap + taps);
  for (const std::int32_t tap : other.end) end.push_back(tap + taps);
  for (const std::int32_t row : other.index) index.push_back(row + static_cast<std::int32_t>(first));
  weights.insert(weights.end(), other.weights.begin(), other.weights.end());
}

RowMix RowMix::transposed(std::int64_t source_rows) const {
  RowMix turned;
  turned.begin.assign(static_cast<std::size_t>(source_rows), 0);
  turned.end.assign(static_cast<std::size_t>(source_rows), 0);
  turned.index.resize(index.size());
  turned.weights.resize(index.size());
  for (const std::int32_t row : index) ++turned.end[static_cast<std::size_t>(row)];
  std::int32_t taps = 0;
  for (std::size_t row = 0; row < turned.begin.size(); ++row) {
    turned.begin[row] = taps;
    taps += turned.end[row];
    turned.end[row] = turned.begin[row];
  }
  for (std::size_t i = 0; i < begin.size(); ++i) {
    for (std::int32_t tap = begin[i]; tap < end[i]; ++tap) {
      const auto from = static_cast<std::size_t>(tap);
      const auto to = static_cast<std::size_t>(turned.end[static_cast<std::size_t>(index[from])]++);
      turned.index[to] = static_cast<std::int32_t>(i);
      turned.weights[to] = weights[from];
    }
  }
  return turned;
}

}  // namespace dflop
