// dflop simulate writes these files, for plans and for raw pipelines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/order/pipeline_order.hpp"
#include "core/timeline.hpp"
#include "experiments/studies/explain.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/studies/options.hpp"
#include "experiments/studies/stage_gpus.hpp"

namespace dflop {

/// SimulateOutputs are the paths of files; nothing where a file was not asked for.
struct SimulateOutputs {
  std::optional<std::string> timeline;
  std::optional<std::string> perfetto;
  std::optional<std::string> order;
  std::optional<std::string> page;
  std::optional<std::string> program;
  std::optional<std::string> picture;  ///< of the first iteration
  Provenance made_by;                  ///< of the timeline and the page

  std::string program_text = {};  ///< of the program's file

  /// Tells whether one of the files needs the spans of all iterations.
  bool need_spans() const { return timeline || perfetto || picture; }

  /// Writes all files or none; a run that stalled has no explanation and no page. The page has the title,
  /// the command, the summary, the timeline with its critical path, what the iteration would gain, and the
  /// memory of its fullest rank, with what is usable on the GPUs of its stage where these are given; `part`
  /// is HTML that stands before the memory.
  /// @throws Error (output) naming the file
  void write(std::span<const Timeline> iterations, const PipelineOrder& steps,
             const std::optional<Explanation>& explanation, const std::string& title, const Table& summary,
             const StageGpus* gpus = nullptr, const std::string& part = {}) const;
};

/// Files have at most so many spans of all iterations: the trace of as many takes about 2.5 GB to make.
inline constexpr std::int64_t kMostSpans = std::int64_t{1} << 22;

/// Refuses files of more spans, before they are simulated. @throws Error (input)
void require_few_spans(const SimulateOutputs& outputs, std::int64_t spans);

/// Reads --out, --perfetto, --order-out, --html, --program-out and --picture. @throws Error as read_output().
SimulateOutputs read_simulate_outputs(const Values& values);

/// Runs a pipeline that is described by its durations alone: simulates the file of --pipeline, writes the
/// outputs, prints as --format says, and returns the exit code.
/// @throws Error (usage) if --plan or --schedule is also given
int simulate_pipeline(const Values& values);

}  // namespace dflop
