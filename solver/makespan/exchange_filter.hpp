// An ExchangeFilter finds the exchanges between bins that may speed up the slowest replica, using only its
// critical path.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/lanes.hpp"
#include "solver/makespan/state.hpp"

namespace dflop {

/// An ExchangeFilter has what each bin may give in exchange for an offer: every item, or nothing. A critical
/// path of a group gives a lower bound on its makespan after its loads change. So exchanges are ruled out by
/// a sum of products, 16 at a time, in float.
class ExchangeFilter {
 public:
  explicit ExchangeFilter(const MakespanState& state);

  /// Rereads a group. Call it after the critical path of the group has changed.
  void refresh(int group);

  /// Returns the number of chunks of sixteen entries.
  int chunks() const { return static_cast<int>(chunks_); }

  /// Sets the parcel that leaves a bin for others.
  void offer(std::int32_t from, const Parcel& out);

  /// Appends exchanges to `found` until it has `most`: exchanges of the offer for an entry of one chunk after
  /// which, by the paths, neither group's makespan must be `less_s` or more.
  void scan(int chunk, double less_s, std::size_t most, std::vector<BinExchange>& found) const;

 private:
  const MakespanState& state_;
  std::size_t loads_;
  std::size_t items_;
  std::size_t chunks_;
  std::vector<Lanes> weight_;  ///< [load][chunk]: of an entry; items come first, then nothing for each bin
  std::vector<Lanes> slope_;   ///< [load][chunk]: of its group's path for its bin's load
  std::vector<Lanes> rest_;    ///< its slopes times its weights, minus the makespan of its group
  std::vector<LaneGroups> group_;
  BinExchange offer_;
  std::vector<float> loss_;  ///< slopes of the offer's bin
  std::vector<float> out_;   ///< loads of the offer
  float offered_ = 0;        ///< sum of their products
};

}  // namespace dflop
