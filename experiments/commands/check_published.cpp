// dflop check published compares predictions with published measurements.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "experiments/checks/published/validation.hpp"
#include "experiments/cli/command.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/named_profile.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::size_t kWorstRows = 8;

struct Validated {
  TruthSet set;
  std::vector<Prediction> predictions;
};

Table sets_table(const std::vector<Validated>& all) {
  Table table;
  table.columns = {{"file", "file"},
                   {"rows", "rows"},
                   {"time_mape_percent", "time mean %", 2},
                   {"time_median_ape_percent", "median %", 2},
                   {"time_p95_ape_percent", "p95 %", 2},
                   {"time_max_ape_percent", "max %", 2},
                   {"memory_mape_percent", "memory mean %", 2}};
  for (const Validated& one : all) {
    const ErrorSummary time = summarize(time_errors(one.set, one.predictions));
    const std::vector<double> memory = memory_errors(one.set, one.predictions);
    table.rows.push_back({one.set.file, one.set.rows.size(), 100 * time.mean, 100 * time.median,
                          100 * time.p95, 100 * time.max,
                          memory.empty() ? Cell{} : Cell{100 * summarize(memory).mean}});
  }
  return table;
}

Table row_table() {
  Table table;
  table.columns = {{"file", "file"},
                   {"row", "row"},
                   {"model", "model"},
                   {"hidden", "hidden"},
                   {"layers", "layers"},
                   {"tp", "tp"},
                   {"dp", "dp"},
                   {"pp", "pp"},
                   {"micro_batch", "micro batch"},
                   {"microbatches", "microbatches"},
                   {"measured_s", "measured s", 4},
                   {"predicted_s", "predicted s", 4},
                   {"error_percent", "error %", 1},
                   {"measured_bytes", "measured GiB", 2, 0x1p-30},
                   {"predicted_bytes", "predicted GiB", 2, 0x1p-30},
                   {"memory_error_percent", "memory error %", 2}};
  return table;
}

void add_row(Table& table, const Validated& one, std::size_t i) {
  const TruthRow& row = one.set.rows[i];
  const Prediction& prediction = one.predictions[i];
  const TransformerSpec spec = truth_case(one.set.kind, row).model.llm;
  const std::optional<Bytes>& measured = row.peak_memory_max_rank;
  const auto predicted = static_cast<double>(prediction.peak_memory.count);
  table.rows.push_back(
      {one.set.file, row.row, spec.name, spec.hidden, row.layers, row.tp, row.dp, row.pp, row.micro_batch,
       row.microbatches, row.iteration, prediction.iteration,
       100 * (prediction.iteration / row.iteration - 1), measured,
       measured ? Cell(prediction.peak_memory) : Cell(),
       measured ? Cell(100 * (predicted / static_cast<double>(measured->count) - 1)) : Cell()});
}

Table all_rows(const std::vector<Validated>& all) {
  Table table = row_table();
  for (const Validated& one : all) {
    for (std::size_t i = 0; i < one.set.rows.size(); ++i) add_row(table, one, i);
  }
  return table;
}

/// Lists the rows of one set with the largest time errors.
Table worst_rows(const Validated& one) {
  const std::vector<double> errors = time_errors(one.set, one.predictions);
  std::vector<std::size_t> order(errors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return errors[a] > errors[b]; });
  order.resize(std::min(order.size(), kWorstRows));
  Table table = row_table();
  for (const std::size_t i : order) add_row(table, one, i);
  // Drop the set's name, which is in the heading, and memory, which --rows shows.
  table.columns.erase(table.columns.begin());
  table.columns.resize(12);
  for (std::vector<Cell>& cells : table.rows) {
    cells.erase(cells.begin());
    cells.resize(12);
  }
  return table;
}

void print_errors(Format format, const std::vector<Validated>& all) {
  const Table sets = sets_table(all);
  const auto text = [&] {
    std::string tables = terminal_text(sets);
    for (const Validated& one : all) tables += section("worst rows of " + one.set.file, worst_rows(one));
    return tables;
  };
  const auto json = [&] {
    nlohmann::ordered_json document;
    document["sets"] = json_of(sets);
    return json_text(document);
  };
  print_result(format, text, json, sets);
}

int run_validate(const Values& values) {
  const Format format = read_format(values);
  const auto rows_out = read_output(values, "rows");
  const ClusterSpec cluster = find_uniform_cluster(values["cluster"].as<std::string>());
  require_speeds(cluster, "another cluster");
  std::vector<Validated> all;
  for (const auto& file : read_texts(values, "truth"))
    all.push_back({read_ground_truth_on(cluster, file), {}});
  Progress progress("validating");
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t r = 0; r < all[i].set.rows.size(); ++r) {
      all[i].predictions.push_back(predict(truth_case(all[i].set.kind, all[i].set.rows[r]), cluster));
      progress.update(static_cast<std::int64_t>(r), static_cast<std::int64_t>(all[i].set.rows.size()));
    }
  }
  for (const Validated& one : all) note_odd_rows(one.set, one.predictions, ":row ");
  if (rows_out) write_file_atomically(*rows_out, to_csv(all_rows(all)));
  print_errors(format, all);
  return 0;
}

}  // namespace

Command check_published_command() {
  Command command{
      .name = "check published",
      .task = Task::check,
      .summary = "compare predictions with published measurements",
      .description =
          R"(Predicts the iteration time of every row, and the memory if it was measured, and prints the
absolute percentage errors of each file. The cluster gives the GPU type; the rows give the number of GPUs.)",
      .example = "dflop check published --truth traces/ground_truth/llama_b200.csv --cluster b200",
      .run = run_validate,
      .old_name = "validate",
  };
  add_truth_option(command.options, true);
  add_cluster_option(command.options, text("NAME|FILE").required());
  command.options.add(OptionGroup::output,
                      {{"rows", text("FILE"), "write measured and predicted figures of every row as CSV"}});
  return command;
}

}  // namespace dflop
