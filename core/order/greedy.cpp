#include "core/order/greedy.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

namespace dflop {
namespace {

constexpr Nanoseconds kUnknown{std::numeric_limits<std::int64_t>::max()};

/// A GreedyRun is a run in virtual time in which a derived class chooses every rank's steps.
class GreedyRun {
 public:
  GreedyRun(const PipelineShape& shape, const StepTimes& times)
      : shape_(shape),
        times_(times),
        forward_ready_(times.forward.size(), kUnknown),
        backward_ready_(times.forward.size(), kUnknown),
        free_at_(shape.ranks, Nanoseconds(0)),
        steps_(shape.ranks) {
    for (int j = 0; j < shape.microbatches; ++j) forward_ready_[j] = Nanoseconds(0);
  }
  virtual ~GreedyRun() = default;

  std::vector<std::vector<OrderStep>> run() {
    for (int rank = 0; rank < shape_.ranks; ++rank) wake(Nanoseconds(0), rank);
    while (!wakes_.empty()) {
      const auto [now, rank] = wakes_.top();
      wakes_.pop();
      if (free_at_[rank] > now) continue;  // it is woken again when it is free
      if (const auto step = take(rank, now)) start(rank, *step, now);
    }
    return std::move(steps_);
  }

  /// Returns when the last step ends; it is known after run().
  Nanoseconds makespan() const { return *std::max_element(free_at_.begin(), free_at_.end()); }

 protected:
  /// Returns the step that the free rank starts now; nullopt if it can start none.
  virtual std::optional<OrderStep> take(int rank, Nanoseconds now) = 0;

  /// Returns whether the input of a forward or backward is ready; for a backward on the last stage, whether
  /// the forward has ended.
  bool is_ready(const OrderStep& step, Nanoseconds now) const {
    const auto& ready = step.op == Op::forward ? forward_ready_ : backward_ready_;
    return ready[cell(step.stage, step.microbatch)] <= now;
  }

  const PipelineShape& shape_;

 private:
  std::size_t cell(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * shape_.microbatches + microbatch;
  }

  void wake(Nanoseconds time, int rank) { wakes_.push({time, rank}); }

  /// Starts a step. Everything that follows from its start, such as its end, is known at once.
  void start(int rank, const OrderStep& step, Nanoseconds now) {
    steps_[rank].push_back(step);
    const std::size_t at = cell(step.stage, step.microbatch);
    Nanoseconds end = now;
    if (step.op == Op::forward) {
      end += times_.forward[at];
      if (step.stage + 1 == shape_.stages()) {
        backward_ready_[at] = end;
      } else {
        deliver(forward_ready_, step, step.stage + 1, step.stage, end);
      }
    } else if (step.op == Op::backward_weight) {
      end += times_.backward_weight[at];
    } else {
      end += times_.backward[at];
      if (step.stage > 0) deliver(backward_ready_, step, step.stage - 1, step.stage - 1, end);
    }
    free_at_[rank] = end;
    wake(end, rank);
  }

  /// Delivers the result of a step that ends at `end` over boundary `boundary` to stage `to`.
  void deliver(std::vector<Nanoseconds>& ready, const OrderStep& step, int to, int boundary,
               Nanoseconds end) {
    const int rank = rank_of_stage(shape_, to, step.microbatch);
    const bool crosses = rank != rank_of_stage(shape_, step.stage, step.microbatch);
    const Nanoseconds arrival = crosses ? end + times_.message[cell(boundary, step.microbatch)] : end;
    ready[cell(to, step.microbatch)] = arrival;
    wake(arrival, rank);
  }

  using Wake = std::pair<Nanoseconds, int>;  ///< when to check what a rank can do

  const StepTimes& times_;
  std::vector<Nanoseconds> forward_ready_;
  std::vector<Nanoseconds> backward_ready_;
  std::vector<Nanoseconds> free_at_;
  std::vector<std::vector<OrderStep>> steps_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

/// A SplitRun follows the "oldest first" rule of zb_v_steps().
class SplitRun final : public GreedyRun {
 public:
  SplitRun(const PipelineShape& shape, const StepTimes& times, int most_held)
      : GreedyRun(shape, times),
        most_held_(most_held),
        stages_(shape.stages()),
        stages_of_rank_(stages_of_ranks(shape)),
        held_(shape.ranks, 0) {}

 private:
  /// A StageState counts the microbatches that a stage has started, in order.
  struct StageState {
    int forwards = 0;
    int inputs = 0;
    int weights = 0;
  };

  /// Returns whether this stage of the rank may start its next forward: its input is ready and memory permits
  /// it.
  bool may_forward(int rank, std::size_t chunk, Nanoseconds now) const {
    const std::vector<int>& stages = stages_of_rank_[rank];
    const int j = stages_[stages[chunk]].forwards;
    const int left_free = static_cast<int>(stages.size() - 1 - chunk);
    return j < shape_.microbatches && held_[rank] + left_free < most_held_ &&
           is_ready({Op::forward, stages[chunk], j}, now);
  }

  bool may_backward(int stage, Nanoseconds now) const {
    const int j = stages_[stage].inputs;
    return j < stages_[stage].forwards && is_ready({Op::backward_input, stage, j}, now);
  }

  std::optional<OrderStep> choose(int rank, Nanoseconds now) const {
    const std::vector<int>& stages = stages_of_rank_[rank];
    std::optional<OrderStep> best;
    const auto offer = [&](Op op, int stage, int microbatch) {
      if (!best || microbatch < best->microbatch) best = OrderStep{op, stage, microbatch};
    };
    for (const int s : stages) {
      if (may_backward(s, now)) offer(Op::backward_input, s, stages_[s].inputs);
    }
    if (best) return best;
    for (std::size_t c = 0; c < stages.size(); ++c) {
      if (may_forward(rank, c, now)) offer(Op::forward, stages[c], stages_[stages[c]].forwards);
    }
    if (best) return best;
    for (const int s : stages) {
      if (stages_[s].weights < stages_[s].inputs) offer(Op::backward_weight, s, stages_[s].weights);
    }
    return best;
  }

  std::optional<OrderStep> take(int rank, Nanoseconds now) override {
    const std::optional<OrderStep> step = choose(rank, now);
    if (!step) return step;
    StageState& stage = stages_[step->stage];
    if (step->op == Op::forward) {
      ++stage.forwards;
      ++held_[rank];
    } else if (step->op == Op::backward_input) {
      ++stage.inputs;
    } else {
      ++stage.weights;
      --held_[rank];
    }
    return step;
  }

  const int most_held_;
  std::vector<StageState> stages_;
  std::vector<std::vector<int>> stages_of_rank_;
  std::vector<int> held_;  ///< per rank, chunks of microbatches
};

/// A TwoChunkOrder has the steps of one operation on both chunks of a zb-v rank, with each chunk's
/// microbatches in order.
struct TwoChunkOrder {
  Op op;
  std::vector<int> stages;
  int microbatches;
  std::vector<int> next = {0, 0};
  std::vector<OrderStep> steps = {};

  /// Adds up to `count` next microbatches of a chunk.
  void add(int chunk, int count = 1) {
    for (; count > 0 && next[chunk] < microbatches; --count) {
      steps.push_back({op, stages[chunk], next[chunk]++});
    }
  }

  void alternate_to_the_end() {
    while (next[0] < microbatches || next[1] < microbatches) {
      add(0);
      add(1);
    }
  }
};

/// A RhythmRun follows the "in rhythm" rule of zb_v_steps().
class RhythmRun final : public GreedyRun {
 public:
  RhythmRun(const PipelineShape& shape, const StepTimes& times) : GreedyRun(shape, times) {
    const std::vector<std::vector<int>> stages = stages_of_ranks(shape);
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int here_and_after = shape.ranks - rank;
      TwoChunkOrder forwards{Op::forward, stages[rank], shape.microbatches};
      forwards.add(0, 2 * here_and_after - 1);
      for (int before = 0; before < rank; ++before) {
        forwards.add(1);
        forwards.add(0);
      }
      forwards.add(1, here_and_after);
      forwards.alternate_to_the_end();
      TwoChunkOrder backwards{Op::backward_input, stages[rank], shape.microbatches};
      backwards.add(1, here_and_after);
      backwards.alternate_to_the_end();
      ranks_.push_back({std::move(forwards.steps), std::move(backwards.steps)});
    }
  }

 private:
  struct RankState {
    std::vector<OrderStep> forwards;
    std::vector<OrderStep> backwards;  ///< input parts; the weight parts follow in the same order
    std::size_t next_forward = 0;
    std::size_t next_backward = 0;
    std::size_t next_weight = 0;
  };

  /// Returns whether the next step of a list is ready.
  bool may_start(const std::vector<OrderStep>& steps, std::size_t next, Nanoseconds now) const {
    return next < steps.size() && is_ready(steps[next], now);
  }

  std::optional<OrderStep> take(int r, Nanoseconds now) override {
    RankState& rank = ranks_[r];
    const bool has_forward = may_start(rank.forwards, rank.next_forward, now);
    const bool is_full = rank.next_forward - rank.next_weight == 2 * ranks_.size();
    if (has_forward && !is_full) return rank.forwards[rank.next_forward++];
    const bool has_weight = rank.next_weight < rank.next_backward;
    const bool makes_room = has_forward && has_weight;
    if (!makes_room && may_start(rank.backwards, rank.next_backward, now)) {
      return rank.backwards[rank.next_backward++];
    }
    if (!has_weight) return std::nullopt;
    OrderStep step = rank.backwards[rank.next_weight++];
    step.op = Op::backward_weight;
    return step;
  }

  std::vector<RankState> ranks_;
};

/// An EncoderRule is one of the two rules of bubble_steps().
enum class EncoderRule : std::uint8_t { in_idle_time, before_and_after };

class BubbleRun final : public GreedyRun {
 public:
  BubbleRun(const PipelineShape& shape, const OrderTables& tables,
            const std::vector<std::vector<OrderStep>>& fixed, EncoderRule rule)
      : GreedyRun(shape, tables.times), fixed_(fixed), rule_(rule) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int limit = tables.most_held.empty() ? shape.microbatches : tables.most_held[rank];
      ranks_.push_back({0, rank, rank, limit});
    }
  }

 private:
  struct RankState {
    std::size_t next_fixed = 0;
    int next_forward = 0;   ///< microbatch; a rank's microbatches are `ranks` apart
    int next_backward = 0;  ///< likewise
    int most_held = 0;
  };

  bool is_full(const RankState& rank) const {
    return (rank.next_forward - rank.next_backward) / shape_.ranks >= rank.most_held;
  }

  bool may_forward(const RankState& rank) const {
    return rank.next_forward < shape_.microbatches && !is_full(rank);
  }

  bool may_backward(const RankState& rank, bool fixed_ended, Nanoseconds now) const {
    if (rank.next_backward >= rank.next_forward) return false;
    if (!is_ready({Op::backward, 0, rank.next_backward}, now)) return false;
    return rule_ == EncoderRule::in_idle_time || fixed_ended ||
           (rank.next_forward < shape_.microbatches && is_full(rank));
  }

  OrderStep encode(Op op, int& next) const {
    const int microbatch = next;
    next += shape_.ranks;
    return {op, 0, microbatch};
  }

  std::optional<OrderStep> take(int r, Nanoseconds now) override {
    RankState& rank = ranks_[r];
    if (rule_ == EncoderRule::before_and_after && may_forward(rank)) {
      return encode(Op::forward, rank.next_forward);
    }
    const bool fixed_ended = rank.next_fixed == fixed_[r].size();
    if (!fixed_ended && is_ready(fixed_[r][rank.next_fixed], now)) return fixed_[r][rank.next_fixed++];
    if (may_forward(rank)) return encode(Op::forward, rank.next_forward);
    if (may_backward(rank, fixed_ended, now)) return encode(Op::backward, rank.next_backward);
    return std::nullopt;
  }

  const std::vector<std::vector<OrderStep>>& fixed_;
  const EncoderRule rule_;
  std::vector<RankState> ranks_;
};

}  // namespace

std::vector<std::vector<OrderStep>> zb_v_steps(const PipelineShape& shape, const StepTimes& times) {
  SplitRun oldest_first(shape, times, 2 * shape.ranks);
  RhythmRun rhythm(shape, times);
  std::vector<std::vector<OrderStep>> oldest_first_steps = oldest_first.run();
  std::vector<std::vector<OrderStep>> steps = rhythm.run();
  return rhythm.makespan() <= oldest_first.makespan() ? steps : oldest_first_steps;
}

std::vector<std::vector<OrderStep>> bubble_steps(const PipelineShape& shape, const OrderTables& tables,
                                                 const std::vector<std::vector<OrderStep>>& fixed) {
  BubbleRun filled(shape, tables, fixed, EncoderRule::in_idle_time);
  BubbleRun serial(shape, tables, fixed, EncoderRule::before_and_after);
  std::vector<std::vector<OrderStep>> steps = filled.run();
  std::vector<std::vector<OrderStep>> serial_steps = serial.run();
  return filled.makespan() <= serial.makespan() ? steps : serial_steps;
}

}  // namespace dflop
