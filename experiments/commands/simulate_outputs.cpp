#include "experiments/commands/simulate_outputs.hpp"

#include "traces/files/order.hpp"
#include "traces/files/perfetto.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/output_file.hpp"

namespace dflop {

namespace po = boost::program_options;

void add_simulate_outputs(Options& options) {
  options.add_options()  //
      ("order-out", po::value<std::string>()->value_name("FILE"),
       "write the steps, of the first iteration, in the form of --order")  //
      ("out", po::value<std::string>()->value_name("FILE"),
       "write the timeline of all iterations (.json, .json.gz)")  //
      ("perfetto", po::value<std::string>()->value_name("FILE"),
       "write a trace of all iterations for ui.perfetto.dev (.json, .json.gz)");
}

SimulateOutputs read_simulate_outputs(const Values& values) {
  return {read_output(values, "out"), read_output(values, "perfetto"), read_output(values, "order-out"),
          read_output(values, "html")};
}

void SimulateOutputs::write(std::span<const Timeline> iterations, const PipelineOrder& steps,
                            const std::optional<Explanation>& explanation,
                            const std::function<std::string(const Explanation&)>& make_page) const {
  StagedOutputs files;
  if (order) files.add(*order, to_json(steps));
  if (timeline) files.add(*timeline, to_json(TimelineFile{{iterations.begin(), iterations.end()}}));
  if (perfetto) {
    files.add(*perfetto, to_perfetto(iterations, kMostTraceEvents, path_slices(explanation)));
  }
  if (page && explanation) files.add(*page, make_page(*explanation));
  files.commit();
}

}  // namespace dflop
