// A TurnTable keeps the cosines and sines of the angles of rotary position embeddings in device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/model/tensor.hpp"
#include "core/architecture.hpp"

namespace dflop {

/// Turns hold a table of rotations and, for each row of a microbatch, the table row with its rotation.
struct Turns {
  IndexTensor rows;
  std::shared_ptr<const SumTensor> table;  ///< [*, head_dim]: cosines of a head's pairs, then their sines
};

/// A TurnTable makes the Turns of one module on one rank. It computes the angles of each position once, in
/// f64.
class TurnTable {
 public:
  /// @pre head_dim is even
  /// @throws Error (input) if there are sections and they do not add up to head_dim / 2
  TurnTable(const Rotary& rotary, int head_dim);

  /// Extends the table that all calls of of() share to cover these positions. Does nothing if positions have
  /// several axes.
  void prepare(const RankContext& rank, std::span<const std::int32_t> positions);

  /// Returns the turns for rows with these positions. Each row has `rotary.axes()` positions. With one axis,
  /// all calls share a table that grows; with several axes, each call makes its own table.
  Turns of(const RankContext& rank, std::span<const std::int32_t> positions);

  /// Returns the frequency of each pair of a head's values, in radians per position.
  std::span<const double> frequencies() const { return frequencies_; }

 private:
  /// Known holds the cosines and sines of one axis's pairs for positions 0 to `positions` - 1.
  struct Known {
    std::int64_t positions = 0;
    std::vector<double> cosines;
    std::vector<double> sines;
  };

  void learn(Known& known, const std::vector<std::size_t>& pairs, std::int64_t positions) const;
  Turns by_sections(const RankContext& rank, std::span<const std::int32_t> positions);

  std::vector<int> sections_;
  std::vector<double> frequencies_;
  std::vector<std::vector<std::size_t>> axes_;  // the pairs of each axis
  double magnitude_;
  std::vector<Known> known_;  // by axis
  std::shared_ptr<const SumTensor> table_;
};

}  // namespace dflop
