// A RowMix defines the rows of one matrix as weighted sums of the rows of another.
#pragma once

#include <cstdint>
#include <vector>

namespace dflop {

/// A RowMix holds consecutive taps for each row of its result. A tap is a row of the source and its weight.
struct RowMix {
  std::vector<std::int32_t> begin;  ///< per row of the result, the range of its taps: [begin, end)
  std::vector<std::int32_t> end;
  std::vector<std::int32_t> index;
  std::vector<double> weights;

  std::int64_t rows() const { return static_cast<std::int64_t>(begin.size()); }
  /// Begins a row. add_tap() adds taps to it.
  void add_row() {
    begin.push_back(static_cast<std::int32_t>(index.size()));
    end.push_back(begin.back());
  }
  void add_tap(std::int64_t row, double weight) {
    index.push_back(static_cast<std::int32_t>(row));
    weights.push_back(weight);
    ++end.back();
  }
  /// Adds a row that is the mean of the rows [first, last).
  void add_mean(std::int64_t first, std::int64_t last);
  /// Appends the rows of `other`, whose source begins at row `first` of this source.
  void append(const RowMix& other, std::int64_t first);
  /// Returns the mix that maps gradients of the result to gradients of the `source_rows` source rows.
  RowMix transposed(std::int64_t source_rows) const;
};

}  // namespace dflop
