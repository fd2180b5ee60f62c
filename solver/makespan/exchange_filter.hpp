// An ExchangeFilter finds the exchanges between bins that may speed up the slowest replica, using only its
// critical path.
#pragma once

#include <cstdint>
#include <vector>

#include "solver/lanes.hpp"
#include "solver/makespan/state.hpp"

namespace dflop {

/// An ExchangeFilter has an entry for everything that a bin may give in exchange for an offer: each single
/// item, or nothing. The critical path of a group of replicas gives a lower bound on the group's makespan
/// after its loads change: a sum of products of slopes and loads. So the filter rules out exchanges 16 at a
/// time, in float.
class ExchangeFilter {
 public:
  explicit ExchangeFilter(const MakespanState& state);

  /// Rereads the critical path of a group and the items of its bins. Call it after the path has changed.
  void refresh(int group);

  /// Returns the number of chunks, which have sixteen entries each.
  int chunks() const { return static_cast<int>(chunks_); }

  /// Sets the offer: the parcel that bin `from` may give to other bins.
  void offer(std::int32_t from, const Parcel& out);

  /// Appends to `found`, until it has `most`, the exchanges of the offer for an entry of one chunk that the
  /// caps allow and the filter does not rule out. It rules out an exchange if a path shows that the makespan
  /// of a group would then be at least `less_s`.
  void scan(int chunk, double less_s, std::size_t most, std::vector<BinExchange>& found) const;

 private:
  const MakespanState& state_;
  std::size_t loads_;
  std::size_t items_;
  std::size_t chunks_;
  std::vector<Lanes> weight_;  ///< [load][chunk]: loads of all items, then 0 for each bin
  std::vector<Lanes> slope_;   ///< [load][chunk]: gradient of the entry's group for its bin's load
  std::vector<Lanes> rest_;    ///< per entry: its slopes times its weights, minus the makespan of its group
  std::vector<LaneGroups> group_;
  BinExchange offer_;
  std::vector<float> loss_;  ///< slopes of the offer's bin
  std::vector<float> out_;   ///< loads of the offer
  float offered_ = 0;        ///< sum of the products of loss_ and out_
};

}  // namespace dflop
