// These checks find errors and doubtful data in PyTorch-profiler traces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/profiler/kineto.hpp"
#include "traces/profiler/ranks.hpp"
#include "traces/profiler/stragglers.hpp"

namespace dflop {

/// A KinetoFindingKind is a kind of problem in a trace.
enum class KinetoFindingKind : std::uint8_t {
  acausal,             ///< an activity starts before the call that launched it
  overlap,             ///< two activities of one stream run at the same time
  missing_launch,      ///< an activity without its launch call
  missing_activity,    ///< a call that starts work, without that work
  empty_step,          ///< a step that launched nothing
  missing_collective,  ///< a collective or message that another rank of its group lacks
  unequal_collective,  ///< a collective whose types or sizes differ between ranks
  sequence_gap,        ///< sequence numbers that a process group lacks
  unaligned_clocks,    ///< collectives end earlier on one rank than on another, or clocks cannot be compared
  truncated_profile,   ///< steps that the record truncates or lacks, or work outside all steps
  no_device_activity,  ///< a trace without kernels and copies
  straggler,           ///< a rank that the others wait for
  waiting,             ///< ranks wait for each other, and not for the same one in all steps
  // Kinds for ranges of a pipeline (traces/profiler/pipeline.hpp):
  unread_range,        ///< a name that looks like a range but cannot be read
  overlapping_ranges,  ///< a range that begins before the previous one has ended
  repeated_range,      ///< a range that occurs twice in a step
  missing_range,       ///< a forward without its backward, or a stage that no rank has
  missing_rank,        ///< fewer traces than ranks
  different_runs,      ///< ranks that do not run at the same time, or number the same steps differently
  unplaced_message,    ///< a message that belongs to no forward or backward
  unmatched_message,   ///< a message whose other end is missing or ambiguous
  unlike_plan,         ///< a step whose ranks, stages or messages differ from its stated plan
  inconsistent_step,   ///< a step whose replayed and recorded times differ
  joint_ranges,        ///< ranks that meet inside their compute ranges, where one waits for another
  loose_json,          ///< values in unused fields that are not strict JSON
};
inline constexpr int kKinetoFindingKinds = 25;

std::string_view to_string(KinetoFindingKind kind);

/// Returns a one-line explanation of the kind for the manual.
std::string_view explanation(KinetoFindingKind kind);

/// Tells whether a finding of this kind can make what-ifs of the record's steps wrong. Missing data hide
/// which rank waits for which, and how long transfers take.
bool misleads_what_ifs(KinetoFindingKind kind);

/// A KinetoFinding is one error or doubtful datum, and its place.
struct KinetoFinding {
  KinetoFindingKind kind = KinetoFindingKind::acausal;
  std::size_t event = 0;  ///< index in traceEvents of the file
  std::string place;      ///< "file: traceEvents[3] 'name'", or "file"
  std::string text;       ///< what was expected and what was found
};

/// Returns an event's place for findings: "file: traceEvents[3] 'name'".
std::string kineto_place(const KinetoTrace& trace, std::size_t event, const std::string& name);

/// Clocks with at most this offset count as aligned: collectives end on all ranks within some tens of
/// microseconds. With larger offsets, collectives that are joined by their times may be joined wrongly.
inline constexpr Nanoseconds kAlignedClocks{50'000};

/// If a clock's spread (KinetoClock) exceeds this, a single offset cannot align the clock, and waits are
/// wrong by up to the spread.
inline constexpr Nanoseconds kMaxClockSpread{500'000};

/// Returns all findings except stragglers, ordered by trace, then by kind, then by time.
std::vector<KinetoFinding> check_kineto(const std::vector<KinetoTrace>& traces, const KinetoRanks& ranks);

/// Returns a finding for each straggler or, if there is none, one for ranks that wait for each other.
std::vector<KinetoFinding> straggler_findings(const std::vector<KinetoTrace>& traces,
                                              const KinetoRanks& ranks,
                                              const std::vector<PipelineStep>& steps,
                                              const KinetoStragglers& stragglers);

}  // namespace dflop
