// SharedCompute runs the compute of groups that share GPUs, in virtual time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/program.hpp"
#include "core/units.hpp"
#include "sim/conditions.hpp"
#include "sim/network/item_heap.hpp"

namespace dflop {

/// SharedCompute runs compute whose groups take bandwidth of the memory of GPUs that others run on too.
///
/// A computation asks for a part d of each of its GPUs' bandwidth, that which it takes alone, and gets a part
/// a <= d, the same of all of them, as its ranks run in lockstep; it then goes on at the rate a / d. The
/// parts are max-min fair (Bertsekas and Gallager 1992, section 6.5.2): they are raised together until a
/// computation has what it asks for or a GPU has nothing left. They change only when a computation that
/// shares a GPU begins, ends, pauses or goes on. No GPU ever gives more than it has.
///
/// Where a group pauses its compute stands still and takes no bandwidth.
class SharedCompute {
 public:
  /// What happens to a computation.
  enum class What : std::uint8_t {
    nothing,  ///< its rate has changed
    enters,   ///< the collective that add_entry() named comes into force
    ends,
    fails,  ///< with its group
  };

  struct Happening {
    What what = What::nothing;
    std::int32_t group = 0;
    std::int64_t entry = 0;   ///< of enters: as given to add_entry()
    Nanoseconds computed{0};  ///< of ends and fails: how long it ran, without pauses
  };

  /// Both must outlive it. @pre the program has shared GPUs
  SharedCompute(const Program& program, const Conditions& conditions);
  SharedCompute(const SharedCompute&) = delete;  // the heap refers to the computations

  /// Begins a computation of a group that has none, at `now`, not before the last event. Alone it takes
  /// `amount` and the part `bandwidth` of each of its GPUs' bandwidth, in [0, 1].
  void start(std::int32_t group, Nanoseconds amount, double bandwidth, Nanoseconds now);

  /// Makes What::enters happen when the computation that the group has just begun has done `amount` of what
  /// it takes. Amounts of one computation come rising.
  void add_entry(std::int32_t group, Nanoseconds amount, std::int64_t entry);

  bool idle() const { return running_ == 0; }

  /// Returns when something happens next. @pre not idle
  Nanoseconds next_time();

  /// Moves to next_time() and returns what happens then.
  Happening advance();

 private:
  struct Entry {
    double left = 0;  ///< it happens when so much is left of the computation
    std::int64_t entry = 0;
  };

  /// A Computation is what one group runs.
  struct Computation {
    bool runs = false;
    bool paused = false;
    bool queued = false;        ///< in the heap
    What next = What::nothing;  ///< happens to it at `event`
    double bandwidth = 0;       ///< asked for
    double part = 0;            ///< what share_out() gives it; below 0: not yet settled
    double rate = 0;            ///< 0 until it is settled for the first time, and in a pause
    double left = 0;            ///< nanoseconds alone, at `since`
    Nanoseconds since{0};
    Nanoseconds started{0};
    Nanoseconds paused_for{0};
    Nanoseconds event{0};
    std::uint64_t number = 0;  ///< order of start
    std::size_t heap_place = 0;
    std::size_t entered = 0;     ///< so many of its entries have happened
    std::vector<Entry> entries;  ///< kept to be filled again
  };

  void find_clusters(const Program& program);
  void disturb(std::int32_t group);
  void settle();
  /// Returns the bandwidth that a group asks for at the moment.
  double wanted(std::int32_t group) const {
    const Computation& one = computations_[group];
    return one.runs && !one.paused ? one.bandwidth : 0;
  }
  bool is_contended(std::int32_t cluster) const;
  void share_out(const std::array<std::int32_t, 2>& pair);
  void share_out(std::int32_t cluster);
  void set_rate(std::int32_t group, double rate);
  void set_event(std::int32_t group);
  void queue(std::int32_t group);
  void stand_still_or_go_on(std::int32_t group, bool begins);
  Nanoseconds next_change(std::int32_t group) const;
  Happening remove(What what, std::int32_t group);

  const Conditions& conditions_;
  Nanoseconds now_{0};
  std::uint64_t started_ = 0;
  std::int32_t running_ = 0;
  std::vector<Computation> computations_;  ///< per group
  ItemHeap<Computation> heap_;             ///< of those that run and do not stand still for ever
  // Groups that reach each other over common GPUs are a cluster.
  std::vector<std::int32_t> cluster_of_;            ///< per group
  std::vector<std::size_t> first_member_;           ///< per cluster, and one more: in members_
  std::vector<std::int32_t> members_;               ///< groups
  std::vector<std::size_t> first_pair_;             ///< per cluster, and one more: in pairs_
  std::vector<std::array<std::int32_t, 2>> pairs_;  ///< groups that have a GPU in common
  std::vector<std::uint8_t> is_disturbed_;          ///< per cluster
  std::vector<std::int32_t> disturbed_;             ///< clusters whose rates may have changed
};

}  // namespace dflop
