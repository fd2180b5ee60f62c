// A RecordedProgram is the Program whose run a Timeline shows, and what its parts took.
#pragma once

#include <string>

#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/timeline.hpp"

namespace dflop {

/// A RecordedProgram is a program with the costs that its run shows.
struct RecordedProgram : PricedProgram {
  /// This says whether costs.activation and costs.workspace are what the recording shows. Else they are zero,
  /// because it has no memory points or they do not fit its instructions.
  bool memory = false;
};

/// Rebuilds a Program from the spans of its run. Simulating it gives the recording again: the same makespan,
/// spans and usage, where the recording is a simulator's. Of other recordings it keeps the durations and the
/// order; time that no span covers is lost.
///
/// Instructions are in the order of their positions. A message takes as long as its send's span, a collective
/// from its latest start to its latest end over all participants; so contention and pauses are in the
/// durations (a pause counts as busy). Collective::ready is the latest part that lets the collective start
/// when it did, as nothing shows how much earlier a group had entered one that had to wait. port_bytes of a
/// reshard are what the busier end moves for one microbatch between the same stages, as in lower(). Stages
/// and works of unknown shape are empty ones.
///
/// `file` and `iteration` are the recording's place for errors.
/// @throws Error (input) naming key and row: no spans, a run that stalled, positions that are unknown, twice
/// or with holes, negative times, messages without one of their ends, ends or participants that contradict
/// each other, or a program that verify() refuses.
RecordedProgram recorded_program(const Timeline& timeline, const std::string& file = "timeline",
                                 int iteration = 0);

}  // namespace dflop
