#include "experiments/studies/memory_table.hpp"

#include <fmt/format.h>

#include "experiments/cli/say.hpp"

namespace dflop {
namespace {

constexpr double kGiB = 0x1p-30;

double gib(Bytes bytes) {
  return static_cast<double>(bytes.count) * kGiB;
}

std::vector<Column> memory_columns() {
  return {{"peak_time_s", "at s", 4},
          {"parameters_bytes", "parameters GiB", 2, kGiB},
          {"gradients_bytes", "gradients GiB", 2, kGiB},
          {"optimizer_bytes", "optimizer GiB", 2, kGiB},
          {"peak_activations_bytes", "activations GiB", 2, kGiB},
          {"peak_buffers_bytes", "buffers GiB", 2, kGiB}};
}

std::vector<Cell> memory_cells(const GroupUsage& group) {
  return {Seconds(group.peak_time).count(),  group.model_state.parameters.count,
          group.model_state.gradients.count, group.model_state.optimizer.count,
          group.peak_activations.count,      group.peak_buffers.count};
}

}  // namespace

FullestRank fullest_rank(std::span<const Timeline> iterations) {
  FullestRank fullest;
  Bytes most{-1};
  for (std::size_t k = 0; k < iterations.size(); ++k) {
    for (std::size_t g = 0; g < iterations[k].groups.size(); ++g) {
      if (iterations[k].groups[g].peak_memory <= most) continue;
      most = iterations[k].groups[g].peak_memory;
      fullest = {k, g};
    }
  }
  return fullest;
}

Table fullest_rank_table(std::span<const Timeline> iterations) {
  const FullestRank fullest = fullest_rank(iterations);
  const Timeline& timeline = iterations[fullest.iteration];
  const GroupUsage& group = timeline.groups[fullest.group];
  Table table;
  table.columns = {{"iteration", "iteration"}, {"stage", "stage"}, {"dp_rank", "dp"}, {"first_rank", "rank"}};
  table.rows = {{static_cast<std::int64_t>(fullest.iteration), timeline.stages[group.stage],
                 static_cast<std::int64_t>(group.dp_rank), static_cast<std::int64_t>(group.first_rank)}};
  for (const Column& column : memory_columns()) table.columns.push_back(column);
  for (const Cell& cell : memory_cells(group)) table.rows[0].push_back(cell);
  table.columns.push_back({"peak_memory_bytes", "peak GiB", 2, kGiB});
  table.rows[0].push_back(group.peak_memory.count);
  return table;
}

void add_memory_columns(Table& groups, const Timeline& timeline) {
  for (const Column& column : memory_columns()) groups.columns.push_back(column);
  for (std::size_t g = 0; g < groups.rows.size(); ++g) {
    for (const Cell& cell : memory_cells(timeline.groups[g])) groups.rows[g].push_back(cell);
  }
}

std::string describe_fullest_rank(std::span<const Timeline> iterations) {
  const FullestRank fullest = fullest_rank(iterations);
  const Timeline& timeline = iterations[fullest.iteration];
  const GroupUsage& group = timeline.groups[fullest.group];
  return fmt::format(
      "rank {} ({}) needs {:.1f} GiB at {:.4f} s of iteration {}: parameters {:.1f}, gradients {:.1f}, "
      "optimizer {:.1f}, activations {:.1f}, buffers {:.1f}",
      group.first_rank, timeline.stages[group.stage], gib(group.peak_memory),
      Seconds(group.peak_time).count(), fullest.iteration, gib(group.model_state.parameters),
      gib(group.model_state.gradients), gib(group.model_state.optimizer), gib(group.peak_activations),
      gib(group.peak_buffers));
}

}  // namespace dflop
