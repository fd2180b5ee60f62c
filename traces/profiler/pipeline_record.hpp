// A PipelineRecord collects the ranks' activities in one step of a pipeline while traces are converted into a
// timeline. The functions of this file fill it, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/program.hpp"
#include "traces/profiler/check.hpp"
#include "traces/profiler/kineto.hpp"
#include "traces/profiler/pipeline.hpp"
#include "traces/profiler/ranks.hpp"

namespace dflop {

inline constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);

/// A PipelineAct is a rank's work in one range: compute, an optimizer step, or a part of a reduction.
struct PipelineAct {
  const KinetoRange* range = nullptr;  ///< null if this is a wait, without a range, for a reduction
  Op op = Op::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = -1;
  Nanoseconds called{0};    ///< when the range began on the host; all times here use the common clock
  Nanoseconds returned{0};  ///< when the range ended on the host
  /// Begin and end of the kernels that were launched inside the range or, if no device was recorded, of the
  /// range. Later functions remove waits inside the range.
  Nanoseconds start{0};
  Nanoseconds end{0};
  std::vector<std::size_t> receives{};  ///< indices of the halves of messages that it needs
  std::size_t reduction = kNoIndex;
};

/// A PipelineHalf is one end of a message.
struct PipelineHalf {
  std::size_t rank = 0;  ///< index into PipelineRecord::ranks
  bool is_send = false;
  bool forward = true;
  bool reshard = false;
  std::int32_t stage = -1;
  std::int32_t microbatch = -1;
  Nanoseconds called{0};   ///< time of the host's call
  Nanoseconds start{0};    ///< begin of the call, or of the kernel
  Nanoseconds awaited{0};  ///< the earliest time of a wait for it: the begin of its range, else `start`
  Nanoseconds end{0};      ///< for a receive: the latest possible arrival of the data
  bool is_awaited = false;
  bool is_kernel = false;  ///< `end` is the arrival of the data, even if nobody waited
  std::optional<Bytes> bytes{};
  std::optional<std::int32_t> global_peer{};
  std::optional<std::int32_t> group_peer{};  ///< rank in a process group
  std::optional<std::int32_t> message{};     ///< message number given by its range
  std::int64_t tag = 0;
  std::size_t event = 0;
  std::size_t act = 0;  ///< index of the act that made the sent data, or needs the received data
  std::size_t other = kNoIndex;
};

/// A PipelineReduction is one rank's part in a sum over the dp ranks of a stage, or over all ranks that use
/// the same number.
struct PipelineReduction {
  std::size_t rank = 0;
  std::int32_t stage = 0;
  Nanoseconds start{0};
  Nanoseconds end{0};
  bool overlaps = false;  ///< begun by an all_reduce_start
  bool end_known = true;  ///< if false, `end` is when the result was requested
  std::optional<Bytes> bytes{};
  std::vector<std::int32_t> participants{};  ///< global ranks; empty if the trace does not say
  std::optional<std::int32_t> message{};     ///< message number given by its range
  std::size_t event = 0;
  std::int32_t number = -1;  ///< number of the sum, equal on all its ranks; -1: a sum on a single rank
};

/// A PipelineKernel is a kernel or copy of a step, with the range that launched it.
struct PipelineKernel {
  const KinetoActivity* activity = nullptr;
  const KinetoRange* range = nullptr;  ///< innermost range; null outside all ranges
};

struct PipelineInterval {
  Nanoseconds begin{0};
  Nanoseconds end{0};
};

/// A PipelineRank holds one rank's activities in a step.
struct PipelineRank {
  std::size_t trace = 0;
  bool device = false;  ///< whether kernels were recorded
  std::vector<const KinetoRange*> ranges{};
  std::vector<PipelineKernel> kernels{};
  std::vector<PipelineAct> acts{};
  /// Intervals in which the rank only waits, according to its ranges. If a device was recorded: intervals in
  /// which its messages are in transit.
  std::vector<PipelineInterval> waits{};
  std::vector<std::size_t> halves{};  ///< in order of their calls
  Nanoseconds ahead{0};  ///< how far its clock is ahead of the first rank's, judged by its messages

  /// Tells whether the rank waits for a message before it computes anything.
  bool receives_first() const { return !acts.front().receives.empty(); }
};

struct PipelineRecord {
  const std::vector<KinetoTrace>& traces;
  const KinetoRanks& clocks;
  std::int64_t number = 0;  ///< the step's number
  std::vector<KinetoFinding>& findings;
  std::size_t before = 0;  ///< number of findings before this step
  std::vector<PipelineRank> ranks{};
  std::vector<PipelineHalf> halves{};
  std::vector<PipelineReduction> reductions{};
  std::int32_t stages = 0;
  std::set<std::vector<std::int32_t>> joint{};  ///< ranks of process groups that meet inside forwards

  bool is_sound() const { return findings.size() == before; }
  const KinetoTrace& trace_of(const PipelineRank& rank) const { return traces[rank.trace]; }
  Nanoseconds aligned(const PipelineRank& rank, Nanoseconds time) const {
    return clocks.aligned(traces, rank.trace, time) - rank.ahead;
  }

  /// Adds a finding about this step, at an event of a rank's trace or for the whole trace.
  void add(KinetoFindingKind kind, const PipelineRank& rank, std::size_t event, const std::string& name,
           const std::string& text);
  void add(KinetoFindingKind kind, const PipelineRank& rank, const std::string& text);

  /// Returns the time range of the step in a trace; if steps are not marked, the whole trace.
  PipelineInterval window_of(const KinetoTrace& trace) const;

  template <typename T>
  std::vector<const T*> in_step(const KinetoTrace& trace, const std::vector<T>& all) const {
    const PipelineInterval window = window_of(trace);
    std::vector<const T*> some;
    for (const T& one : all) {
      if (one.start >= window.begin && one.start < window.end) some.push_back(&one);
    }
    return some;
  }
};

/// Tells whether a collective of this name computes a sum: an all-reduce, or a reduce-scatter, which splits
/// the sum.
inline bool sums(const std::string& name) {
  return name.find("reduce") != std::string::npos || name.find("Reduce") != std::string::npos;
}

/// Tells whether later compute needs the result of a collective of this name: an all-gather, as in FSDP, or
/// an all-to-all.
inline bool gathers(const std::string& name) {
  return name.find("gather") != std::string::npos || name.find("to_all") != std::string::npos ||
         name.find("toall") != std::string::npos;
}

/// Returns a range's name for findings, such as "forward stage=1 mb=0".
std::string name_of(const KinetoRange& range);

/// Reads ranges and kernels. Checks that every rank has each forward and its backward exactly once, and that
/// all stages run at the same time.
void read_acts(PipelineRecord& record);

/// Reads both ends of all messages, and finds the compute that made or needs each message.
void read_messages(PipelineRecord& record);

/// Matches the two ends of each message. @pre read_messages()
void join_messages(PipelineRecord& record);

/// Shifts the clocks of ranks whose messages would arrive before they are sent. @pre join_messages()
void align_clocks(PipelineRecord& record);

/// Sets the ends of receives to the arrival of their data, counts known arrivals in `step`, and delays the
/// start of compute that waited for data inside its range. @pre align_clocks()
void set_arrivals(PipelineRecord& record, PipelineStep& step);

/// Reads the reductions of all ranks: those in ranges and, from calls and kernels that begin in a stage's
/// last backward, those that overlap with compute. Waits without a range become acts. @pre read_acts()
void read_reductions(PipelineRecord& record);

/// Matches reductions by their participants and order. @pre read_reductions()
void join_reductions(PipelineRecord& record);

/// Returns when each rank ends the step. @pre set_arrivals() and join_reductions()
std::vector<Nanoseconds> rank_ends(const PipelineRecord& record);

/// Returns the record as a timeline. If `ends_before` is null, all ranks begin together. Otherwise it gives
/// the end of each rank's previous step, where the rank then begins. The rank's time until its first range
/// counts toward that range, unless the rank waits. The makespan lasts from the last rank's end of the
/// previous step to the last rank's end of this step. If the vector is empty, the previous ends are unknown,
/// and a rank begins as early as its activities allow.
/// @pre set_arrivals() and join_reductions()
Timeline pipeline_timeline(const PipelineRecord& record,
                           const std::vector<Nanoseconds>* ends_before = nullptr);

}  // namespace dflop
