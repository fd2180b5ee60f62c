// Traces of several ranks of one run are put beside each other: clocks, and the waiting inside communication.
#pragma once

#include <optional>
#include <vector>

#include "traces/profiler/kineto.hpp"

namespace dflop {

/// A KinetoExchange is one collective or message on the ranks that have it.
struct KinetoExchange {
  struct End {
    std::size_t trace = 0;
    std::size_t collective = 0;  ///< index into that trace's collectives
  };
  std::vector<End> ends;  ///< of different traces, in their order
  bool recorded = false;  ///< joined by what the traces say; else by name and time
};

/// A KinetoClock says how far one rank is ahead of the first rank.
struct KinetoClock {
  Nanoseconds offset{0};
  Nanoseconds spread{0};    ///< median distance of the end differences from their median
  std::size_t matches = 0;  ///< exchanges that the estimate rests on; 0: nothing is known, the offset is 0
};

/// A KinetoShare is one rank's part. Communication kernels wait inside for the other ranks: the last to come
/// shows how long the transfer takes.
struct KinetoShare {
  std::optional<Nanoseconds> transfer;  ///< the shortest kernel of the exchange; nothing where it has one end
  std::size_t exchange = 0;
};

struct KinetoRanks {
  std::vector<KinetoClock> clocks;  ///< a row per trace
  std::vector<KinetoExchange> exchanges;
  std::vector<std::vector<KinetoShare>> shares;  ///< a row per trace, an entry per collective
  Nanoseconds origin{0};                         ///< absolute time, on the first rank's clock, of time 0

  /// Returns a time of `trace` on the common clock, from `origin` on.
  Nanoseconds aligned(const std::vector<KinetoTrace>& traces, std::size_t trace, Nanoseconds time) const {
    return time + traces[trace].base - clocks[trace].offset - origin;
  }
};

/// Numbers the steps of ranks that share collectives alike, as most of them do: what the ranks of a
/// collective call the step in which it lies differs by a constant where one began to count elsewhere. A
/// collective that no constant brings together stays in different steps.
void align_steps(std::vector<KinetoTrace>& traces);

/// Joins the communication of the traces and estimates their clocks.
///
/// Collectives are joined by process group and sequence number, messages by group, source, destination and
/// their order within a step. Where a trace does not say these (as of older versions of PyTorch), kernels of
/// one name are joined that overlap in time, by their ends; that needs clocks that agree better than a kernel
/// is long.
///
/// A collective ends on all its ranks together, so the clock offset of a rank is the median difference of
/// the ends of what it shares with ranks that are aligned already, beginning with the first.
KinetoRanks compare_ranks(const std::vector<KinetoTrace>& traces);

}  // namespace dflop
