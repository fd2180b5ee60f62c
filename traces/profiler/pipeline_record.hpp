// A PipelineRecord holds what the ranks did in one step of a pipeline, while it is read from traces and
// before it is a timeline. The functions of this file fill it, one after the other.
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

/// A PipelineAct is what a rank does in one range: compute, an optimizer step, or a part of a reduction.
struct PipelineAct {
  const KinetoRange* range = nullptr;  ///< nothing of a wait for a reduction that no range says
  Op op = Op::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = -1;
  Nanoseconds called{0};    ///< when the range began on the host, on the common clock, as all times here
  Nanoseconds returned{0};  ///< and ended
  /// Of the kernels launched inside the range where a device was recorded, else of the range; later without
  /// what it waited for inside.
  Nanoseconds start{0};
  Nanoseconds end{0};
  std::vector<std::size_t> receives{};  ///< halves that it needs, in the order of their calls
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
  Nanoseconds called{0};   ///< by the host
  Nanoseconds start{0};    ///< of the call, or of the kernel
  Nanoseconds awaited{0};  ///< since when the rank may have waited for it: its range's begin, else `start`
  Nanoseconds end{0};      ///< of a receive: the data was there, at the latest
  bool is_awaited = false;
  bool is_kernel = false;  ///< its end is when the data came, whoever waited
  std::optional<Bytes> bytes{};
  std::optional<std::int32_t> global_peer{};
  std::optional<std::int32_t> group_peer{};  ///< rank in a process group
  std::optional<std::int32_t> message{};     ///< the number that its range gives it
  std::int64_t tag = 0;
  std::size_t event = 0;
  std::size_t act = 0;  ///< that made it, or needs it
  std::size_t other = kNoIndex;
};

/// A PipelineReduction is one rank's part in a sum over the dp ranks of a stage, or over all ranks that give
/// it the same number.
struct PipelineReduction {
  std::size_t rank = 0;
  std::int32_t stage = 0;
  Nanoseconds start{0};
  Nanoseconds end{0};
  bool overlaps = false;  ///< begun by an all_reduce_start
  bool end_known = true;  ///< else `end` is when somebody asked for it
  std::optional<Bytes> bytes{};
  std::vector<std::int32_t> participants{};  ///< global ranks; empty where the trace does not say
  std::optional<std::int32_t> message{};     ///< the number that its range gives it
  std::size_t event = 0;
  std::int32_t number = -1;  ///< of the sum, the same on all its ranks; -1: of one rank alone
};

/// A PipelineKernel is a kernel or copy of a step, with the range in which it was launched.
struct PipelineKernel {
  const KinetoActivity* activity = nullptr;
  const KinetoRange* range = nullptr;  ///< innermost; nothing outside all
};

struct PipelineInterval {
  Nanoseconds begin{0};
  Nanoseconds end{0};
};

/// A PipelineRank is what one rank does in a step.
struct PipelineRank {
  std::size_t trace = 0;
  bool device = false;  ///< kernels were recorded
  std::vector<const KinetoRange*> ranges{};
  std::vector<PipelineKernel> kernels{};
  std::vector<PipelineAct> acts{};
  /// The rank does nothing but wait here, as its ranges say it; of a device, its messages are under way.
  std::vector<PipelineInterval> waits{};
  std::vector<std::size_t> halves{};  ///< in the order of their calls
  Nanoseconds ahead{0};               ///< how far its clock is, by its messages, ahead of the first rank's

  /// Tells whether it waits for a message before it computes anything.
  bool receives_first() const { return !acts.front().receives.empty(); }
};

struct PipelineRecord {
  const std::vector<KinetoTrace>& traces;
  const KinetoRanks& clocks;
  std::int64_t number = 0;  ///< of the step
  std::vector<KinetoFinding>& findings;
  std::size_t before = 0;  ///< findings of other steps
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

  /// Adds a finding of the step at an event of a rank's trace, or of all of it.
  void add(KinetoFindingKind kind, const PipelineRank& rank, std::size_t event, const std::string& name,
           const std::string& text);
  void add(KinetoFindingKind kind, const PipelineRank& rank, const std::string& text);

  /// Returns the part of a trace's time that is the step: all of it without marks of steps.
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

/// Tells whether a collective of this name sums: all-reduces, and reduce-scatters where what is summed is
/// split.
inline bool sums(const std::string& name) {
  return name.find("reduce") != std::string::npos || name.find("Reduce") != std::string::npos;
}

/// Tells whether what a collective of this name brings is needed by what comes after it: all-gathers, as of
/// FSDP, and all-to-alls.
inline bool gathers(const std::string& name) {
  return name.find("gather") != std::string::npos || name.find("to_all") != std::string::npos ||
         name.find("toall") != std::string::npos;
}

/// Returns "forward stage=1 mb=0".
std::string name_of(const KinetoRange& range);

/// Reads ranges and kernels, and checks that every rank has each forward with its backward, once, and all
/// stages at the same time.
void read_acts(PipelineRecord& record);

/// Reads both ends of all messages, and finds for each the compute that made or needs it.
void read_messages(PipelineRecord& record);

/// Joins the ends of messages. @pre read_messages()
void join_messages(PipelineRecord& record);

/// Moves the clocks of ranks whose messages come before they are sent. @pre join_messages()
void align_clocks(PipelineRecord& record);

/// Sets the ends of receives to when the data came, counts known arrivals in `step`, and begins what waited
/// for data inside its range then. @pre align_clocks()
void set_arrivals(PipelineRecord& record, PipelineStep& step);

/// Reads the reductions of all ranks: those in ranges and, of calls and kernels that begin in a stage's last
/// backward, those beside compute. Their waits become acts where no range says them. @pre read_acts()
void read_reductions(PipelineRecord& record);

/// Joins reductions by their participants and order. @pre read_reductions()
void join_reductions(PipelineRecord& record);

/// Returns when each rank ends the step. @pre all of the above
std::vector<Nanoseconds> rank_ends(const PipelineRecord& record);

/// Returns the record as a timeline. Without `ends_before` all ranks begin together. Else a rank begins where
/// its own step before this one ended, by these times, and what it does until its first range counts to that,
/// unless it waits; the makespan is from the last rank's end before to the last rank's own. Where they are
/// empty nobody knows them: a rank begins then as early as what it does allows. @pre all of the above
Timeline pipeline_timeline(const PipelineRecord& record,
                           const std::vector<Nanoseconds>* ends_before = nullptr);

}  // namespace dflop
