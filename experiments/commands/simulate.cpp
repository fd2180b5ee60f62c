// dflop simulate simulates a plan with its schedule, or a pipeline without a model.
#include <fmt/format.h>

#include <list>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "experiments/charts/charts.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/picture.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/commands/simulate.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/explain_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/options/stage_gpu_option.hpp"
#include "experiments/studies/evaluation.hpp"
#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/studies/what_if/reductions.hpp"
#include "experiments/studies/what_if/sharing.hpp"
#include "experiments/studies/what_if/what_if.hpp"
#include "experiments/trust/assumptions.hpp"
#include "experiments/trust/overhead.hpp"
#include "experiments/trust/roles.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/program.hpp"
#include "traces/files/schedule.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

Table summary_table(const Evaluation& result) {
  return {{{"iteration_s_mean", "s/iteration", 4},
           {"iteration_s_p95", "p95 s", 4},
           {"samples_per_s", "samples/s", 2},
           {"llm_tokens_per_s", "LLM tokens/s", 0},
           {"mfu", "MFU %", 1, 100},
           {"idle_fraction", "idle %", 1, 100},
           {"peak_memory_bytes", "peak GiB", 1, 0x1p-30}},
          {{result.mean, result.p95, result.samples_per_s, result.llm_tokens_per_s, result.mfu,
            result.idle_fraction, result.peak_memory}}};
}

/// Shows the usage of every group in the first iteration.
Table group_table(const Timeline& timeline) {
  Table table;
  table.columns = {{"stage", "stage"},
                   {"dp_rank", "dp"},
                   {"first_rank", "rank"},
                   {"busy_s", "busy s", 4},
                   {"bubble_s", "bubble s", 4},
                   {"wait_s", "wait s", 4},
                   {"transfer_s", "transfer s", 4},
                   {"peak_memory_bytes", "peak GiB", 1, 0x1p-30}};
  for (const GroupUsage& group : timeline.groups) {
    table.rows.push_back({timeline.stages[group.stage], group.dp_rank, group.first_rank, group.busy,
                          group.bubble, group.wait, group.transfer, group.peak_memory});
  }
  return table;
}

/// A PlanExplanation explains the slowest iteration of a plan, including its gradient reductions.
struct PlanExplanation : Explanation {
  ReductionExplanation reductions;
  Table sharing;  ///< of shared GPUs; no rows if none are shared
};

/// RunTables are optional tables that are printed in addition to the evaluation of a run.
struct RunTables {
  std::optional<Table> distribution;  ///< over repeated runs
  std::optional<Table> roles;         ///< if each GPU took the role in turn
};

void print_evaluation(Format format, const Evaluation& result, const RunTables& tables,
                      const PlanExplanation* explanation, const AssumptionBlock& assumptions) {
  const std::optional<Table>& distribution = tables.distribution;
  const Table summary = summary_table(result);
  const Table groups = group_table(result.timelines.front());
  const Table fullest = fullest_rank_table(result.timelines);
  const auto text = [&] {
    std::string all = terminal_text(summary) + section("each GPU in turn", tables.roles) +
                      section("first iteration, by tp group", groups) +
                      section("the fullest rank at its peak", fullest) +
                      section("iteration times of all runs (above: their means)", distribution);
    if (explanation != nullptr)
      all += explanation_text(*explanation) +
             reductions_text("gradient reductions", explanation->reductions) +
             sharing_text(explanation->sharing);
    return all + assumptions.terminal_text();
  };
  const auto json = [&] {
    nlohmann::ordered_json all = json_of(summary)[0];
    for (const Timeline& timeline : result.timelines)
      all["iterations_s"].push_back(Seconds(timeline.makespan).count());
    if (distribution) all["distribution"] = json_of(*distribution)[0];
    if (tables.roles) all["roles"] = json_of(*tables.roles)[0];
    all["fullest_rank"] = json_of(fullest)[0];
    Table with_memory = groups;
    add_memory_columns(with_memory, result.timelines.front());
    all["groups"] = json_of(with_memory);
    if (explanation != nullptr) {
      all["explain"] = explanation_json(*explanation);
      all["explain"]["reductions"] = json_of(explanation->reductions.by_stage);
      all["explain"]["idle_bandwidths"] = explanation->reductions.idle_bandwidths;
      if (!explanation->sharing.rows.empty()) all["explain"]["sharing"] = json_of(explanation->sharing);
    }
    all["assumptions"] = assumptions.json();
    return json_text(all);
  };
  print_result(format, text, json, distribution ? *distribution : summary);
  if (format != Format::table && format != Format::json) say("{}", assumptions.text());
}

/// A UserOrder is the user's order for all iterations, if any.
using UserOrder = std::optional<PipelineOrder>;

Iteration make(const PlanFiles& files, std::size_t k, const UserOrder& order) {
  const ScheduledIteration& iteration = files.schedule.iterations[k];
  return make_iteration(files.target.problem(), files.plan, iteration.samples, iteration.assignment, order);
}

/// Explains the slowest iteration.
PlanExplanation explain_slowest(const WhatIfExecutor& executor, const PlanFiles& files,
                                const UserOrder& order, const Evaluation& result) {
  const std::size_t slowest = slowest_iteration(result.timelines);
  const Iteration iteration = make(files, slowest, order);
  const ConditionedProgram conditioned = executor.condition(iteration);
  const ProgramCosts costs = conditioned.costs(slowest);
  PlanExplanation explanation{explain(iteration.program, costs, conditioned.conditions()),
                              explain_reductions(iteration.program, files.target.cluster),
                              {}};
  explanation.sharing =
      explain_sharing(iteration.program, costs, explanation.timeline, conditioned.conditions());
  explanation.iteration = slowest;
  explanation.iterations = files.schedule.iterations.size();
  return explanation;
}

/// Runs all iterations `runs` times, sets the evaluation to the means over all runs, and returns the
/// distribution of iteration times.
Table repeat(const WhatIfExecutor& executor, const PlanFiles& files, const UserOrder& order, int runs,
             Evaluation& evaluation) {
  std::list<Iteration> iterations;  // a list, as its elements keep their addresses
  std::vector<std::unique_ptr<ConditionedProgram>> conditioned;
  for (std::size_t k = 0; k < files.schedule.iterations.size(); ++k) {
    iterations.push_back(make(files, k, order));
    conditioned.emplace_back(new ConditionedProgram(executor.condition(iterations.back())));
  }
  std::vector<double> idle(runs * iterations.size());
  const std::vector<Seconds> times = run_all(idle.size(), [&](std::size_t i) {
    const Timeline timeline = conditioned[i % conditioned.size()]->run(i, Detail::usage);
    idle[i] = idle_fraction(timeline);
    return time_to_end(timeline);
  });
  take_means(evaluation, times, idle);
  return distribution_table(times);
}

std::string text_block(const Table& table) {
  return fmt::format("<div class='scroll'><pre>{}</pre></div>\n", html_escaped(to_text(table)));
}

std::string memory_part(const Timeline& timeline, const StageGpus* gpus) {
  const std::size_t group = fullest_rank(std::span(&timeline, 1)).group;
  const GroupUsage& usage = timeline.groups[group];
  const std::optional<Bytes> limit =
      gpus != nullptr ? std::optional(gpus->usable_memory(usage)) : std::nullopt;
  return fmt::format(
      "<h2>Memory of its fullest rank: {}, dp {}, rank {}</h2>\n<div class='scroll'>{}</div>\n",
      html_escaped(timeline.stages[usage.stage]), usage.dp_rank, usage.first_rank,
      memory_svg(timeline, group, limit));
}

std::string reductions_part(const ReductionExplanation& reductions) {
  if (reductions.by_stage.rows.empty()) return "";
  std::string part = "<h2>What gradient reductions wait for, with nothing else on the links</h2>\n";
  part += text_block(reductions.by_stage);
  for (const std::string& line : reductions.idle_bandwidths)
    part += fmt::format("<p>{}</p>\n", html_escaped(line));
  return part;
}

std::string sharing_part(const Table& sharing) {
  return sharing.rows.empty() ? "" : "<h2>Sharing of GPUs</h2>\n" + text_block(sharing);
}

std::string explanation_page(const std::string& title, const Provenance& made_by, const Table& summary,
                             const Explanation& explanation, const std::string& part, const StageGpus* gpus) {
  const Timeline& timeline = explanation.timeline;
  std::string body = html_lines(provenance_lines(made_by)) + text_block(summary);
  body += fmt::format(
      "<h2>Critical path of {}, {:.4f} s</h2>\n<div class='scroll'>{}</div>\n<div class='scroll'>{}</div>\n",
      html_escaped(explained_iteration(explanation)), Seconds(timeline.makespan).count(),
      timeline_legend_svg(true), timeline_svg(timeline, timeline.makespan, explanation.path));
  body += "<h2>The path by stage</h2>\n" + text_block(path_table(explanation));
  body += "<h2>What the iteration would gain</h2>\n" + text_block(gains_table(explanation));
  for (const std::string& line : small_gains(explanation))
    body += fmt::format("<p>{}</p>\n", html_escaped(line));
  body += part;
  if (peak_memory(timeline) > Bytes{}) body += memory_part(timeline, gpus);
  return html_page(title, body);
}

std::string program_text(const PlanFiles& files, const UserOrder& order, const Provenance& made_by) {
  std::vector<nlohmann::ordered_json> iterations;
  for (std::size_t k = 0; k < files.schedule.iterations.size(); ++k) {
    Iteration iteration = make(files, k, order);
    iteration.number = k;
    iterations.push_back(program_json(iteration, files.target.model));
  }
  return program_file(iterations, made_by);
}

AssumptionBlock simulate_assumptions(const PlanFiles& files) {
  AssumptionBlock block;
  const std::optional<Provenance>& made_by = files.schedule.made_by;
  if (made_by && made_by->data) assume_data(block, *made_by->data, 0);
  assume_preset(block, files.plan.cluster, files.target.profile);
  assume_links(block, files.plan.cluster, files.target.cluster);
  assume_heads(block, files.plan, files.target.model);
  assume_layouts(block, {&files.plan});
  assume_orders(block, {&files.plan});
  const bool asks = files.plan.respect_memory;
  block.add(
      "memory",
      fmt::format("of these batches only: 'plan' and 'compare' estimate it for further batches; the plan "
                  "{} microbatches that stay within memory",
                  asks ? "asks for" : "does not ask for"),
      {{"respect_memory", asks}});
  assume_seed(block, files.schedule.seed, files.schedule.iterations.size(), files.plan.gbs, 0,
              "other seeds have other batches (schedule --seed)");
  assume_time(block, find_cluster_notes(files.plan.cluster), {}, false);
  return block;
}

/// Evaluates under conditions. If they are for a role, runs each GPU in that role in turn, returns the worst
/// run, and sets `what_if` to its GPU.
Evaluation evaluate_under(WhatIf& what_if, const PlanFiles& files, int traced,
                          const WhatIfExecutor::Reprice& reprice, const UserOrder& order,
                          std::optional<Table>& roles) {
  if (!what_if.role) {
    return evaluate(files.plan, files.target, files.schedule, traced,
                    WhatIfExecutor(what_if, files.target.cluster, reprice), order);
  }
  const RoleRuns runs =
      run_roles(files.plan, files.target, files.schedule, what_if, {reprice, traced, order});
  what_if.gpu = runs.worst_gpu;
  roles = role_table(runs);
  return runs.result();
}

/// Notes if iterations have other steps than the first one: --order would run the same order in all of them.
void note_other_orders(const PlanFiles& files, const PipelineOrder& first, const std::string& file) {
  std::size_t others = 0;
  for (std::size_t k = 1; k < files.schedule.iterations.size(); ++k)
    others += make(files, k, std::nullopt).order.ranks == first.ranks ? 0 : 1;
  if (others == 0) return;
  say("dflop: note: {} has the steps of the first iteration; {} orders each iteration by its own batch, and "
      "{} of the {} iterations have other steps: --order with this file gives a different run\n",
      printable(file), to_string(files.plan.order), others, files.schedule.iterations.size());
}

/// Checks that a profile covers the programs of all iterations.
void require_reach(const NamedProfile& profile, const PlanFiles& files, const UserOrder& order,
                   bool extrapolate) {
  const ProfiledCostModel cost(profile.tables);
  ProfileReach farthest;
  for (std::size_t k = 0; k < files.schedule.iterations.size(); ++k) {
    farthest.extend(cost.reach(make(files, k, order).program));
  }
  require_reach(cost, farthest, profile.path, extrapolate);
}

int simulate_plan(const Values& values) {
  for (const char* needed : {"plan", "schedule"}) {
    if (values.count(needed) == 0)
      refuse_option(needed, "required without '--pipeline'; see 'dflop simulate --help'");
  }
  const Format format = read_format(values);
  require_room_for_explanation(values, format);
  SimulateOutputs outputs = read_simulate_outputs(values);
  const std::optional<NamedProfile> profile = read_profile(values);
  if (profile)
    refuse_given(values, {"stage-gpu"},
                 "cannot be combined with '--profile', whose measured times replace the GPU's");
  WhatIf what_if;  // set by the callback, after the files were checked
  const PlanFiles files(
      values["plan"].as<std::string>(), values["schedule"].as<std::string>(),
      [&](ClusterSpec& cluster) {
        what_if = read_what_if(values);
        if (profile && what_if.network != NetworkModel::contention)
          refuse_given(values, cluster_condition_names(), kMeasuredLinks);
        what_if.apply(cluster);
      },
      profile ? &*profile : nullptr);
  const auto& plan = files.plan;
  const auto& schedule = files.schedule;
  const auto& target = files.target;
  require_together(values, values["schedule"].as<std::string>(), schedule.made_by,
                   values["plan"].as<std::string>(), files.plan_made_by);
  note_trained(plan.trained, target.model);
  if (!profile) what_if.model = &target.model;
  outputs.made_by = made_here(values, files);
  if (plan.layout == Layout::shared)
    refuse_given(values, {"stage-gpu"},
                 "needs a plan whose stages have their own GPUs, but stages of "
                 "this plan share GPUs");
  const StageGpus gpus(read_stage_gpus(values, target.cluster, plan_stages(plan, target.model).size()),
                       target.model, target.cluster);
  const auto reprice = [&](const Iteration& iteration, ProgramCosts& costs) {
    gpus.reprice(iteration, costs);
  };
  const int traced = outputs.need_spans() ? static_cast<int>(schedule.iterations.size()) : 0;
  UserOrder order;
  if (const auto path = read_text(values, "order")) {
    order = parse_order(read_text_file(*path), *path, plan_shape(plan));
  }
  if (traced > 0) {
    const auto instructions = std::ssize(make(files, 0, order).program.instructions);
    require_few_spans(outputs, instructions * std::ssize(schedule.iterations));
  }
  if (profile) require_reach(*profile, files, order, read_extrapolate(values));
  RunTables tables;
  Evaluation result = evaluate_under(what_if, files, traced, reprice, order, tables.roles);
  const WhatIfExecutor executor(what_if, target.cluster, reprice);
  result.mfu *= target.cluster.peak_flop_per_s() / gpus.peak_flop_per_s(result.timelines.front());
  const bool stalled = !result.timelines.back().stalls.empty();
  if (what_if.repeat > 1 && !stalled)
    tables.distribution = repeat(executor, files, order, what_if.repeat, result);
  std::optional<PlanExplanation> explanation;
  if (wants_explanation(values) && !stalled) {
    explanation = explain_slowest(executor, files, order, result);
  }
  if (outputs.program) outputs.program_text = program_text(files, order, outputs.made_by);
  const AssumptionBlock assumptions = simulate_assumptions(files);
  outputs.write(
      {result.timelines, result.order, explanation,
       fmt::format("{} on {}: {}", plan.model, plan.cluster, describe(plan)), summary_table(result), &gpus,
       (explanation ? reductions_part(explanation->reductions) + sharing_part(explanation->sharing) : "") +
           assumptions.html()});
  if (outputs.order && !order && reads_tables(plan.order))
    note_other_orders(files, result.order, *outputs.order);
  if (stalled) {
    const std::string iteration = fmt::format("iteration {}", result.timelines.size() - 1);
    return report_stall(format, result.timelines.back(), iteration, "tp groups");
  }
  note_nothing_failed(values, result.timelines);
  print_evaluation(format, result, tables, values["explain"].as<bool>() ? &*explanation : nullptr,
                   assumptions);
  if (const auto problem = gpus.empty() ? out_of_memory(result.timelines, target.cluster)
                                        : gpus.out_of_memory(result.timelines)) {
    say("dflop: infeasible: {}\n", *problem);
    return 3;
  }
  return 0;
}

int run_simulate(const Values& values) {
  return values.count("pipeline") > 0 ? simulate_pipeline(values) : simulate_plan(values);
}

}  // namespace

void require_few_spans(const SimulateOutputs& outputs, std::int64_t spans) {
  if (!outputs.need_spans() || spans <= kMaxSpans) return;
  const auto& file = outputs.perfetto   ? outputs.perfetto
                     : outputs.timeline ? outputs.timeline
                                        : outputs.picture;
  refuse_input(
      *file,
      "would have {} spans of instructions; --perfetto, --out and --picture take at most {}: simulate fewer "
      "stages, microbatches or iterations, or leave the file out",
      spans, kMaxSpans);
}

SimulateOutputs read_simulate_outputs(const Values& values) {
  return {read_output(values, "out"),
          read_output(values, "perfetto"),
          read_output(values, "order-out"),
          read_output(values, "html"),
          read_output(values, "program-out"),
          values.count("picture") > 0 ? std::optional(read_picture_output(values, "picture")) : std::nullopt,
          made_here(values),
          ""};
}

void SimulateOutputs::write(const SimulatedRun& run) const {
  const std::span<const Timeline> iterations = run.iterations;
  StagedOutputs files;
  if (order) files.add(*order, to_json(run.steps));
  if (program) files.add(*program, program_text);
  if (timeline) files.add(*timeline, to_json(TimelineFile{{iterations.begin(), iterations.end()}, made_by}));
  if (perfetto) {
    files.add(*perfetto, to_perfetto(iterations, kMaxTraceEvents, path_slices(run.explanation)));
  }
  if (picture) files.add(*picture, as_picture(timeline_picture_svg(iterations.front()), *picture));
  if (page && run.explanation)
    files.add(*page, explanation_page(run.title, made_by, run.summary, *run.explanation, run.part, run.gpus));
  files.commit();
}

Command simulate_command() {
  Command command{
      .name = "simulate",
      .task = Task::explain,
      .summary = "simulate a plan and its schedule, or a raw pipeline",
      .description =
          R"(Prints iteration time, throughput, model FLOP utilization (MFU), idle fraction and peak memory,
and how each tp group spent the first iteration: busy + bubble + wait = iteration time; wait is idle time
while the awaited message is in flight; transfer may overlap busy. Then it prints the memory of the fullest
rank of all iterations at its peak. Exit code 3 if memory is not enough or, with --fail, the run does not
finish; the result is then a table of the stalled ranks.

With --explain it also prints, for the slowest iteration:
  - the critical path: the chain of compute, messages and collectives that determines the iteration time, in %
    of it by stage; a --perfetto trace then has it as a separate track
  - what the iteration would gain if a part took no time or compute were even, each simulated again
  - for a plan, what limits each stage's gradient reductions, and which bandwidths would not speed them up

--slow gpu=worst:F slows the GPU that hurts most, and gpu=each:F each GPU in turn: unlike rank numbers, these
mean the same in every plan. --fail gpu=worst:T fails the GPU that hurts most. The result has mean and worst; the
other output is for the worst GPU.

With --pipeline it runs a pipeline without a model, described by durations. docs/own-files.md describes this
file, and the file of steps that --order reads and --order-out writes.)",
      .example =
          "dflop simulate --plan plan.json --schedule schedule.json --out timeline.json --perfetto "
          "trace.json.gz",
      .run = run_simulate,
  };
  add_plan_option(command.options, text("FILE"));
  add_schedule_option(command.options, text("FILE"));
  command.options.add({
      {"pipeline", text("FILE").common(), "simulate a raw pipeline instead of a plan and its schedule"},
  });
  add_order_file_option(command.options);
  command.options.add(
      OptionGroup::output,
      {
          {"out", text("FILE").common(), "write the timeline of all iterations (.json, .json.gz)"},
          {"picture", text("FILE").common(),
           "draw the timeline of the first iteration as SVG, PNG or PDF, by file extension"},
      });
  add_perfetto_option(command.options);
  command.options.add(
      OptionGroup::output,
      {
          {"order-out", text("FILE"),
           "write the steps of the first iteration in the format of --order; a note says if later iterations "
           "have different steps"},
          {"program-out", text("FILE"),
           "for other executors: write the programs of all iterations, with the rows that each message "
           "carries"},
      });
  add_profile_option(command.options);
  add_extrapolate_option(command.options);
  add_what_if_options(command.options);
  add_cluster_what_if_options(command.options);
  add_stage_gpu_option(command.options);
  add_mixed_option(command.options);
  add_explain_options(command.options);
  return command;
}

}  // namespace dflop
