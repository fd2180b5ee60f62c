// dflop partition puts items with given costs into bins.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/refuse.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/batch_options.hpp"
#include "experiments/options/scheduler_options.hpp"
#include "experiments/options/shared_options.hpp"
#include "solver/makespan/bound.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/files/items.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr int kMaxBins = 65'536;
constexpr std::int64_t kPartitionMostTokens = std::int64_t{1} << 50;

/// Returns the orders that the makespan bounds support: one stage on each rank, and the same order for all
/// durations.
std::vector<OrderKind> partition_orders() {
  return plainest_first(orders_where([](const OrderTraits& order) {
    return !order.reads_tables() && !order.has_chunks() && !order.spreads_encoder;
  }));
}

Objective read_objective_of_bins(const Values& values) {
  const Objective objective = read_objective(values).value_or(Objective::bins);
  if (objective != Objective::makespan)
    refuse_given(values, {"encoder-stages", "llm-stages", "schedule", "backward-ratio"},
                 "read only with --objective makespan");
  return objective;
}

/// A Partition holds the items and bins from the options, and all objects that the problem refers to.
struct Partition {
  std::string file;
  ItemList items;
  Objective objective = Objective::bins;
  std::vector<double> encoder_s;  ///< per item, within a bin
  LoadPipeline pipeline;
  std::unique_ptr<MakespanBounds> bounds;
  AssignmentProblem problem;

  explicit Partition(const Values& values)
      : file(values["costs"].as<std::string>()), objective(read_objective_of_bins(values)) {
    const int encoder_dp = read_optional_integer<int>(values, "encoder-dp", 1, kMaxBins).value_or(0);
    items = parse_items(read_text_file(file), file);
    read_bins(values, encoder_dp);
    if (objective == Objective::makespan) read_pipeline(values, encoder_dp);
  }
  Partition(const Partition&) = delete;

 private:
  void read_bins(const Values& values, int encoder_dp) {
    BinProblem& bins = problem.bins;
    bins.bins = static_cast<int>(read_integer(values, "bins", 1, kMaxBins));
    bins.dp = static_cast<int>(read_integer(values, "dp", 1, bins.bins));
    if (bins.bins % bins.dp != 0) {
      refuse_value("bins", fmt::format("a multiple of --dp {}", bins.dp), std::to_string(bins.bins));
    }
    // Each bin's part of the encoder time: e x dp / encoder dp.
    const double share = encoder_dp > 0 ? static_cast<double>(bins.dp) / encoder_dp : 1.0;
    for (const double time : items.encoder_s) encoder_s.push_back(time * share);
    bins.encoder_s = encoder_s;
    bins.llm_s = items.llm_s;
    bins.names = items.ids;
    bins.shared_encoder = encoder_dp > 0 && objective != Objective::published;
    bins.allow_empty = values["allow-empty"].as<bool>();
    if (!bins.allow_empty && items.ids.size() < static_cast<std::size_t>(bins.bins)) {
      refuse_input(file, "expected at least as many items as --bins {} (or --allow-empty), found {}",
                   bins.bins, items.ids.size());
    }
    if (values.count("token-cap") == 0) return;
    if (items.tokens.empty())
      throw Error(ErrorKind::input, "expected a column 'tokens', which --token-cap needs, found none", file);
    const std::int64_t cap = read_integer(values, "token-cap", 1, kPartitionMostTokens);
    bins.caps.push_back({"LLM tokens", items.tokens, static_cast<double>(cap)});
  }

  void read_pipeline(const Values& values, int encoder_dp) {
    constexpr int kMaxStages = 256;
    const auto name = values["schedule"].as<std::string>();
    const auto kind = order_kind_from_string(name);
    const std::vector<OrderKind> known = partition_orders();
    if (!kind || std::find(known.begin(), known.end(), *kind) == known.end()) {
      refuse_name("schedule", names_of(known), name);
    }
    const int encoder_stages = static_cast<int>(read_integer(values, "encoder-stages", 0, kMaxStages));
    const bool encodes =
        std::any_of(items.encoder_s.begin(), items.encoder_s.end(), [](double time) { return time > 0; });
    if (encoder_stages == 0 && (encodes || encoder_dp > 0)) {
      refuse_value("encoder-stages",
                   fmt::format("at least 1 if {}",
                               encodes ? "an item has encoder_s above 0" : "--encoder-dp is given"),
                   "0");
    }
    const int llm_stages = static_cast<int>(read_integer(values, "llm-stages", 1, kMaxStages));
    const PipelineShape shape{*kind, encoder_stages + llm_stages, 1, problem.bins.microbatches()};
    if (shape.microbatches > kMaxRawCells / shape.ranks) {
      refuse_option("bins", fmt::format("expected at most {} stages x microbatches, found {}", kMaxRawCells,
                                        std::int64_t{shape.microbatches} * shape.ranks));
    }
    pipeline = simple_load_pipeline(shape, encoder_stages, problem.bins.dp, encoder_dp,
                                    read_number(values, "backward-ratio", 0, 100));
    problem.pipeline = &pipeline;
    problem.features = {items.encoder_s, items.llm_s};
    bounds = std::make_unique<MakespanBounds>(pipeline);
    bounds->prepare(problem.features);
    problem.bounds = bounds.get();
  }
};

SolveLimits read_limits(const Values& values) {
  SolveLimits limits;
  limits.seed = read_seed(values);
  limits.bin_order = read_bin_order(values);
  limits.steps = read_optional_integer(values, "steps", 1, INT64_MAX).value_or(limits.steps);
  if (values.count("time-limit") > 0) {
    if (limits.steps > 0) refuse_option("time-limit", "cannot be combined with '--steps'");
    limits.time = Seconds(read_number(values, "time-limit", 1e-6, 86400));
  }
  return limits;
}

/// Lists the items in file order, each with its bin and costs.
Table item_rows(const Partition& partition, const AssignmentSolution& solution) {
  Table table{{{"item", "item"},
               {"bin", "bin"},
               {"microbatch", "microbatch"},
               {"dp_rank", "dp rank"},
               {"encoder_s", "encoder s", 6},
               {"llm_s", "llm s", 6}},
              {}};
  const int dp = partition.problem.bins.dp;
  for (std::size_t i = 0; i < solution.bin.size(); ++i) {
    const std::int32_t bin = solution.bin[i];
    table.rows.push_back({partition.items.ids[i], bin, bin / dp, bin % dp, partition.items.encoder_s[i],
                          partition.items.llm_s[i]});
  }
  return table;
}

void print_solution(const Partition& partition, std::string_view method, const AssignmentSolution& solution,
                    Seconds taken, Format format) {
  const Table table{{{"method", "method"},
                     {"objective", "objective"},
                     {"objective_s", "objective s", 6},
                     {"bound_s", "bound s", 6},
                     {"bound_kind", "kind of bound"},
                     {"gap", "gap %", 3, 100},
                     {"status", "status"},
                     {"seconds", "seconds", 4},
                     {"assignment", "assignment"}},
                    {{method, to_string(partition.objective), solution.value, solution.bound,
                      to_string(solution.bound_kind), solution.gap(), to_string(solution.status), taken,
                      fmt::format("{}", fmt::join(solution.bin, " "))}}};
  const auto json = [&] {
    nlohmann::ordered_json line = json_of(table)[0];
    line["assignment"] = solution.bin;
    return line.dump() + "\n";
  };
  const auto text = [&] {
    Table summary = table;
    summary.columns.pop_back();
    summary.rows.front().pop_back();
    return terminal_text(summary) + '\n' + terminal_text(item_rows(partition, solution));
  };
  print_result(format, text, json, table);
}

int run_partition(const Values& values) {
  const Format format = read_format(values);
  const auto method = values["method"].as<std::string>();
  require_one_of("method", scheduler_names(), method);
  const SolveLimits limits = read_limits(values);
  const Partition partition(values);
  const auto begin = std::chrono::steady_clock::now();
  const AssignmentSolution solution = find_method(method).solve(partition.problem, limits);
  const Seconds taken = std::chrono::steady_clock::now() - begin;
  if (!solution.reason.empty()) {
    say("dflop: {}: {}\n", to_string(solution.status), solution.reason);
  }
  if (!solution.feasible()) return 3;
  print_solution(partition, method, solution, taken, format);
  return 0;
}

}  // namespace

Command partition_command() {
  Command command{
      .name = "partition",
      .task = Task::tools,
      .summary = "assign items with given costs to bins",
      .description =
          R"(Reads columns id, encoder_s, llm_s and, for --token-cap, tokens (CSV), and prints the bin of each
item, in file order: one row per item in tables, one list in JSON and CSV. Bin b is microbatch b div D on LLM
dp rank b mod D.

The objective, by default bins, is the largest load of any bin, encoder or LLM, where the bins of a microbatch share its encoder
work (bins) or each bin has its own (published); or the makespan of a pipeline in which the forward of a stage
takes encoder_s or llm_s. With --encoder-dp E a microbatch's encoder work is split over E ranks: an item then
adds encoder_s x D / E to the encoder load of its bin, also under published. Without it each dp rank encodes
its own items.

The bound is proven. For the makespan it comes from a linear program of up to 4,096 steps of all stages, which
is solved before 'seconds' begins; larger problems have a simple bound. 'seconds' is measured; everything else
is the same in every run unless there is a time limit. Exit code 3 if no assignment obeys the cap.)",
      .example =
          "dflop partition --costs traces/items/example.csv --bins 8 --dp 2 --encoder-dp 2 --time-limit 0.01 "
          "--format json",
      .run = run_partition,
  };
  command.options.add({
      {"costs", text("FILE").required(),
       "items (CSV): encoder_s and llm_s in seconds, or in any other common unit, from 0 to 1e9; tokens "
       "from 0 to 1e12"},
      {"bins", whole("M").required(), "number of bins, a multiple of D (--dp)"},
      {"method", text(joined(scheduler_names()), "local-search").common(),
       "partitioning method (karmarkar-karp balances only llm_s, as verl does)"},
      {"allow-empty", flag(), "allow empty bins"},
      {"encoder-stages", whole("P", 1),
       "pipeline stages of the encoder, for the makespan; 0 only if no item has encoder work"},
      {"llm-stages", whole("Q", 1), "pipeline stages of the LLM, for the makespan"},
      {"schedule", text(joined(names_of(partition_orders())), "1f1b"), "pipeline schedule, for the makespan"},
      {"backward-ratio", number("R", 2), "backward time / forward time, for the makespan"},
  });
  add_dp_option(command.options, whole("D", 1).common());
  add_encoder_dp_option(command.options, whole("E").common());
  add_work_option(command.options);
  add_time_limit_option(command.options);
  add_token_cap_option(command.options);
  add_seed_option(command.options);
  add_objective_option(command.options);
  add_bin_order_option(command.options);
  return command;
}

}  // namespace dflop
