// An ExchangeFilter finds which exchanges between bins may make the slowest replica faster, by its critical
// path alone.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/lanes.hpp"
#include "solver/makespan/state.hpp"

namespace dflop {

/// An ExchangeFilter has what each bin may give for what leaves another: every item, and nothing. A critical
/// path of a group says how its makespan changes at least with its loads, so exchanges are ruled out by a sum
/// of products; it is done for 16 at a time, in float.
class ExchangeFilter {
 public:
  explicit ExchangeFilter(const MakespanState& state);

  /// Reads a group anew. It must be called after the critical path of the group changed.
  void refresh(int group);

  /// Returns the number of chunks, each of sixteen entries.
  int chunks() const { return static_cast<int>(chunks_); }

  /// Takes what leaves a bin for others.
  void offer(std::int32_t from, const Parcel& out);

  /// Adds exchanges to `found` until that has `most`: those of the offer for what is in one chunk after
  /// which, by the paths, no makespan of the two groups need be `less_s` or more.
  void scan(int chunk, double less_s, std::size_t most, std::vector<BinExchange>& found) const;

 private:
  const MakespanState& state_;
  std::size_t loads_;
  std::size_t items_;
  std::size_t chunks_;
  std::vector<Lanes> weight_;  ///< [load][chunk]: of an entry; items come first, then nothing for each bin
  std::vector<Lanes> slope_;   ///< [load][chunk]: of its group's path for its bin's load
  std::vector<Lanes> rest_;    ///< its slopes times its weights, less the makespan of its group
  std::vector<LaneGroups> group_;
  BinExchange offer_;
  std::vector<float> loss_;  ///< slopes of the offer's bin
  std::vector<float> out_;   ///< loads of the offer
  float offered_ = 0;        ///< their products
};

}  // namespace dflop
