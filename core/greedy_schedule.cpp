#include "core/greedy_schedule.hpp"

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

namespace dflop {
namespace {

constexpr Nanoseconds kUnknown{std::numeric_limits<std::int64_t>::max()};

/// The microbatches that a stage has started, which it takes in order.
struct StageState {
  int forwards = 0;
  int inputs = 0;
  int weights = 0;
};

struct RankState {
  std::vector<int> stages;  ///< in model order
  int held = 0;
  Nanoseconds free_at{0};
};

class GreedyRun {
 public:
  GreedyRun(const PipelineShape& shape, const StepTimes& times, int most_held)
      : shape_(shape),
        times_(times),
        most_held_(most_held),
        forward_ready_(times.forward.size(), kUnknown),
        backward_ready_(times.forward.size(), kUnknown),
        stages_(shape.stages()),
        ranks_(shape.ranks),
        steps_(shape.ranks) {
    for (int s = 0; s < shape.stages(); ++s) ranks_[rank_of_stage(shape, s)].stages.push_back(s);
    for (int j = 0; j < shape.microbatches; ++j) forward_ready_[j] = Nanoseconds(0);
  }

  std::vector<std::vector<ScheduleStep>> run() {
    wake(Nanoseconds(0), rank_of_stage(shape_, 0));
    while (!wakes_.empty()) {
      const auto [now, rank] = wakes_.top();
      wakes_.pop();
      if (ranks_[rank].free_at > now) continue;  // it looks again when it is free
      if (const auto step = choose(ranks_[rank], now)) start(rank, *step, now);
    }
    return std::move(steps_);
  }

 private:
  std::size_t cell(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * shape_.microbatches + microbatch;
  }

  void wake(Nanoseconds time, int rank) { wakes_.push({time, rank}); }

  /// Whether this stage of the rank may start its next forward, by its input and by memory.
  bool may_forward(const RankState& rank, std::size_t chunk, Nanoseconds now) const {
    const int stage = rank.stages[chunk];
    const int j = stages_[stage].forwards;
    const int left_free = static_cast<int>(rank.stages.size() - 1 - chunk);
    return j < shape_.microbatches && rank.held + left_free < most_held_ &&
           forward_ready_[cell(stage, j)] <= now;
  }

  bool may_backward(int stage, Nanoseconds now) const {
    const int j = stages_[stage].inputs;
    return j < stages_[stage].forwards && backward_ready_[cell(stage, j)] <= now;
  }

  std::optional<ScheduleStep> choose(const RankState& rank, Nanoseconds now) const {
    std::optional<ScheduleStep> best;
    const auto offer = [&](Op op, int stage, int microbatch) {
      if (!best || microbatch < best->microbatch) best = ScheduleStep{op, stage, microbatch};
    };
    for (const int s : rank.stages) {
      if (may_backward(s, now)) offer(Op::backward_input, s, stages_[s].inputs);
    }
    if (best) return best;
    for (std::size_t c = 0; c < rank.stages.size(); ++c) {
      const int s = rank.stages[c];
      if (may_forward(rank, c, now)) offer(Op::forward, s, stages_[s].forwards);
    }
    if (best) return best;
    for (const int s : rank.stages) {
      if (stages_[s].weights < stages_[s].inputs) offer(Op::backward_weight, s, stages_[s].weights);
    }
    return best;
  }

  /// Everything that follows from a start is known at once, its end among it.
  void start(int rank, const ScheduleStep& step, Nanoseconds now) {
    steps_[rank].push_back(step);
    StageState& stage = stages_[step.stage];
    const std::size_t at = cell(step.stage, step.microbatch);
    Nanoseconds end = now;
    if (step.op == Op::forward) {
      ++stage.forwards;
      ++ranks_[rank].held;
      end += times_.forward[at];
      if (step.stage + 1 == shape_.stages()) {
        backward_ready_[at] = end;
      } else {
        deliver(forward_ready_, step, step.stage + 1, step.stage, end);
      }
    } else if (step.op == Op::backward_input) {
      ++stage.inputs;
      end += times_.backward[at];
      if (step.stage > 0) deliver(backward_ready_, step, step.stage - 1, step.stage - 1, end);
    } else {
      ++stage.weights;
      --ranks_[rank].held;
      end += times_.backward_weight[at];
    }
    ranks_[rank].free_at = end;
    wake(end, rank);
  }

  /// The result of a step that ends at `end` goes over boundary `boundary` to stage `to`.
  void deliver(std::vector<Nanoseconds>& ready, const ScheduleStep& step, int to, int boundary,
               Nanoseconds end) {
    const int rank = rank_of_stage(shape_, to);
    const bool crosses = rank != rank_of_stage(shape_, step.stage);
    const Nanoseconds arrival = crosses ? end + times_.message[cell(boundary, step.microbatch)] : end;
    ready[cell(to, step.microbatch)] = arrival;
    wake(arrival, rank);
  }

  using Wake = std::pair<Nanoseconds, int>;  ///< when to look what a rank can do

  const PipelineShape& shape_;
  const StepTimes& times_;
  const int most_held_;
  std::vector<Nanoseconds> forward_ready_;
  std::vector<Nanoseconds> backward_ready_;
  std::vector<StageState> stages_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<ScheduleStep>> steps_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

}  // namespace

std::vector<std::vector<ScheduleStep>> greedy_steps(const PipelineShape& shape, const StepTimes& times,
                                                    int most_held) {
  return GreedyRun(shape, times, most_held).run();
}

}  // namespace dflop
