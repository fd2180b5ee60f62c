// Flows simulates transfers that share links, in virtual time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/network/item_heap.hpp"
#include "sim/network/network.hpp"

namespace dflop {

/// Flows runs the transfers of a Network with max-min fair rates (Bertsekas and Gallager 1992, section
/// 6.5.2): all rates rise together until a link is full or a route reaches its own limit. Then the rates of
/// the affected transfers are fixed, and the others continue to rise. A link of capacity C is full when the
/// sum of weight * rate over its transfers is C.
///
/// When a transfer starts or ends, only the rates of transfers that are connected to it through shared links
/// change. If no link of its route is full, no rates change. So a network without contention costs only a few
/// additions per transfer.
class Flows {
 public:
  /// `network` must outlive this object.
  explicit Flows(const Network& network);
  Flows(const Flows&) = delete;  // the heap refers to the flows

  /// Starts a transfer at `now`, not before the last event. Each transfer runs at most once.
  void start(std::int32_t transfer, Nanoseconds now);

  bool idle() const { return heap_.empty(); }

  /// Returns the time of the next event. @pre not idle
  Nanoseconds next_time();

  /// Advances to next_time() and returns the transfer that ends then; nullopt if only a phase within a
  /// transfer began or ended.
  std::optional<std::int32_t> advance();

 private:
  enum class State : std::uint8_t { latency, moving };

  struct Flow {
    std::int32_t transfer = 0;
    State state = State::latency;
    std::size_t phase = 0;
    double bytes_left = 0;  ///< at `since`
    double rate = 0;        ///< bytes per second
    Nanoseconds since{0};
    Nanoseconds event{0};      ///< when `state` ends, at this rate
    std::uint64_t number = 0;  ///< order of start, which orders events at the same time
    std::size_t heap_place = 0;
    std::uint64_t visit = 0;
  };

  struct Link {
    std::vector<std::int32_t> flows;  ///< moving
    double used = 0;                  ///< sum of weight * rate
    double spare = 0;                 ///< capacity left by the transfers whose rates are fixed
    double weight = 0;                ///< of transfers whose rates are not yet fixed
    std::int32_t unsettled = 0;
    std::uint64_t visit = 0;
  };

  std::int32_t new_flow();
  void begin_phase(std::int32_t flow, Nanoseconds now);
  void join(std::int32_t flow);
  void leave(std::int32_t flow);
  void settle();
  void gather(std::int32_t first);
  void fill();
  template <typename Which, typename Rate>
  bool settle_those(Which which, Rate rate);
  void set_rate(std::int32_t flow, double rate);
  std::span<const LinkUse> uses_of(const Flow& flow) const;
  bool uses_link(const Flow& flow, std::int32_t link) const;
  double limit(const Flow& flow) const;

  const Network& network_;
  Nanoseconds now_{0};
  std::uint64_t started_ = 0;
  std::uint64_t visit_ = 0;
  std::vector<Flow> flows_;
  std::vector<std::int32_t> free_;  ///< free entries of flows_
  std::vector<Link> links_;
  ItemHeap<Flow> heap_;
  std::vector<std::int32_t> disturbed_;  ///< links whose flows may change their rates
  std::vector<std::int32_t> affected_flows_;
  std::vector<std::int32_t> affected_links_;
};

}  // namespace dflop
