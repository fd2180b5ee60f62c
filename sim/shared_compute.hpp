// SharedCompute simulates the compute of groups that share GPUs, in virtual time.
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

/// SharedCompute runs computations that share the memory bandwidth of GPUs.
///
/// A computation asks for a fraction d of the bandwidth of each of its GPUs: the fraction that it uses when
/// nothing else runs there. It gets a fraction a <= d and runs at the rate a / d. The fraction a is the same
/// on all its GPUs, because its ranks run in lockstep. The fractions are max-min fair (Bertsekas and Gallager
/// 1992, section 6.5.2): they rise together until a computation has what it asks for or a GPU has no
/// bandwidth left. They change only when a computation that shares a GPU begins, ends, pauses or resumes. No
/// GPU ever gives more than it has.
///
/// While a group pauses, its compute makes no progress and takes no bandwidth.
class SharedCompute {
 public:
  /// A What is the kind of an event in a computation.
  enum class What : std::uint8_t {
    nothing,  ///< only its rate has changed
    enters,   ///< the group enters the collective named by add_entry()
    ends,
    fails,  ///< the group fails during the computation
  };

  struct Happening {
    What what = What::nothing;
    std::int32_t group = 0;
    std::int64_t entry = 0;   ///< for `enters`: the number passed to add_entry()
    Nanoseconds computed{0};  ///< for `ends` and `fails`: how long it ran, without pauses
  };

  /// Both arguments must outlive this object. @pre the program has shared GPUs
  SharedCompute(const Program& program, const Conditions& conditions);
  SharedCompute(const SharedCompute&) = delete;  // the heap refers to the computations

  /// Begins a computation of an idle group at `now`, not before the last event. Without contention it takes
  /// `amount` and uses the fraction `bandwidth`, in [0, 1], of the bandwidth of each of its GPUs.
  void start(std::int32_t group, Nanoseconds amount, double bandwidth, Nanoseconds now);

  /// Requests a What::enters event for the computation that the group has just begun: it happens when
  /// `amount` of the computation is done. Call this in increasing order of amount.
  void add_entry(std::int32_t group, Nanoseconds amount, std::int64_t entry);

  bool idle() const { return running_ == 0; }

  /// Returns the time of the next event. @pre not idle
  Nanoseconds next_time();

  /// Advances to next_time() and returns the event.
  Happening advance();

 private:
  struct Entry {
    double left = 0;  ///< the event happens when this much of the computation is left
    std::int64_t entry = 0;
  };

  /// A Computation is the current computation of one group.
  struct Computation {
    bool runs = false;
    bool paused = false;
    bool queued = false;        ///< in the heap
    What next = What::nothing;  ///< event that happens at `event`
    double bandwidth = 0;       ///< fraction of the bandwidth that it asks for
    double part = 0;            ///< fraction given by share_out(); below 0: not yet known
    double rate = 0;            ///< 0 before it is known for the first time, and in a pause
    double left = 0;            ///< nanoseconds left without contention, at `since`
    Nanoseconds since{0};
    Nanoseconds started{0};
    Nanoseconds paused_for{0};
    Nanoseconds event{0};
    std::uint64_t number = 0;  ///< order of start
    std::size_t heap_place = 0;
    std::size_t entered = 0;     ///< how many of its entries have happened
    std::vector<Entry> entries;  ///< kept to reuse its memory
  };

  void find_clusters(const Program& program);
  void disturb(std::int32_t group);
  void settle();
  /// Returns the bandwidth that a group currently asks for.
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
  ItemHeap<Computation> heap_;             ///< of computations that run and are not paused forever
  // Groups connected through common GPUs form a cluster.
  std::vector<std::int32_t> cluster_of_;            ///< per group
  std::vector<std::size_t> first_member_;           ///< per cluster, and one more: index into members_
  std::vector<std::int32_t> members_;               ///< groups
  std::vector<std::size_t> first_pair_;             ///< per cluster, and one more: index into pairs_
  std::vector<std::array<std::int32_t, 2>> pairs_;  ///< groups that have a GPU in common
  std::vector<std::uint8_t> is_disturbed_;          ///< per cluster
  std::vector<std::int32_t> disturbed_;             ///< clusters whose rates may have changed
};

}  // namespace dflop
