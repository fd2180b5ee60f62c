// These checks find what is wrong or doubtful in PyTorch-profiler traces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"
#include "traces/profiler/stragglers.hpp"

namespace dflop {

/// A KinetoFindingKind is what may be wrong with a trace.
enum class KinetoFindingKind : std::uint8_t {
  acausal,             ///< an activity starts before the call that launched it
  overlap,             ///< two activities of one stream run at the same time
  missing_launch,      ///< an activity without the call that launched it
  missing_activity,    ///< a call that starts work, without the work
  empty_step,          ///< a step that launched nothing
  missing_collective,  ///< a collective or message that another rank of its group does not have
  unequal_collective,  ///< a collective whose ranks give it other types or sizes
  sequence_gap,        ///< sequence numbers of a process group that are left out
  unaligned_clocks,    ///< collectives end earlier on one rank than on another, or none tells
  truncated_profile,   ///< steps that the record cuts off or leaves out, or work outside all steps
  no_device_activity,  ///< a trace without kernels and copies
  straggler,           ///< a rank for which the others wait
  waiting,             ///< ranks wait for each other, and not for the same one in all steps
  // Of ranges of a pipeline (traces/profiler/pipeline.hpp):
  unread_range,        ///< a name that is meant as a range and is none
  overlapping_ranges,  ///< a range that begins before the one before it has ended
  repeated_range,      ///< one that is twice in a step
  missing_range,       ///< a forward without backward, a stage that no rank has
  missing_rank,        ///< fewer traces than ranks
  different_runs,      ///< ranks that do not run at the same time, or number the same steps differently
  unplaced_message,    ///< a message that belongs to no forward or backward
  unmatched_message,   ///< one whose other end is not found, or may be on several ranks
  unlike_plan,         ///< a step of other ranks, stages or messages than the plan that it is said to be of
  inconsistent_step,   ///< a step that takes another time when it is replayed as it was
  joint_ranges,        ///< ranks that meet inside their ranges of compute, where one waits for another
};
inline constexpr int kKinetoFindingKinds = 24;

std::string_view to_string(KinetoFindingKind kind);

/// Returns one line for the manual that says what the kind means.
std::string_view explanation(KinetoFindingKind kind);

/// Tells whether what-ifs of the record's steps may be wrong by such a finding: who waits for whom, and how
/// long a transfer takes, is not known of what is missing.
bool misleads_what_ifs(KinetoFindingKind kind);

/// A KinetoFinding is one thing that is wrong or doubtful, and where.
struct KinetoFinding {
  KinetoFindingKind kind = KinetoFindingKind::acausal;
  std::size_t event = 0;  ///< index in traceEvents of the file
  std::string place;      ///< "file: traceEvents[3] 'name'", or "file"
  std::string text;       ///< what is expected and what is found
};

/// Returns "file: traceEvents[3] 'name'".
std::string kineto_place(const KinetoTrace& trace, std::size_t event, const std::string& name);

/// Clocks that are at most this far apart are aligned: collectives end on all ranks within some ten
/// microseconds. Beyond that, collectives that are joined by their times may be joined wrongly.
inline constexpr Nanoseconds kAlignedClocks{50'000};

/// From this spread on, one offset does not align a clock: waits are wrong by as much.
inline constexpr Nanoseconds kMostClockSpread{500'000};

/// Returns what is found, stragglers apart: by trace, in a trace by kind, then in the order of time.
std::vector<KinetoFinding> check_kineto(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// Returns a finding for each straggler or, where there is none, for ranks that wait all the same.
std::vector<KinetoFinding> straggler_findings(const std::vector<KinetoTrace>& traces,
                                              const KinetoRanks& ranks,
                                              const std::vector<PipelineStep>& steps,
                                              const KinetoStragglers& stragglers);

}  // namespace dflop
