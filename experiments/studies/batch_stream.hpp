// The global batches of a run are made as they are asked for: a run of a million steps holds one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/iteration/planner.hpp"
#include "core/support/random.hpp"

namespace dflop {

/// A BatchStream gives consecutive pieces of a seeded shuffle of the samples, shuffled anew each time all of
/// them are used up. The same samples, gbs and seed give the same batches. A copy goes on from where the
/// other is, by itself; the samples are shared.
class BatchStream {
 public:
  /// Takes at least one sample; gbs >= 1.
  BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed);

  Batch next();
  /// Passes over so many batches.
  void skip(std::int64_t batches);

 private:
  const Sample& next_sample();

  std::shared_ptr<const std::vector<Sample>> samples_;
  std::int64_t gbs_;
  Random random_;
  std::vector<std::int32_t> order_;
  std::size_t next_;  ///< in order_
};

}  // namespace dflop
