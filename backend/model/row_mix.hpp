// A RowMix says of which rows of one matrix the rows of another are weighted sums.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/model/tensor.hpp"

namespace dflop {

/// A RowMix has for each row of its result a run of taps: rows of the source and their weights.
struct RowMix {
  std::vector<std::int32_t> begin;  ///< per row of the result, its taps: [begin, end)
  std::vector<std::int32_t> end;
  std::vector<std::int32_t> index;
  std::vector<double> weights;

  std::int64_t rows() const { return static_cast<std::int64_t>(begin.size()); }
  /// Begins a row, to which add_tap() adds.
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
  /// Adds the rows of another, whose source begins at row `first` here.
  void append(const RowMix& other, std::int64_t first);
  /// Returns what takes gradients of the result to those of `source_rows` rows.
  RowMix transposed(std::int64_t source_rows) const;
};

/// A RowMixer is a RowMix in device memory.
class RowMixer {
 public:
  RowMixer() = default;
  RowMixer(const RankContext& rank, const RowMix& mix);

  std::int64_t rows() const { return begin_.size(); }
  /// Returns the mixed rows of x.
  Tensor operator()(const RankContext& rank, ConstMatrix x) const;

 private:
  IndexTensor begin_;
  IndexTensor end_;
  IndexTensor index_;
  SumTensor weights_;
};

}  // namespace dflop
