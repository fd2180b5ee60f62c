// dflop compare evaluates data-aware plans and the best data-blind plans on the same global batches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/support/parallel.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/overhead_option.hpp"
#include "experiments/options/plan_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/options/search_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/reports/comparison.hpp"
#include "experiments/reports/comparison_page.hpp"
#include "experiments/reports/time_breakdown.hpp"
#include "experiments/studies/comparison.hpp"
#include "experiments/studies/headroom.hpp"
#include "experiments/studies/made_by.hpp"
#include "experiments/trust/assumptions.hpp"
#include "experiments/trust/overhead.hpp"
#include "experiments/trust/spread.hpp"
#include "solver/schedulers/command.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/schedule.hpp"
#include "traces/files/timeline.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// A MemoryRow is the memory that further batches need under one plan. Systems with the same plan and the
/// same way of filling microbatches share a row.
struct MemoryRow {
  std::string names;
  std::string key;
  Headroom headroom;
};

/// Compared holds all that a comparison prints and writes.
struct Compared {
  std::vector<System> systems;
  Table table;
  std::optional<Table> seeds;  ///< none if there was only one seed
  std::vector<SeedRuns> runs;  ///< the runs that `seeds` summarizes
  std::vector<MemoryRow> memory;
  AssumptionBlock assumptions;
  std::vector<std::string> answer;  ///< paragraphs; empty for formats that do not print them
};

/// Returns the heading of the table of seeds.
std::string seeds_heading(const Table& seeds) {
  return fmt::format("over {} seeds, means with 95 % intervals", plain_text(seeds.rows.front()[1]));
}

/// Explains the intervals in the table of seeds.
constexpr std::string_view kSeedsNote =
    "The plans made for the first seed run the batches of every seed. The intervals show the spread "
    "from the drawn data for these plans; they do not include the error of the cluster's preset. "
    "Another --seed may lead to other plans.";

/// Returns the answer of a comparison. It gives the simulator's breakdown of time as the reason.
std::vector<std::string> answer_of(const std::vector<System>& systems, const Target& target) {
  return comparison_answer(systems, [&](const System& system) {
    return time_breakdown(target, *system.planned.plan, system.schedule);
  });
}

/// Returns the table of seeds without the columns that do not fit narrow terminals: the number of seeds
/// (which the heading states), extremes, and GPU-hours.
Table narrow_seeds(const Table& seeds) {
  return columns_of(seeds, [](const Column& column) {
    return column.key != "seeds" && !column.key.ends_with("_least") && !column.key.ends_with("_most") &&
           !column.key.starts_with("train_gpu_hours");
  });
}

/// Returns the columns of add_training_columns() for each system; nothing if the table does not have them.
std::optional<Table> training_table(const Table& all) {
  Table table = columns_of(
      all, [](const Column& column) { return column.key == "system" || column.key.starts_with("train_"); });
  return table.columns.size() > 1 ? std::optional(std::move(table)) : std::nullopt;
}

/// Returns the result as text: the answer and the most important columns or, with `is_wide`, all columns.
std::string text_of(const Compared& result, bool is_wide) {
  std::string text = is_wide ? comparison_text(result.table, terminal_text)
                             : decision_text(result.systems, terminal_width());
  text += paragraphs_text(result.answer);
  if (!is_wide) text += section("training", training_table(result.table));
  if (result.seeds) {
    text += section("samples/s " + seeds_heading(*result.seeds),
                    is_wide ? *result.seeds : narrow_seeds(*result.seeds)) +
            paragraphs_text({std::string(kSeedsNote)});
  }
  return text + result.assumptions.terminal_text();
}

std::string page_of(const Values& values, const Provenance& made_by, const Compared& result) {
  return comparison_page(result.systems,
                         {.title = fmt::format("{} on {}", values["model"].as<std::string>(),
                                               values["cluster"].as<std::string>()),
                          .made_by = provenance_lines(made_by),
                          .answer = result.answer,
                          .training = training_table(result.table),
                          .all_columns = result.table,
                          .seeds_heading = result.seeds ? "Samples/s " + seeds_heading(*result.seeds) : "",
                          .seeds = result.seeds,
                          .seeds_note = std::string(kSeedsNote),
                          .assumptions = result.assumptions.html()});
}

/// Returns the command's options and one object per system, with its plan.
std::string comparison_json(const Values& values, const Compared& result) {
  const std::vector<System>& systems = result.systems;
  nlohmann::ordered_json out;
  out["schema"] = "dflop.compare";
  out["version"] = 1;
  out["options"] = nlohmann::ordered_json::parse(options_json(values));
  // Plan options that were not given are chosen by each planner and are recorded in its plan.
  Options of_plans;
  add_plan_options(of_plans);
  for (const Option& option : of_plans.rows()) {
    if (values[option.name].defaulted() && option.name != "setting") out["options"].erase(option.name);
  }
  out["options"].erase("wide");  // affects only the text format
  out["systems"] = json_of(result.table);
  for (std::size_t i = 0; i < systems.size(); ++i) {
    nlohmann::ordered_json& system = out["systems"][i];
    system["plan_description"] = system["plan"];
    system["plan"] = nullptr;
    system["infeasible_reason"] = nullptr;
    if (systems[i].planned.plan)
      system["plan"] = nlohmann::ordered_json::parse(to_json(*systems[i].planned.plan));
    system["fits_further"] = nullptr;
    if (systems[i].evaluation && systems[i].fits_further) system["fits_further"] = *systems[i].fits_further;
    if (!systems[i].evaluation) system["infeasible_reason"] = systems[i].planned.infeasible_reason;
  }
  if (result.seeds) out["seeds"] = json_of(*result.seeds);
  for (std::size_t i = 0; i < result.runs.size(); ++i)
    out["seeds"][i]["samples_per_s_of_each"] = result.runs[i].samples_per_s;
  out["assumptions"] = result.assumptions.json();
  return json_text(out);
}

/// Writes all files or none.
void write_outputs(const std::string& directory, const Values& values, const Provenance& made_by,
                   const Compared& result) {
  make_output_directory(directory);
  const std::filesystem::path base = directory;
  StagedOutputs files;
  parallel_for(result.systems.size(), [&](std::size_t i) {
    const System& system = result.systems[i];
    if (!system.evaluation) return;
    const Evaluation& e = *system.evaluation;
    files.add(base / (system.name + ".plan.json"), with_provenance(to_json(*system.planned.plan), made_by));
    Provenance of_schedule = made_by;
    of_schedule.plan = origin_of(*system.planned.plan, system.name + ".plan.json");
    files.add(base / (system.name + ".schedule.json"),
              with_provenance(to_json(system.schedule), of_schedule));
    files.add(base / (system.name + ".trace.json.gz"), to_perfetto(std::span(e.timelines).first(1)));
  });
  files.add(base / "compare.json", with_provenance(comparison_json(values, result), made_by));
  files.add(base / "compare.csv", to_csv(result.table));
  if (result.seeds) files.add(base / "seeds.csv", to_csv(*result.seeds));
  files.add(base / "report.html", page_of(values, made_by, result));
  files.commit();
  say("dflop: wrote {}: report.html, compare.json, compare.csv{}; per system .plan.json, .schedule.json and "
      ".trace.json.gz (first iteration, open in ui.perfetto.dev)\n",
      directory, result.seeds ? ", seeds.csv" : "");
}

std::optional<Training> read_training(const Values& values) {
  if (values.count("train-samples") == 0) {
    refuse_given(values, {"gpu-hour-cost", "gpu-power-w", "overhead"}, "needs '--train-samples'");
    return std::nullopt;
  }
  Training training;
  training.samples = static_cast<double>(read_integer(values, "train-samples", 1, 1'000'000'000'000'000));
  if (values.count("gpu-hour-cost") > 0)
    training.gpu_hour_cost = read_number(values, "gpu-hour-cost", 0, 1e6);
  if (values.count("gpu-power-w") > 0) training.gpu_power_w = read_number(values, "gpu-power-w", 0, 1e6);
  return training;
}

/// Reports planning times. They are measured, so they are not part of the result, which is the same on every
/// machine.
void report_planning(const std::vector<System>& systems, const std::optional<Training>& training) {
  for (const System& system : systems) {
    say("dflop: {}: planned in {:.2f} s, {} configurations", system.name, system.planning.count(),
        system.planned.candidates);
    if (training && system.evaluation) {
      say(", {:.2g} % of the run", 100 * (system.planning / training_time(system, *training)));
    }
    say("\n");
  }
}

/// Returns one line for each system.
std::string listed_systems() {
  std::string lines;
  std::string by_name;
  for (const SystemKind& kind : system_kinds())
    (kind.by_name_only ? by_name : lines) += fmt::format("  {:<23}{}\n", kind.name, kind.what);
  return lines + "Only if --systems names them (docs/systems.md):\n" + by_name;
}

/// Returns the requested systems. Those of --plan come before the search.
std::vector<System> read_systems(const Values& values, const Target& target, const ComparisonInput& input) {
  const SchedulerChoice asked = read_scheduler(values);
  SchedulerChoice scheduler = asked;
  choose_for_objective(scheduler, values, {});
  scheduler.keep_within_memory();
  const auto names = read_text(values, "systems");
  std::vector<System> systems = systems_to_compare(
      names ? split(*names, ',') : std::vector<std::string_view>{}, scheduler, input.search);
  const auto files = read_text(values, "plan");
  if (!files) return systems;
  std::vector<System> own = own_systems(split(*files, ','), target, input.gbs, asked, systems);
  for (System& system : own) {
    choose_for_objective(system.scheduler, values, *system.planned.plan);
    system.scheduler.keep_within_memory();
  }
  const auto searches = std::ranges::find_if(systems, &System::is_search);
  systems.insert(searches, std::move_iterator(own.begin()), std::move_iterator(own.end()));
  return systems;
}

/// Returns the memory of each plan. Also marks systems whose plan does not hold all further batches.
std::vector<MemoryRow> memory_of_systems(std::vector<System>& systems, const Target& target,
                                         const ComparisonInput& input) {
  std::vector<MemoryRow> rows;
  for (System& system : systems) {
    if (!system.evaluation || system.scheduler.name == kCommandMethod) continue;
    Plan plan = *system.planned.plan;
    plan.planner.clear();
    const std::string filler(filler_for(system.scheduler.name));
    const std::string key = filler + to_json(plan);  // the plan says whether memory is respected
    auto row = std::ranges::find(rows, key, &MemoryRow::key);
    if (row == rows.end()) {
      const bool respects_memory = system.scheduler.respects_memory(plan);
      rows.push_back(
          {"", key, estimate_headroom(plan, target, input.samples, filler, respects_memory, input.seed)});
      row = std::prev(rows.end());
    }
    row->names += (row->names.empty() ? "" : ", ") + system.name;
    system.fits_further = system.fits_further != false && row->headroom.holds_all();
  }
  return rows;
}

/// Notes rows whose microbatches are not from their own scheduler, with the reason.
void assume_fallbacks(AssumptionBlock& block, const std::vector<System>& systems) {
  for (const System& system : systems) {
    if (!system.evaluation) continue;
    const std::vector<ScheduledIteration>& all = system.schedule.iterations;
    const auto is_fallback = [](const ScheduledIteration& one) {
      return one.status == ScheduleStatus::fallback;
    };
    const auto first = std::ranges::find_if(all, is_fallback);
    if (first == all.end()) continue;
    const std::int64_t count = std::ranges::count_if(all, is_fallback);
    block.add("schedule",
              fmt::format("{}: {} did not schedule {} of {} batches itself; iteration {}: {}", system.name,
                          system.scheduler.name, count, all.size(), first - all.begin(), first->reason),
              {{"system", system.name}, {"fallbacks", count}, {"reason", first->reason}});
  }
}

/// Notes the scheduler of the search's row, and which rows have schedulers with different objectives.
void assume_schedules(AssumptionBlock& block, const std::vector<System>& systems) {
  std::map<std::string_view, std::string> filled_for;  // objective, names of rows
  for (const System& system : systems) {
    if (!system.evaluation) continue;
    const SchedulerChoice& choice = system.scheduler;
    if (system.is_search() && choice.limits.steps) {
      block.add(
          "schedule",
          fmt::format("{}: {} steps of {} an iteration ('schedule --scheduler {} --steps {}')", system.name,
                      *choice.limits.steps, choice.name, choice.name, *choice.limits.steps),
          {{"system", system.name}, {"scheduler", choice.name}, {"steps", *choice.limits.steps}});
    }
    if (!find_method(choice.name).minimizes) continue;
    std::string& names = filled_for[to_string(system.schedule.iterations.back().objective)];
    names += (names.empty() ? "" : ", ") + system.name;
  }
  if (filled_for.size() < 2) return;
  std::string text;
  for (const auto& [objective, names] : filled_for) text += fmt::format("{} ({}); ", objective, names);
  block.add("schedule",
            fmt::format(
                "schedulers minimize different objectives, as the plans ask: {}--objective sets one for all "
                "rows except the search",
                text));
}

void assume_memory_of_systems(AssumptionBlock& block, const Compared& result, const ComparisonInput& input,
                              const std::optional<Training>& training) {
  constexpr double kUsualIterations = 1000;
  const double iterations = training ? std::ceil(training->samples / input.gbs) : kUsualIterations;
  for (const System& system : result.systems) {
    if (system.evaluation && system.scheduler.name == kCommandMethod)
      block.add("memory",
                fmt::format("{}: unknown for further batches, because the scheduler command is not asked "
                            "to schedule them",
                            system.name));
  }
  if (result.memory.empty()) return;
  block.add(
      "memory",
      "peak of the fullest GPU in further batches, drawn like the batches of a run, and in some batches "
      "with the longest samples. Random and sequential rows schedule them like their own batches; all "
      "other rows use lpt. Plans that ask for it (--respect-memory) are kept within memory; auto and "
      "makespan do so, too, but may use more memory than lpt:");
  for (const MemoryRow& row : result.memory) {
    std::vector<std::pair<std::string, Cell>> figures = figures_of(row.headroom, iterations);
    figures.insert(figures.begin(), {"systems", row.names});
    block.add("memory", fmt::format("{}: {}", row.names, describe(row.headroom, iterations)),
              std::move(figures));
  }
  const auto is_marked = [](const System& system) {
    return system.evaluation && system.fits_further == false;
  };
  if (std::ranges::any_of(result.systems, is_marked))
    block.add(
        "memory",
        "a plan with ! (fits: partly) does not fit some further batches: a run that draws one runs out of "
        "memory");
}

/// Notes the seeds of a comparison, and the plans that do not fit the batches of all seeds.
void assume_seeds(AssumptionBlock& block, const ComparisonInput& input, const std::optional<Table>& seeds) {
  if (!seeds) {
    return assume_seed(block, input.seed, input.batches.size(), input.gbs, input.samples.size(),
                       "one seed says nothing about the spread over seeds (--seeds 3)");
  }
  const std::int64_t count = std::get<std::int64_t>(seeds->rows.front()[1]);
  assume_seed(block, input.seed, input.batches.size(), input.gbs, input.samples.size(),
              fmt::format("the intervals are over {} seeds, starting with this one", count));
  for (const std::vector<Cell>& row : seeds->rows) {
    const std::int64_t missed = count - std::get<std::int64_t>(row[2]);
    if (missed == 0 || missed == count) continue;  // plans that miss all are reported as infeasible
    block.add("seeds",
              fmt::format("{}: its plan does not fit the batches of {} of them", plain_text(row[0]), missed),
              {{"system", row[0]}, {"seeds_missed", missed}});
  }
}

AssumptionBlock compare_assumptions(const Values& values, const Target& target, const DataOrigin& data,
                                    const Compared& result, const ComparisonInput& input,
                                    const std::optional<Training>& training) {
  const auto cluster = values["cluster"].as<std::string>();
  const std::vector<NamedNotes> notes = find_cluster_notes(cluster);
  AssumptionBlock block;
  assume_data(block, data, read_longest(values, target.model));
  assume_preset(block, cluster, target.profile);
  assume_links(block, cluster, target.cluster);
  std::vector<const Plan*> plans;
  for (const System& system : result.systems) {
    if (!system.planned.plan) continue;
    plans.push_back(&*system.planned.plan);
    assume_heads(block, *plans.back(), target.model, system.name);
  }
  assume_layouts(block, plans);
  assume_orders(block, plans);
  if (!input.search.shared && input.search.layouts.empty() && asks_for_parts(values)) {
    block.add("layout",
              "an order is given: layouts whose modules share GPUs were left out (--layout shared)");
  }
  assume_schedules(block, result.systems);
  assume_fallbacks(block, result.systems);
  assume_memory_of_systems(block, result, input, training);
  assume_seeds(block, input, result.seeds);
  assume_time(block, notes, read_overhead(values, notes), training.has_value());
  if (training && data.cut.drops && data.cut.samples > 0) {
    block.add("time", fmt::format("--train-samples counts only samples that are kept; {} of {} samples are "
                                  "dropped",
                                  data.cut.samples, data.samples + data.cut.samples));
  }
  return block;
}

int run_compare(const Values& values) {
  constexpr int kMaxSeeds = 1000;
  const Format format = read_format(values);
  std::optional<Training> training = read_training(values);
  const auto out = read_text(values, "out");
  const int seeds = static_cast<int>(read_integer(values, "seeds", 1, kMaxSeeds));
  ComparisonInput input;
  input.gbs = read_gbs(values);
  input.seed = read_seed(values);
  input.options = read_plan_options(values);
  input.search = read_search_options(values);
  if (has_chunks(input.options.order)) {
    refuse_value("pipeline-schedule", "a schedule with one stage per rank, which all systems support",
                 std::string(to_string(input.options.order)));
  }
  const int iterations = read_iterations(values, input.gbs);
  input.delay = read_delay(values, input.gbs);
  const auto cluster = values["cluster"].as<std::string>();
  const Target target(values["model"].as<std::string>(), cluster, "", read_link_changes(values));
  if (training) training->overhead = read_overhead(values, find_cluster_notes(cluster)).sum();
  note_gpu_types(target.cluster);
  note_trained(input.options.trained, target.model);
  read_padding(values, target.model, input.search);
  Compared result;
  result.systems = read_systems(values, target, input);
  input.search.seeds = read_seed_plans(values, target, input.gbs);
  DataOrigin data;
  input.samples = read_samples(values, target.model, input.seed, "data", &data, false);
  input.batches =
      make_batches({input.samples, input.gbs, iterations, input.seed, input.delay, target.model}, data);
  input.further = batches_to_fit(input.samples, input.gbs, input.seed);
  if (out) check_output_directory(*out, "report.html");

  run_systems(result.systems, target, input);
  result.memory = memory_of_systems(result.systems, target, input);
  if (prefer_rows_that_fit(result.systems, input.search))
    result.memory = memory_of_systems(result.systems, target, input);
  report_planning(result.systems, training);
  result.table = comparison_table(result.systems);
  if (training) add_training_columns(result.table, result.systems, *training, target.cluster.gpus());
  if (seeds > 1) {
    result.runs = run_seeds(result.systems, target, input, seeds);
    result.seeds = seeds_table(
        result.runs, training ? std::optional(training->samples * (1 + training->overhead)) : std::nullopt,
        target.cluster.gpus());
  }
  result.assumptions = compare_assumptions(values, target, data, result, input, training);
  if (out || format == Format::table) result.answer = answer_of(result.systems, target);
  if (out) write_outputs(*out, values, made_here(values, target, data), result);
  const auto json = [&] { return comparison_json(values, result); };
  const auto text = [&] { return text_of(result, values["wide"].as<bool>()); };
  print_result(format, text, json, is_for_people(format) ? without_choices(result.table) : result.table);
  if (format != Format::table && format != Format::json) {
    if (result.seeds && is_for_people(format)) {
      fmt::print("\n");
      print_table(*result.seeds, format);
    } else if (result.seeds) {
      say("{}{}", section("samples/s " + seeds_heading(*result.seeds), *result.seeds),
          paragraphs_text({std::string(kSeedsNote)}));
    }
    say("{}", result.assumptions.text());
  }
  for (const std::string& note : infeasible_notes(result.systems)) say("dflop: {}\n", note);
  return std::ranges::any_of(result.systems, [](const System& s) { return s.evaluation.has_value(); }) ? 0
                                                                                                       : 3;
}

}  // namespace

Command compare_command() {
  Command command{
      .name = "compare",
      .task = Task::plan,
      .summary = "compare data-aware plans with the best data-blind plans",
      .description =
          "Makes a plan with each system, then schedules and simulates the same global batches:\n" +
          listed_systems() +
          R"(Baselines and optimizers without the microbatch scheduler use random microbatches. pytorch and
megatron are the best of all their configurations on these very batches. An option that fixes schedule,
recomputation, placement or gradient buckets fixes it for all rows.

The table has the columns that decide, the best row first: seconds an iteration, the speedup over the best
uniform baseline, idle time (mean over ranks), the peak memory of the fullest GPU, and whether the plan fits
("partly": it fits these batches, but not all further batches of the data). Then come the answer, the spread
over seeds, and what was assumed and chosen.

--wide and the other formats show all columns. gap is how far the schedule's objective may be from the best
possible value; gaps of different objectives are not comparable. p95 is over iterations, MFU excludes
recomputation. --plan adds your own plans as rows, whose microbatches --scheduler makes.)",
      .example =
          "dflop compare --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b "
          "--cluster a100-80g:4 --gbs 512 --iterations 8 --seed 1",
      .run = run_compare,
  };
  add_data_options(command.options);
  add_target_options(command.options);
  add_link_options(command.options);
  add_batch_options(command.options);
  add_delay_options(command.options);
  add_plan_options(command.options);
  add_search_options(command.options);
  add_scheduler_options(command.options);
  add_scheduler_command_options(command.options);
  add_plan_option(command.options, text("FILE[,FILE]"));
  command.options.add({
      {"systems", text("LIST").common(),
       "run only these systems, separated by commas, such as pytorch,dflop,search"},
      {"seeds", whole("K", 3),
       "run each plan on the batches of K consecutive seeds, and print means with 95 % intervals; plans are "
       "made for the first seed, --seed; 1: only --seed"},
      {"train-samples", whole("N"),
       "also estimate training on N samples: hours, GPU-hours and, on standard error, the share of "
       "planning time"},
      {"gpu-hour-cost", number("C"),
       "with --train-samples: also print the cost of training, at C per GPU-hour"},
      {"gpu-power-w", number("W"),
       "with --train-samples: also print the energy of training, at W watts per GPU"},
  });
  add_overhead_option(command.options);
  command.options.add(
      OptionGroup::output,
      {
          {"wide", flag().common(),
           "in text output, print all columns, and what each system was free to choose"},
          {"out", text("DIR").common(),
           "write report.html, compare.json, compare.csv, and the plan, schedule and trace of each system"},
      });
  return command;
}

}  // namespace dflop
