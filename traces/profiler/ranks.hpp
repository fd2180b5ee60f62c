// This file compares the traces of several ranks of one run: it aligns their clocks and finds the waiting
// time inside communication.
#pragma once

#include <optional>
#include <vector>

#include "traces/profiler/kineto.hpp"

namespace dflop {

/// A KinetoExchange is one collective or message, with its ends on all recorded ranks.
struct KinetoExchange {
  struct End {
    std::size_t trace = 0;
    std::size_t collective = 0;  ///< index into that trace's collectives
  };
  std::vector<End> ends;  ///< of different traces, in their order
  bool recorded = false;  ///< matched by recorded groups and numbers; if false, by name and time
};

/// A KinetoClock says how far one rank's clock is ahead of the first rank's.
struct KinetoClock {
  Nanoseconds offset{0};
  Nanoseconds spread{0};    ///< median absolute deviation of the differences between ends
  std::size_t matches = 0;  ///< exchanges used for the estimate; 0: unknown, and the offset is 0
};

/// A KinetoShare is one rank's part of an exchange. The time of a communication kernel includes the wait for
/// other ranks. So the kernel of the last rank to arrive, the shortest, shows how long the transfer itself
/// takes.
struct KinetoShare {
  std::optional<Nanoseconds> transfer;  ///< the shortest kernel of the exchange; empty if it has one end
  std::size_t exchange = 0;
};

struct KinetoRanks {
  std::vector<KinetoClock> clocks;  ///< a row per trace
  std::vector<KinetoExchange> exchanges;
  std::vector<std::vector<KinetoShare>> shares;  ///< a row per trace, an entry per collective
  Nanoseconds origin{0};                         ///< absolute time of time 0, on the first rank's clock

  /// Converts a time of `trace` to the common clock, counting from `origin`.
  Nanoseconds aligned(const std::vector<KinetoTrace>& traces, std::size_t trace, Nanoseconds time) const {
    return time + traces[trace].base - clocks[trace].offset - origin;
  }
};

/// Renumbers steps so that ranks that share collectives use the same numbers, following the majority. If
/// ranks started counting at different steps, their numbers differ by a constant, which is subtracted. If no
/// constant gives all ends of a collective the same step number, they keep different ones.
void align_steps(std::vector<KinetoTrace>& traces);

/// Matches the communication of the traces and estimates their clocks.
///
/// Collectives are matched by process group and sequence number, messages by group, source, destination and
/// their order within a step. If a trace lacks this information (older versions of PyTorch), kernels of the
/// same name that overlap in time are matched by their ends. That requires clocks that differ by less than a
/// kernel's duration.
///
/// A collective ends on all its ranks at once, so a rank's clock offset is the median difference between the
/// ends of the exchanges that it shares with already aligned ranks, beginning with the first rank.
KinetoRanks compare_ranks(const std::vector<KinetoTrace>& traces);

}  // namespace dflop
