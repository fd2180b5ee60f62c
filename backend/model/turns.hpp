// Rotary positions turn queries and keys by angles, whose cosines and sines stand in a table in device
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/model/tensor.hpp"
#include "core/architecture.hpp"

namespace dflop {

/// Turns say by which row of a table each row of a microbatch is turned.
struct Turns {
  IndexTensor rows;
  std::shared_ptr<const SumTensor> table;  ///< [*, head_dim]: cosines of a head's pairs, then sines
};

/// A TurnTable makes the Turns of one module on one rank. Angles are computed in double, once for each
/// position.
class TurnTable {
 public:
  /// @pre head_dim is even, and the sections, if any, add up to its half
  TurnTable(const Rotary& rotary, int head_dim);

  /// Has the kept table ready for such positions, with one a row.
  void prepare(const RankContext& rank, std::span<const std::int32_t> positions);

  /// Returns the turns of rows with these positions, `rotary.axes()` a row. With one a row the table is kept
  /// and grows; with several each call makes one of its own.
  Turns of(const RankContext& rank, std::span<const std::int32_t> positions);

  /// Returns the frequency of each pair, in radians a position.
  std::span<const double> frequencies() const { return frequencies_; }

 private:
  /// Known has the cosines and sines of positions from 0 on for some pairs.
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
