// dflop simulate writes these files, for plans and for raw pipelines.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/order/pipeline_order.hpp"
#include "core/timeline.hpp"
#include "experiments/studies/explain.hpp"
#include "experiments/studies/options.hpp"

namespace dflop {

/// SimulateOutputs are the paths of files; nothing where a file was not asked for.
struct SimulateOutputs {
  std::optional<std::string> timeline;
  std::optional<std::string> perfetto;
  std::optional<std::string> order;
  std::optional<std::string> page;

  /// Tells whether one of the files needs the spans of all iterations.
  bool need_spans() const { return timeline || perfetto; }

  /// Writes all files or none. `make_page` makes the page of an explanation; a run that stalled has none.
  /// @throws Error (output) naming the file
  void write(std::span<const Timeline> iterations, const PipelineOrder& steps,
             const std::optional<Explanation>& explanation,
             const std::function<std::string(const Explanation&)>& make_page) const;
};

/// Reads --out, --perfetto, --order-out and --html. @throws Error as read_output().
SimulateOutputs read_simulate_outputs(const Values& values);

/// Runs a pipeline that is described by its durations alone: simulates the file of --pipeline, writes the
/// outputs, prints as --format says, and returns the exit code.
/// @throws Error (usage) if --plan or --schedule is also given
int simulate_pipeline(const Values& values);

}  // namespace dflop
