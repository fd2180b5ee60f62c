#include "core/schedules.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "core/error.hpp"
#include "core/greedy_schedule.hpp"

namespace dflop {
namespace {

std::vector<ScheduleStep> gpipe(int stage, int microbatches) {
  std::vector<ScheduleStep> steps;
  for (int j = 0; j < microbatches; ++j) steps.push_back({Op::forward, stage, j});
  for (int j = 0; j < microbatches; ++j) steps.push_back({Op::backward, stage, j});
  return steps;
}

std::vector<ScheduleStep> one_f_one_b(int stage, int stages, int microbatches) {
  const int warm_up = std::min(stages - stage - 1, microbatches);
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

/// The steps of one rank where they follow from the shape alone.
std::vector<ScheduleStep> rank_steps(const PipelineShape& shape, int rank) {
  const int after = shape.ranks - rank - 1;
  switch (shape.kind) {
    case ScheduleKind::gpipe:
      return gpipe(rank, shape.microbatches);
    case ScheduleKind::interleaved:
      if (shape.chunks > 1) return interleaved(shape, rank);
      break;
    case ScheduleKind::zb_h1:
      return split_one_f_one_b(rank, shape.microbatches, after, rank);
    case ScheduleKind::zb_h2:
      if (shape.microbatches < 2 * shape.ranks - 1) {
        return split_one_f_one_b(rank, shape.microbatches, after, rank);
      }
      return split_one_f_one_b(rank, shape.microbatches, 2 * after, 2 * rank);
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::zb_v:  // not here: its order depends on the times
      break;
  }
  return one_f_one_b(rank, shape.ranks, shape.microbatches);
}

}  // namespace

std::vector<ScheduleStep> stage_schedule(PipelineSchedule schedule, int stage, int stages, int microbatches) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return gpipe(stage, microbatches);
    case PipelineSchedule::one_f_one_b:
      break;
  }
  return one_f_one_b(stage, stages, microbatches);
}

std::string_view to_string(ScheduleKind kind) {
  constexpr std::array<std::string_view, kScheduleKinds> names = {"gpipe", "1f1b",  "interleaved",
                                                                  "zb-h1", "zb-h2", "zb-v"};
  return names[static_cast<std::size_t>(kind)];
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
  if (shape.kind == ScheduleKind::interleaved) {
    require(shape.chunks >= 1, "chunks", "at least 1", shape.chunks);
    require(shape.microbatches % shape.ranks == 0, "microbatches",
            "a multiple of the " + std::to_string(shape.ranks) + " stages" + of_kind, shape.microbatches);
  } else {
    const int chunks = shape.kind == ScheduleKind::zb_v ? 2 : 1;
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

int rank_of_stage(const PipelineShape& shape, int stage) {
  if (shape.kind == ScheduleKind::zb_v && stage >= shape.ranks) return 2 * shape.ranks - 1 - stage;
  return stage % shape.ranks;
}

std::vector<std::vector<ScheduleStep>> pipeline_steps(const PipelineShape& shape, const StepTimes& times) {
  validate(shape);
  if (shape.kind == ScheduleKind::zb_v) return greedy_steps(shape, times, 2 * shape.ranks);
  std::vector<std::vector<ScheduleStep>> steps;
  for (int rank = 0; rank < shape.ranks; ++rank) steps.push_back(rank_steps(shape, rank));
  return steps;
}

}  // namespace dflop
