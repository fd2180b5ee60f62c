// dflop plan chooses a plan.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/iteration/planner.hpp"
#include "core/program/lowering.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/conditions.hpp"
#include "experiments/options/data_options.hpp"
#include "experiments/options/plan_options.hpp"
#include "experiments/options/profile_options.hpp"
#include "experiments/options/provenance_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/options/search_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/batches.hpp"
#include "experiments/studies/headroom.hpp"
#include "experiments/studies/named_profile.hpp"
#include "experiments/studies/plan_export.hpp"
#include "experiments/studies/planning.hpp"
#include "experiments/studies/published_files.hpp"
#include "experiments/studies/target.hpp"
#include "experiments/studies/what_if/reductions.hpp"
#include "experiments/trust/assumptions.hpp"
#include "solver/planners/planners.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/files/plan.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Says where a plan loses the most time against the best plan.
std::string loss(const RankedPlan& plan, const RankedPlan& best) {
  const RankShares& mine = plan.shares;
  const RankShares& its = best.shares;
  const std::array<std::pair<std::string_view, Seconds>, 4> more = {
      {{"computes", mine.busy - its.busy},
       {"is out of balance", mine.imbalance - its.imbalance},
       {"idles in bubbles", mine.bubble - its.bubble},
       {"waits for communication", mine.communication - its.communication}}};
  const auto& [what, time] = *std::max_element(
      more.begin(), more.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} {:.3f} s more", what, time.count());
}

/// Says why a listed plan is not the chosen one.
std::string why_not(const RankedPlan& plan, const RankedPlan& chosen) {
  if (plan.objective < chosen.objective) return "leaves less memory to spare in further batches";
  return loss(plan, chosen);
}

/// Writes layers as "7 7 7 6", and "9x3" for 9 9 9.
std::string layers_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t same = i;
    while (same < layers.size() && layers[same] == layers[i]) ++same;
    text += fmt::format("{}{}", text.empty() ? "" : " ", layers[i]);
    if (same - i > 1) text += fmt::format("x{}", same - i);
    i = same;
  }
  return text;
}

/// Returns the recomputation of encoder and LLM, such as "none | full", or one if they have the same.
std::string recomputation_text(const Plan& plan) {
  const std::string llm(to_string(plan.recomputation));
  const Recomputation encoder = recomputation_of(plan, true);
  return encoder == plan.recomputation ? llm : std::string(to_string(encoder)) + " | " + llm;
}

/// Lists the plans, best first, with objective, bound, peak memory, the four shares of the mean iteration and
/// the main loss against the best plan. Some plans have microbatches from other schedulers than lpt; only
/// times with lpt are compared. Empty if the planner lists no plans.
Table plan_ranking(const PlanResult& result, bool fits_further) {
  Table table;
  table.columns = {{"rank", "#"},
                   {"plan", "plan"},
                   {"recomputation", "recompute"},
                   {"layers", "layers E | L"},
                   {"scheduler", "scheduler"},
                   {"objective_s", "objective s", 3},
                   {"lpt_s", "lpt s", 3},
                   {"bound_s", "bound s", 3},
                   {"peak_memory_bytes", "peak GiB", 1, 0x1p-30},
                   {"busy_s", "busy s", 3},
                   {"imbalance_s", "imbalance s", 3},
                   {"bubble_s", "bubble s", 3},
                   {"communication_s", "comm s", 3},
                   {"slower", "slower % (lpt)", 2, 100},
                   {"why", "why"}};
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const RankedPlan& p = result.best[i];
    const RankedPlan& best = result.best.front();
    table.rows.push_back({i + 1, marked(p.plan, i > 0 || fits_further), recomputation_text(p.plan),
                          layers_text(p.plan.encoder.layers) + " | " + layers_text(p.plan.llm.layers),
                          p.scheduler, p.objective, p.lpt, result.bound ? Cell(p.bound) : Cell(),
                          p.peak_memory, p.shares.busy, p.shares.imbalance, p.shares.bubble,
                          p.shares.communication, p.lpt && best.lpt ? Cell(*p.lpt / *best.lpt - 1) : Cell(),
                          i == 0 ? "best" : why_not(p, best)});
  }
  return table;
}

/// Returns the ranking, the bound and its gap as JSON, schema "dflop.plan_ranking".
std::string ranking_json(const PlanResult& result, const Table& ranking,
                         const ReductionExplanation& reductions, const AssumptionBlock& assumptions) {
  nlohmann::ordered_json json;
  json["schema"] = "dflop.plan_ranking";
  json["version"] = 1;
  json["candidates"] = result.candidates;
  json["exhausted"] = result.exhausted;
  json["objective_s"] = result.objective.count();
  json["bound_s"] = nullptr;
  json["gap"] = nullptr;
  if (result.bound) {
    json["bound_s"] = result.bound->count();
    json["gap"] = result.gap();
  }
  json["plans"] = json_of(ranking);
  json["reductions"] = json_of(reductions.by_stage);
  json["idle_bandwidths"] = reductions.idle_bandwidths;
  json["assumptions"] = assumptions.json();
  return json_text(json);
}

/// Describes the proof that the best plan has, if any.
std::string describe_proof(const PlanResult& result, int gpus) {
  if (!result.bound) return "no bound is known for this planner and cost model";
  return fmt::format(
      "proven: no plan in the search space (all of its plans use the {} GPUs as far as the options "
      "allow), with any cut of its layers and any microbatches of these samples, has an objective below "
      "{:.4f} s: the best plan is within {:.2f} % of this bound{}",
      gpus, result.bound->count(), 100 * result.gap(),
      result.exhausted ? "" : "; the search ended before it had examined all smaller bounds (--budget)");
}

Table plan_table(const std::string& planner, const PlanResult& result, bool fits_further) {
  return {{{"planner", "planner"},
           {"plan", "plan"},
           {"objective_s", "objective s", 4},
           {"bound_s", "bound s", 4},
           {"gap", "gap %", 2, 100},
           {"gpus", "GPUs"}},
          {{planner, marked(*result.plan, fits_further), result.objective, result.bound,
            result.bound ? Cell(result.gap()) : Cell(), result.plan->gpus()}}};
}

/// Returns the schedulers that may fill microbatches in a search: those that minimize costs.
std::vector<std::string_view> final_schedulers() {
  std::vector<std::string_view> names = scheduler_names();
  std::erase_if(names, [](std::string_view name) { return !find_method(name).minimizes; });
  return names;
}

/// Reads the options of the planner 'search'. Other planners reject them.
SearchOptions read_search(const Values& values, const std::string& planner) {
  SearchOptions search = read_search_options(values);
  search.wish = read_wish(values);
  search.scheduler = values["scheduler"].as<std::string>();
  require_one_of("scheduler", final_schedulers(), search.scheduler);
  if (values.count("time-limit") > 0) {
    if (search.budget > 0) refuse_option("time-limit", "cannot be combined with '--budget'");
    search.time_limit = Seconds(read_number(values, "time-limit", 1e-3, 86400));
  }
  if (!find_planner(planner).searches) {
    const std::string why = fmt::format("works only with '--planner search', found '--planner {}'", planner);
    refuse_given(values, search_only_options(), why);
    refuse_given(values, {"scheduler", "time-limit", "explain"}, why);
  }
  return search;
}

/// Rejects a wish for a tp that is not in the profile, as no plan could satisfy it.
void require_measured_wish(const PlanWish& wish, const NamedProfile& profile) {
  const auto require = [&](const char* option, const std::optional<int>& tp) {
    const auto& measured = profile.tables.tp;
    if (!tp ||
        std::any_of(measured.begin(), measured.end(), [&](const TpProfile& t) { return t.mode.tp == *tp; }))
      return;
    refuse_value(option, "a tp that was measured in " + profile.path, std::to_string(*tp));
  };
  require("tp", wish.llm.tp);
  require("encoder-tp", wish.encoder.tp);
}

/// Rejects an order for colocated plans with other planners than the search, which alone makes such plans.
void require_search_for_spread(OrderKind order, const std::string& planner) {
  if (!traits(order).spreads_encoder || find_planner(planner).searches) return;
  refuse_option(
      "pipeline-schedule",
      fmt::format("'{}' needs a colocated plan, which only '--planner search' finds, found '--planner {}'",
                  to_string(order), planner));
}

/// Returns the folder for the tables of a published planner, if they are wanted.
std::optional<std::string> read_tables_folder(const Values& values, const std::string& planner) {
  std::optional<std::string> folder = read_text(values, "tables-out");
  if (!folder) return folder;
  if (planner != "dflop" && planner != "dflop-paper")
    refuse_option("tables-out",
                  fmt::format("works only with '--planner dflop' or '--planner dflop-paper', which "
                              "plan from tables, found '--planner {}'",
                              planner));
  check_output_directory(*folder, "dflop_config.yaml");
  return folder;
}

/// Returns the plan as JSON, with its assumptions for the reader.
std::string plan_json(const Plan& plan, const AssumptionBlock& assumptions) {
  auto json = nlohmann::ordered_json::parse(to_json(plan));
  json["assumptions"] = assumptions.json();
  return json_text(json);
}

/// Notes how likely further batches, filled by a scheduler, overrun a GPU's memory. Returns whether the plan
/// holds all of them.
bool assume_plan_memory(AssumptionBlock& block, const Plan& plan, const Target& target,
                        const std::vector<Sample>& samples, const std::string& scheduler,
                        std::uint64_t seed) {
  constexpr double kUsualIterations = 1000;
  const Headroom headroom = estimate_headroom(plan, target, samples, scheduler, plan.respect_memory, seed);
  block.add(
      "memory",
      fmt::format("peak of the fullest GPU in {} further batches, scheduled {}{}: {}{}", headroom.batches,
                  scheduler == "random" ? "at random, as the planner does" : "by lpt",
                  plan.respect_memory
                      ? " and kept within memory, as the plan asks 'schedule' and 'train' to do "
                        "(--no-respect-memory)"
                      : "",
                  describe(headroom, kUsualIterations),
                  plan.respect_memory ? "; auto and makespan also stay within memory, but may use more of "
                                        "it"
                  : headroom.overruns == 0 && headroom.longest_fits ? ""
                                                                    : " (--respect-memory)"),
      figures_of(headroom, kUsualIterations));
  return headroom.holds_all();
}

/// Notes the scheduler of the microbatches that the objective was computed with.
void assume_schedule(AssumptionBlock& block, const RankedPlan& best) {
  std::string text = fmt::format("the objective is for microbatches made by {}", best.scheduler);
  std::vector<std::pair<std::string, Cell>> figures = {{"scheduler", best.scheduler}};
  if (best.steps) {
    text += fmt::format(
        " with {0} steps per iteration ('schedule --scheduler {1} --steps {0}'); 'schedule' takes more "
        "steps by default, and its result may be a few percent faster or slower",
        *best.steps, best.scheduler);
    figures.emplace_back("steps", *best.steps);
  } else {
    text += fmt::format(" ('schedule --scheduler {}')", best.scheduler);
  }
  block.add("schedule", text, std::move(figures));
}

int run_plan(const Values& values) {
  const auto begun = std::chrono::steady_clock::now();
  PlanOptions plan_options = read_plan_options(values, true);
  const bool by_wish = !read_wish(values).is_empty() || values.count("layout") > 0 ||
                       traits(plan_options.order).spreads_encoder;
  const std::string planner =
      by_wish && values["planner"].defaulted() ? "search" : values["planner"].as<std::string>();
  require_search_for_spread(plan_options.order, planner);
  if (traits(plan_options.order).spreads_encoder)
    plan_options.order = PlanOptions{}.order;  // the search reads the order as a wish
  const Format format = read_format(values);
  const auto out = read_output(values, "out");
  const auto tables_folder = read_tables_folder(values, planner);
  const auto form = read_text(values, "export");
  if (form) {
    require_one_of("export", plan_form_names(), *form);
    refuse_given(values, {"format", "explain"}, "applies only to the table, which '--export' replaces");
  }
  const int gbs = read_gbs(values);
  const int iterations = read_iterations(values, gbs);
  const std::uint64_t seed = read_seed(values);
  const OutlierDelay delay = read_delay(values, gbs);
  const PlannerKind& kind = find_planner(planner);  // rejects an unknown name before the long part
  SearchOptions search = read_search(values, planner);
  const std::optional<NamedProfile> profile = read_profile(values);
  if (profile) refuse_given(values, link_option_names(), kMeasuredLinks);
  const std::optional<bool> respects_memory = read_respect_memory(values);
  const auto cluster = values["cluster"].as<std::string>();
  const Target target(values["model"].as<std::string>(), cluster, "", read_link_changes(values),
                      profile ? &*profile : nullptr);
  note_gpu_types(target.cluster);
  note_trained(plan_options.trained, target.model);
  if (profile) require_measured_wish(search.wish, *profile);
  search.seeds = read_seed_plans(values, target, gbs);
  read_padding(values, target.model, search);
  DataOrigin data;
  const std::vector<Sample> samples = read_samples(values, target.model, seed, "data", &data, false);
  const std::vector<Batch> batches =
      make_batches({samples, gbs, iterations, seed, delay, target.model}, data);

  const auto start = std::chrono::steady_clock::now();
  if (search.time_limit)  // reading has used some of the limit
    search.time_limit = std::max(*search.time_limit - Seconds(start - begun), Seconds{1e-3});
  const PlanningInput input{target, samples,      batches, gbs,
                            seed,   plan_options, search,  values["best-parts"].as<bool>()};
  if (tables_folder) {
    make_output_directory(*tables_folder);
    write_published_tables(*tables_folder, input);
  }
  PlanResult result = make_plan(planner, input);
  if (profile && result.plan) {
    require_measured(*profile, *result.plan, target.model);
    require_reach(*profile, *result.plan, target.model, batches, read_extrapolate(values));
  }
  const Seconds seconds = std::chrono::steady_clock::now() - start;
  say("dflop: planned in {:.2f} s, {} configurations\n", seconds.count(), result.candidates);
  AssumptionBlock block;
  assume_data(block, data, read_longest(values, target.model));
  assume_preset(block, cluster, target.profile);
  assume_links(block, cluster, target.cluster);
  if (!result.plan) {
    say("dflop: infeasible: {}\n", result.infeasible_reason);
    if (!form) print_infeasible(format, result.infeasible_reason);
    say("{}", block.text());
    return 3;
  }
  if (respects_memory) {
    result.plan->respect_memory = *respects_memory;
    for (RankedPlan& ranked : result.best) ranked.plan.respect_memory = *respects_memory;
  }
  if (out) {
    write_file_atomically(*out, with_provenance(to_json(*result.plan), made_here(values, target, data)));
  }
  if (kind.searches) say("dflop: {}\n", describe_proof(result, target.cluster.gpus()));
  if (!by_wish && values["planner"].defaulted()) {
    say("dflop: note: '{}' is the published method; '--planner search' usually finds a faster plan\n",
        planner);
  }
  if (result.seeds_outside > 0) {
    say("dflop: note: {} of the seed plans do not match the options and were ignored\n",
        result.seeds_outside);
  }
  const bool explains = values["explain"].as<bool>();
  ReductionExplanation reductions;
  if (explains) {
    reductions = explain_reductions(lower_without_work(*result.plan, target.model), target.cluster);
  }
  assume_choices(block, *result.plan, search, !kind.leaves_parts || values["best-parts"].as<bool>());
  assume_heads(block, *result.plan, target.model);
  std::vector<const Plan*> plans{&*result.plan};
  if (explains) {
    for (const RankedPlan& ranked : result.best) plans.push_back(&ranked.plan);
  }
  assume_layouts(block, plans);
  assume_orders(block, plans);
  if (!result.best.empty()) assume_schedule(block, result.best.front());
  // The scheduler of the plan's own batches decides whether the plan is marked.
  const bool fills_at_random = !kind.searches && !kind.leaves_parts;
  const bool fits_at_random =
      !fills_at_random || assume_plan_memory(block, *result.plan, target, samples, "random", seed);
  const bool fits_by_lpt = assume_plan_memory(block, *result.plan, target, samples, "lpt", seed);
  const bool fits_further = fills_at_random ? fits_at_random : fits_by_lpt;
  if (!fits_further)
    block.add("memory",
              "the plan (! in tables) does not fit some further batches: a run that draws one runs out of "
              "memory");
  assume_seed(block, seed, batches.size(), gbs, samples.size(),
              "'compare' shows the spread over other seeds");
  const Table table =
      explains ? plan_ranking(result, fits_further) : plan_table(planner, result, fits_further);
  if (form) {
    fmt::print("{}", exported_plan(*result.plan, target.model, *form, "plan"));
    say("{}", block.text());
    return 0;
  }
  const auto json = [&] {
    return explains ? ranking_json(result, table, reductions, block) : plan_json(*result.plan, block);
  };
  const auto text = [&] {
    return terminal_text(table) + reductions_text("gradient reductions of the best", reductions) +
           block.terminal_text();
  };
  print_result(format, text, json, table);
  if (format != Format::table && format != Format::json) say("{}", block.text());
  return 0;
}

}  // namespace

Command plan_command() {
  Command command{
      .name = "plan",
      .task = Task::plan,
      .summary = "choose a training plan for a model, a cluster and data",
      .description =
          R"(Prints the plan and the objective of its planner:
  dflop             as in the released code of the published system; the objective is its estimate at the
                    mean shape
  dflop-paper       as printed in Algorithm 1 of the paper; same objective
  dflop-expected    the least mean of that estimate over the data
  pytorch           the best of all uniform configurations, with encoder and LLM layers split evenly by
                    count, including recomputation, placement, gradient buckets, and 1f1b or interleaved; the
                    objective is the simulated mean over the global batches with random microbatches
  megatron          the same with the encoder on the first stage
  megatron-default  set by hand as in papers; same objective as megatron
  disttrain         encoder and LLM on GPUs of their own, divided by the rule of DistTrain; the objective is
                    its estimate at the mean sample (after the abstract only: docs/systems.md)
  megatron-mimo     encoder and LLM on GPUs of their own, as Megatron-LM's MIMO can run them; same objective
                    as megatron
  search            everything: layout, parallelism of each module, layers of each stage, microbatches,
                    schedule, recomputation, placement and gradient buckets. It simulates the global batches
                    with LPT, and the best few plans at the end with --scheduler

The bound of search is proven for all plans in its space, with any cut of their layers and any assignment of
the samples to microbatches (docs/tasks.md). --layout colocated or an order of such plans (encoder-in-bubbles,
three-phase, on-demand) asks for a plan in which each LLM group also holds the whole encoder.

Options for recomputation, placement and similar parts fix them for all planners. If a layout, tp, pp, dp or
number of microbatches is given, search plans: it chooses the rest (--pipeline-schedule then takes any order) or
names the option that cannot be satisfied. The text below the table lists what was assumed and chosen. Exit code 3
if nothing fits, with the reason; JSON then has schema dflop.infeasible and the reason under the key infeasible.)",
      .example =
          "dflop plan --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 "
          "--gbs 512 --out plan.json",
      .run = run_plan,
  };
  add_data_options(command.options);
  add_target_options(command.options);
  add_link_options(command.options);
  add_profile_option(command.options);
  add_extrapolate_option(command.options);
  add_batch_options(command.options);
  add_delay_options(command.options);
  command.options.add({
      {"planner", text(joined(planner_names()), "dflop").common(),
       "planner that chooses the plan (default if a layout, parallelism or microbatches are given: search)"},
      {"best-parts", flag(),
       "for planners that do not choose them (dflop, dflop-paper, dflop-expected, disttrain): choose recomputation, "
       "placement and gradient buckets by simulation, unless options fix them"},
  });
  command.options.add(
      OptionGroup::output,
      {
          {"out", text("FILE").common(), "write the plan as JSON"},
          {"export", text(joined(plan_form_names())).common(),
           "instead of a table, print the plan as options or code for this framework; see 'dflop export'"},
          {"tables-out", text("DIR"),
           "for planner dflop and dflop-paper: write the tables that they plan from, in the files that the "
           "released optimizer reads"},
          {"explain", flag().common(),
           "list the ten best plans of planner search, where their time goes, and what the gradient "
           "reductions of the best plan wait for"},
      });
  add_memory_options(command.options);
  add_scheduler_option(command.options, text(joined(final_schedulers()), SearchOptions{}.scheduler));
  add_time_limit_option(command.options);
  add_wish_options(command.options);
  add_search_options(command.options);
  add_plan_options(command.options);
  return command;
}

}  // namespace dflop
