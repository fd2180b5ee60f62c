#include "experiments/commands/simulate.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/program/lowering.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/explain_options.hpp"
#include "experiments/studies/explain.hpp"
#include "experiments/studies/what_if/what_if.hpp"
#include "experiments/trust/assumptions.hpp"
#include "sim/engine.hpp"
#include "traces/files/pipeline.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Returns the summary of a run; `schedule` names its order.
Table summary_table(const RawPipeline& pipeline, const std::string& schedule, const Timeline& timeline) {
  return {{{"schedule", "schedule"},
           {"microbatches", "microbatches"},
           {"makespan_s", "makespan s", 6},
           {"idle_fraction", "idle %", 1, 100}},
          {{schedule, pipeline.shape.microbatches, timeline.makespan, idle_fraction(timeline)}}};
}

Table stage_table(const Timeline& timeline) {
  Table table;
  table.columns = {
      {"stage", "stage"},      {"busy_s", "busy s", 6},         {"bubble_s", "bubble s", 6},
      {"wait_s", "wait s", 6}, {"transfer_s", "transfer s", 6}, {"peak_bytes", "peak GiB", 3, 0x1p-30}};
  for (const GroupUsage& group : timeline.groups) {
    table.rows.push_back(
        {group.first_rank, group.busy, group.bubble, group.wait, group.transfer, group.peak_memory});
  }
  return table;
}

void print_pipeline(Format format, const Table& summary, const Timeline& timeline,
                    const std::optional<Table>& distribution, const Explanation* explanation) {
  const Table stages = stage_table(timeline);
  const auto text = [&] {
    std::string all = terminal_text(summary) + section("by stage", stages);
    if (peak_memory(timeline) > Bytes{})
      all += section("the fullest rank at its peak", fullest_rank_table(std::span(&timeline, 1)));
    all += section("makespans of all runs (above: the first)", distribution);
    if (explanation != nullptr) all += explanation_text(*explanation);
    return all;
  };
  const auto json = [&] {
    nlohmann::ordered_json all = json_of(summary)[0];
    if (distribution) {
      all["run"] = 0;  // these figures are from run 0, as the table says
      all["distribution"] = json_of(*distribution)[0];
    }
    Table with_memory = stages;
    add_memory_columns(with_memory, timeline);
    all["stages"] = json_of(with_memory);
    if (explanation != nullptr) all["explain"] = explanation_json(*explanation);
    return json_text(all);
  };
  print_result(format, text, json, distribution ? *distribution : stages);
}

/// Puts a pipeline under a what-if. A pipeline with a shared link has contention unless another network is
/// requested. The costs of `priced` go to the result.
ConditionedProgram condition(const WhatIf& what_if, const RawPipeline& pipeline, PricedProgram& priced) {
  const NetworkModel usual =
      pipeline.shared_link ? NetworkModel::contention : NetworkModel::latency_bandwidth;
  const NetworkMaker make_network = [&](const std::vector<double>& bandwidth_factor) {
    const RawLink path = *pipeline.path();
    return shared_link(priced.program, to_nanoseconds(path.latency), pipeline.shared_link->bytes_per_second,
                       path.bytes_per_second, bandwidth_factor);
  };
  return {what_if, priced.program, std::move(priced.costs), what_if.network.value_or(usual), make_network};
}

}  // namespace

int simulate_pipeline(const Values& values) {
  for (const char* other : {"plan", "schedule"}) {
    if (values.count(other) > 0)
      refuse_option("pipeline", fmt::format("cannot be combined with '--{}'", other));
  }
  const std::string of_plans = "applies only to plans, found with '--pipeline'";
  refuse_given(values, {"stage-gpu", "profile", "program-out"}, of_plans);
  refuse_given(values, cluster_condition_names(), of_plans);
  const Format format = read_format(values);
  require_room_for_explanation(values, format);
  const SimulateOutputs outputs = read_simulate_outputs(values);
  const WhatIf what_if = read_what_if(values);
  const auto path = values["pipeline"].as<std::string>();
  const RawPipeline pipeline = parse_pipeline(read_text_file(path), path);
  if (what_if.network == NetworkModel::contention && !pipeline.shared_link) {
    refuse_option("network", fmt::format("'contention' needs key 'shared_link' in {}, found none", path));
  }
  const auto order_path = read_text(values, "order");
  const PipelineOrder order = order_path
                                  ? parse_order(read_text_file(*order_path), *order_path, pipeline.shape)
                                  : pipeline_order(pipeline);
  if (!order_path) {
    const PipelineShape& shape = pipeline.shape;
    const std::string another = as_another_order(shape.kind, shape.ranks, shape.microbatches);
    if (!another.empty()) say("dflop: note: {}\n", another);
  }
  PricedProgram priced = make_program(pipeline, order, path);
  verify(priced.program);
  require_few_spans(outputs, std::ssize(priced.program.instructions));
  const Detail detail = outputs.need_spans() ? Detail::spans : Detail::usage;
  const ConditionedProgram conditioned = condition(what_if, pipeline, priced);
  const Timeline timeline = conditioned.run(0, detail);
  std::optional<Explanation> explanation;
  if (wants_explanation(values) && timeline.stalls.empty()) {
    explanation = explain(priced.program, conditioned.costs(0), conditioned.conditions());
  }
  const std::string schedule = order_path ? *order_path : std::string(to_string(pipeline.shape.kind));
  const Table summary = summary_table(pipeline, schedule, timeline);
  outputs.write({std::span(&timeline, 1), order, explanation, "Pipeline " + path, summary});
  if (!timeline.stalls.empty()) return report_stall(format, timeline, "the pipeline", "stages");
  note_nothing_failed(values, {&timeline, 1});
  std::optional<Table> distribution;
  if (what_if.repeat > 1) {
    distribution = distribution_table(run_all(
        what_if.repeat, [&](std::size_t i) { return time_to_end(conditioned.run(i, Detail::usage)); }));
  }
  print_pipeline(format, summary, timeline, distribution, printed(values, explanation));
  return 0;
}

}  // namespace dflop
