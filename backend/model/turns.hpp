// A TurnTable keeps, in device memory, the cosines and sines of the angles of rotary position embeddings.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/model/tensor.hpp"
#include "core/architecture.hpp"

namespace dflop {

/// Turns say how each row of a microbatch is rotated: they give the row's index in a table of cosines and
/// sines.
struct Turns {
  IndexTensor rows;
  std::shared_ptr<const SumTensor> table;  ///< [*, head_dim]: cosines of a head's pairs, then their sines
};

/// A TurnTable makes the Turns of one module on one rank. It computes angles in f64, once for each position.
class TurnTable {
 public:
  /// @pre head_dim is even, and the sections, if any, add up to head_dim / 2
  TurnTable(const Rotary& rotary, int head_dim);

  /// Extends the kept table to cover these positions. Does nothing for positions with several axes.
  void prepare(const RankContext& rank, std::span<const std::int32_t> positions);

  /// Returns the turns for rows with these positions; each row has `rotary.axes()` positions. With one axis,
  /// all calls share one table, which grows; with several axes, each call makes its own table.
  Turns of(const RankContext& rank, std::span<const std::int32_t> positions);

  /// Returns the frequency of each pair, in radians per position.
  std::span<const double> frequencies() const { return frequencies_; }

 private:
  /// Known holds the cosines and sines of positions 0 to `positions` - 1 for some pairs.
  struct Known {
    std::int64_t positions = 0;
    std::vector<double> cosines;
    std::vector<double> sines;
  };

  void learn(Known& known, std::size_t first_pair, std::size_t pairs, std::int64_t positions) const;
  Turns by_sections(const RankContext& rank, std::span<const std::int32_t> positions);

  std::vector<int> sections_;
  std::vector<double> frequencies_;
  std::vector<Known> known_;  // of each section
  std::shared_ptr<const SumTensor> table_;
};

}  // namespace dflop
