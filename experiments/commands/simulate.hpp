// This file writes the output files of 'dflop simulate', and simulates pipelines that are described only by
// durations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/order/pipeline_order.hpp"
#include "core/timeline.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/cli/table.hpp"
#include "experiments/studies/explain.hpp"
#include "experiments/studies/what_if/stage_gpus.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A SimulatedRun is everything that the output files show of a run.
struct SimulatedRun {
  std::span<const Timeline> iterations;
  const PipelineOrder& steps;
  const std::optional<Explanation>& explanation;
  std::string title;  ///< title of the page
  Table summary;
  const StageGpus* gpus = nullptr;  ///< the GPUs whose usable memory the page shows
  std::string part = {};            ///< HTML that the page shows above the memory
};

/// SimulateOutputs hold the paths of output files. Paths of files that were not requested are empty.
struct SimulateOutputs {
  std::optional<std::string> timeline;
  std::optional<std::string> perfetto;
  std::optional<std::string> order;
  std::optional<std::string> page;
  std::optional<std::string> program;
  std::optional<std::string> picture;  ///< picture of the first iteration
  Provenance made_by;                  ///< provenance in the timeline and the page

  std::string program_text = {};  ///< content of the program file

  /// Returns whether one of the files needs the spans of all iterations.
  bool need_spans() const { return timeline || perfetto || picture; }

  /// Writes all files or none. A run that stalled has no explanation and no page. The page has the title, the
  /// command, the summary, the timeline with its critical path, the possible gains of the iteration, and the
  /// memory of its fullest rank.
  /// @throws Error (output) naming the file
  void write(const SimulatedRun& run) const;
};

/// The max total number of spans in output files. A trace with this many spans needs about 2.5 GB of memory.
inline constexpr std::int64_t kMaxSpans = std::int64_t{1} << 22;

/// Before a simulation, checks that its outputs would not have more than kMaxSpans spans. @throws Error
/// (input) if they would
void require_few_spans(const SimulateOutputs& outputs, std::int64_t spans);

/// Reads --out, --perfetto, --order-out, --html, --program-out and --picture. @throws what read_output()
/// throws
SimulateOutputs read_simulate_outputs(const Values& values);

/// Simulates the pipeline in the file of --pipeline, which has only durations. Writes the outputs, prints the
/// result in --format, and returns the exit code.
/// @throws Error (usage) if --plan or --schedule is also given
int simulate_pipeline(const Values& values);

}  // namespace dflop
