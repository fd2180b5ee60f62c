#include "core/order/schedules.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/order/greedy.hpp"

namespace dflop {
namespace {

std::vector<ScheduleStep> gpipe(int stage, int microbatches) {
  std::vector<ScheduleStep> steps;
  for (int j = 0; j < microbatches; ++j) steps.push_back({Op::forward, stage, j});
  for (int j = 0; j < microbatches; ++j) steps.push_back({Op::backward, stage, j});
  return steps;
}

/// One forward and one backward in turn after `warm_up` forwards.
std::vector<ScheduleStep> one_f_one_b(int stage, int microbatches, int warm_up) {
  warm_up = std::min(warm_up, microbatches);
  std::vector<ScheduleStep> steps;
  for (int j = 0; j < warm_up; ++j) steps.push_back({Op::forward, stage, j});
  for (int j = 0; j < microbatches; ++j) {
    if (warm_up + j < microbatches) steps.push_back({Op::forward, stage, warm_up + j});
    steps.push_back({Op::backward, stage, j});
  }
  return steps;
}

/// The k-th forward of any rank of an interleaved schedule, as chunk and microbatch. Backwards are in the
/// same order with the chunks reversed.
struct ChunkOrder {
  int ranks;
  int chunks;

  int chunk(int k) const { return k / ranks % chunks; }
  int microbatch(int k) const { return k / (ranks * chunks) * ranks + k % ranks; }
};

std::vector<ScheduleStep> interleaved(const PipelineShape& shape, int rank) {
  const ChunkOrder order{shape.ranks, shape.chunks};
  const int total = shape.chunks * shape.microbatches;
  const int warm_up = std::min(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * shape.ranks, total);
  std::vector<ScheduleStep> steps;
  const auto forward = [&](int k) {
    steps.push_back({Op::forward, order.chunk(k) * shape.ranks + rank, order.microbatch(k)});
  };
  const auto backward = [&](int k) {
    const int chunk = shape.chunks - 1 - order.chunk(k);
    steps.push_back({Op::backward, chunk * shape.ranks + rank, order.microbatch(k)});
  };
  for (int k = 0; k < warm_up; ++k) forward(k);
  for (int k = 0; k < total; ++k) {
    if (warm_up + k < total) forward(warm_up + k);
    backward(k);
  }
  return steps;
}

/// 1F1B with this many warm-up forwards and weight parts `lag` microbatches behind the input parts.
std::vector<ScheduleStep> split_one_f_one_b(int stage, int microbatches, int warm_up, int lag) {
  warm_up = std::min(warm_up, microbatches);
  std::vector<ScheduleStep> steps;
  for (int j = 0; j < warm_up; ++j) steps.push_back({Op::forward, stage, j});
  for (int j = 0; j < microbatches; ++j) {
    if (warm_up + j < microbatches) steps.push_back({Op::forward, stage, warm_up + j});
    steps.push_back({Op::backward_input, stage, j});
    if (j >= lag) steps.push_back({Op::backward_weight, stage, j - lag});
  }
  for (int j = std::max(0, microbatches - lag); j < microbatches; ++j) {
    steps.push_back({Op::backward_weight, stage, j});
  }
  return steps;
}

/// Microbatches that each rank of an eager-1f1b holds; falling along the pipeline.
std::vector<int> eager_held(int ranks, const std::vector<int>& most_held) {
  std::vector<int> held;
  for (int rank = 0; rank < ranks; ++rank) {
    held.push_back(2 * (ranks - rank) - 1);
    if (!most_held.empty()) held.back() = std::min(held.back(), most_held[rank]);
    if (rank > 0) held.back() = std::min(held.back(), held[rank - 1]);
  }
  return held;
}

std::vector<std::vector<ScheduleStep>> eager(const PipelineShape& shape, const std::vector<int>& most_held) {
  std::vector<std::vector<ScheduleStep>> steps;
  for (const int held : eager_held(shape.ranks, most_held)) {
    steps.push_back(one_f_one_b(static_cast<int>(steps.size()), shape.microbatches, held - 1));
  }
  return steps;
}

/// The steps of one rank where they follow from the shape alone.
std::vector<ScheduleStep> rank_steps(const PipelineShape& shape, int rank) {
  const int after = shape.ranks - rank - 1;
  switch (shape.kind) {
    case PipelineSchedule::gpipe:
      return gpipe(rank, shape.microbatches);
    case PipelineSchedule::interleaved:
      if (shape.chunks > 1) return interleaved(shape, rank);
      break;
    case PipelineSchedule::zb_h1:
      return split_one_f_one_b(rank, shape.microbatches, after, rank);
    case PipelineSchedule::zb_h2:
      if (shape.microbatches < 2 * shape.ranks - 1) {
        return split_one_f_one_b(rank, shape.microbatches, after, rank);
      }
      return split_one_f_one_b(rank, shape.microbatches, 2 * after, 2 * rank);
    default:  // 1f1b; those that read tables are not made here
      break;
  }
  return one_f_one_b(rank, shape.microbatches, after);
}

/// The steps of all ranks of a shape without leading stages.
std::vector<std::vector<ScheduleStep>> chunked_steps(const PipelineShape& shape,
                                                     const ScheduleTables& tables) {
  if (shape.kind == PipelineSchedule::zb_v) return zb_v_steps(shape, tables.times);
  if (shape.kind == PipelineSchedule::eager_1f1b) return eager(shape, tables.most_held);
  std::vector<std::vector<ScheduleStep>> steps;
  for (int rank = 0; rank < shape.ranks; ++rank) steps.push_back(rank_steps(shape, rank));
  if (!shape.spreads_encoder()) return steps;
  for (std::vector<ScheduleStep>& of_rank : steps) {
    for (ScheduleStep& step : of_rank) ++step.stage;
  }
  return bubble_steps(shape, tables, steps);
}

/// The order of the stage before `stage`, whose steps are among `steps`: the same with forwards one ahead.
std::vector<ScheduleStep> upstream_steps(const std::vector<ScheduleStep>& steps, int stage,
                                         int microbatches) {
  std::vector<ScheduleStep> upstream = {{Op::forward, stage - 1, 0}};
  for (const ScheduleStep& step : steps) {
    if (step.stage != stage) continue;
    const int microbatch = step.microbatch + (step.op == Op::forward ? 1 : 0);
    if (microbatch < microbatches) upstream.push_back({step.op, stage - 1, microbatch});
  }
  return upstream;
}

StepTimes equal_times(const PipelineShape& shape) {
  const std::vector<Nanoseconds> step(static_cast<std::size_t>(shape.stages()) * shape.microbatches,
                                      Nanoseconds(1));
  return {step, step, step, std::vector<Nanoseconds>(step.size(), Nanoseconds(0))};
}

/// Without the first `count` entries of each table.
StepTimes without_first(StepTimes times, std::ptrdiff_t count) {
  for (auto* table : {&times.forward, &times.backward, &times.backward_weight, &times.message}) {
    if (!table->empty()) table->erase(table->begin(), table->begin() + count);
  }
  return times;
}

}  // namespace

std::string_view to_string(Placement placement) {
  return placement == Placement::v ? "v" : "round-robin";
}

void validate(const PipelineShape& shape, const std::string& where) {
  const auto require = [&](bool holds, std::string_view key, const std::string& expected, int found) {
    if (holds) return;
    throw Error(ErrorKind::input, "expected " + expected + ", found " + std::to_string(found),
                where + ": key '" + std::string(key) + "'");
  };
  const std::string of_kind = " for " + std::string(to_string(shape.kind));
  require(shape.ranks >= 1, "stages", "at least 1", shape.ranks);
  require(shape.microbatches >= 1, "microbatches", "at least 1", shape.microbatches);
  if (shape.kind == PipelineSchedule::interleaved) {
    require(shape.chunks >= 1, "chunks", "at least 1", shape.chunks);
    require(shape.microbatches % shape.ranks == 0, "microbatches",
            "a multiple of the " + std::to_string(shape.ranks) + " stages" + of_kind, shape.microbatches);
  } else {
    const int chunks = shape.kind == PipelineSchedule::zb_v ? 2 : 1;
    require(shape.chunks == chunks, "chunks", std::to_string(chunks) + of_kind, shape.chunks);
  }
  require(shape.ranks <= kMostRawStages / shape.chunks, "stages",
          "at most " + std::to_string(kMostRawStages / shape.chunks) + " of " + std::to_string(shape.chunks) +
              " chunks",
          shape.ranks);
  const int most = kMostRawCells / shape.stages();
  require(shape.microbatches <= most, "microbatches",
          "at most " + std::to_string(most) + " for " + std::to_string(shape.stages()) + " stages",
          shape.microbatches);
}

int rank_of_stage(const PipelineShape& shape, int stage, int microbatch) {
  if (stage < shape.leading) return stage;
  if (shape.spreads_encoder()) return stage == 0 ? microbatch % shape.ranks : stage - 1;
  const int chunk = (stage - shape.leading) / shape.ranks;
  const int place = (stage - shape.leading) % shape.ranks;
  const bool is_v = shape.placement ? *shape.placement == Placement::v : shape.kind == PipelineSchedule::zb_v;
  return shape.leading + (is_v && chunk % 2 == 1 ? shape.ranks - 1 - place : place);
}

std::vector<std::vector<int>> stages_of_ranks(const PipelineShape& shape) {
  std::vector<std::vector<int>> stages(shape.all_ranks());
  if (shape.spreads_encoder()) {
    for (std::vector<int>& of_rank : stages) of_rank.push_back(0);
  }
  for (int s = shape.spreads_encoder() ? 1 : 0; s < shape.stages(); ++s) {
    stages[rank_of_stage(shape, s)].push_back(s);
  }
  return stages;
}

std::vector<std::vector<ScheduleStep>> pipeline_steps(const PipelineShape& shape,
                                                      const ScheduleTables& tables) {
  PipelineShape chunked = shape;
  chunked.leading = 0;
  ScheduleTables known;
  if (reads_tables(shape.kind)) {
    known = tables;
    if (known.times.forward.empty()) known.times = equal_times(shape);
    known.times = without_first(std::move(known.times), std::ptrdiff_t{shape.leading} * shape.microbatches);
  }
  std::vector<std::vector<ScheduleStep>> steps = chunked_steps(chunked, known);
  for (std::vector<ScheduleStep>& of_rank : steps) {
    for (ScheduleStep& step : of_rank) step.stage += shape.leading;
  }
  for (int stage = shape.leading; stage > 0; --stage) {
    steps.insert(steps.begin(), upstream_steps(steps.front(), stage, shape.microbatches));
  }
  return steps;
}

}  // namespace dflop
