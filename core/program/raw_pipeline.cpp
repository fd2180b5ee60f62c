#include "core/program/raw_pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr double kMaxSeconds = 1e6;
constexpr double kMaxBytes = 0x1p60;

/// A Validation rejects errors in one pipeline, naming the key.
class Validation {
 public:
  Validation(const RawPipeline& pipeline, const std::string& where) : pipeline_(pipeline), where_(where) {}

  void run() {
    const PipelineShape& shape = pipeline_.shape;
    validate(shape, where_);
    if (splits_backward(shape.kind) && !pipeline_.backward_weight) {
      refuse("backward_weight_s", "expected this key for {}, found none", to_string(shape.kind));
    }
    check_encoder();
    check_limits();
    check_link("link", pipeline_.link);
    check_link("shared_link", pipeline_.shared_link);
    const std::size_t stages = std::size_t(shape.ranks) * shape.chunks;
    double seconds = sum("forward_s", pipeline_.forward, stages);
    seconds += sum("backward_s", pipeline_.backward, stages);
    if (pipeline_.backward_weight) {
      seconds += sum("backward_weight_s", *pipeline_.backward_weight, stages);
    }
    if (pipeline_.activation) check_bytes("activation_bytes", *pipeline_.activation, stages);
    double bytes = check_bytes("p2p_bytes", pipeline_.message, stages - 1);
    const auto path = pipeline_.path();
    if (bytes > 0 && !path) refuse("link", "expected this key with p2p_bytes, found none");
    if (pipeline_.encoder) {
      seconds += sum("encoder_forward_s", pipeline_.encoder->forward, 1);
      seconds += sum("encoder_backward_s", pipeline_.encoder->backward, 1);
      bytes += check_bytes("encoder_bytes", pipeline_.encoder->message, 1);
      if (bytes > 0 && !path) refuse("link", "expected this key with encoder_bytes, found none");
    }
    if (path) {
      const double messages = 2.0 * static_cast<double>(shape.stages() - 1) * shape.microbatches;
      seconds += path->latency.count() * messages + 2 * bytes / path->bytes_per_second;
    }
    if (!(seconds <= kMaxSeconds)) {
      refuse_input(where_, "expected durations and messages of at most 1000000 s in total, found {} s",
                   std::llround(std::min(seconds, 1e18)));
    }
  }

 private:
  template <typename... Values>
  [[noreturn]] void refuse(const std::string& key, fmt::format_string<Values...> message,
                           Values&&... values) const {
    refuse_key(where_, key, message, std::forward<Values>(values)...);
  }

  void check_encoder() const {
    const bool wanted = pipeline_.shape.spreads_encoder();
    if (wanted == pipeline_.encoder.has_value()) return;
    refuse("encoder_forward_s", "expected {} key for {}, found {}", wanted ? "this" : "no such",
           to_string(pipeline_.shape.kind), wanted ? "none" : "one");
  }

  void check_limits() const {
    const std::vector<int>& limits = pipeline_.activation_limit;
    const PipelineShape& shape = pipeline_.shape;
    if (limits.empty()) return;
    if (!traits(shape.kind).reads_limits) {
      refuse("activation_limit", "expected no such key for {}, found one", to_string(shape.kind));
    }
    if (limits.size() != 1 && limits.size() != static_cast<std::size_t>(shape.ranks)) {
      refuse("activation_limit", "expected {} values, one for each stage, found {}", shape.ranks,
             limits.size());
    }
    const int least = *std::min_element(limits.begin(), limits.end());
    if (least < 1) refuse("activation_limit", "expected at least 1, found {}", least);
  }

  void check_link(const std::string& key, const std::optional<RawLink>& link) const {
    if (!link) return;
    if (!std::isfinite(link->latency.count()) || link->latency.count() < 0) {
      refuse(key + ".latency_s", "expected a number of at least 0");
    }
    if (!std::isfinite(link->bytes_per_second) || link->bytes_per_second <= 0) {
      refuse(key + ".bandwidth_bytes_per_s", "expected a number above 0");
    }
  }

  template <typename Value>
  void check_table(const std::string& key, const BroadcastTable<Value>& table, std::size_t rows) const {
    const std::size_t columns = pipeline_.shape.microbatches;
    if (table.rows.size() != 1 && table.rows.size() != rows) {
      refuse(key, "expected {} rows, found {}", rows, table.rows.size());
    }
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const std::size_t size = table.rows[r].size();
      if (size == 1 || size == columns) continue;
      refuse(fmt::format("{}[{}]", key, r), "expected {} values, one for each microbatch, found {}", columns,
             size);
    }
  }

  static double number(Seconds value) { return value.count(); }
  static double number(Bytes value) { return static_cast<double>(value.count); }

  /// Returns the sum of a well-formed table, broadcast to `rows` rows.
  template <typename Value>
  double sum(const std::string& key, const BroadcastTable<Value>& table, std::size_t rows) const {
    check_table(key, table, rows);
    const double row_weight = table.rows.size() == 1 ? static_cast<double>(rows) : 1;
    double total = 0;
    for (const auto& row : table.rows) {
      const double weight = row_weight * (row.size() == 1 ? pipeline_.shape.microbatches : 1);
      for (const Value& value : row) {
        if (!std::isfinite(number(value)) || number(value) < 0) refuse(key, "expected numbers of at least 0");
        total += weight * number(value);
      }
    }
    return total;
  }

  double check_bytes(const std::string& key, const BroadcastTable<Bytes>& table, std::size_t rows) const {
    const double total = sum(key, table, rows);
    if (total > kMaxBytes) refuse(key, "expected at most 2^60 bytes in total");
    return total;
  }

  const RawPipeline& pipeline_;
  const std::string& where_;
};

/// A StepClock has the duration of each step and message of a pipeline. With an encoder on all ranks, stage 0
/// is the encoder, and boundary 0 is between it and the first stage of the tables.
class StepClock {
 public:
  explicit StepClock(const RawPipeline& pipeline)
      : pipeline_(pipeline), path_(pipeline.path()), encoder_(pipeline.shape.spreads_encoder() ? 1 : 0) {}

  Nanoseconds forward(int stage, int microbatch) const {
    return to_nanoseconds(stage < encoder_ ? pipeline_.encoder->forward.at(0, microbatch)
                                           : pipeline_.forward.at(stage - encoder_, microbatch));
  }
  /// Returns the duration of the input part if there are weight parts.
  Nanoseconds backward(int stage, int microbatch) const {
    return to_nanoseconds(stage < encoder_ ? pipeline_.encoder->backward.at(0, microbatch)
                                           : pipeline_.backward.at(stage - encoder_, microbatch));
  }
  /// Returns zero if the pipeline has no weight parts.
  Nanoseconds backward_weight(int stage, int microbatch) const {
    if (!pipeline_.backward_weight || stage < encoder_) return Nanoseconds(0);
    return to_nanoseconds(pipeline_.backward_weight->at(stage - encoder_, microbatch));
  }
  Nanoseconds message(int boundary, int microbatch) const {
    if (!path_) return Nanoseconds(0);
    return to_nanoseconds(
        path_->latency +
        Seconds(static_cast<double>(bytes_over(boundary, microbatch).count) / path_->bytes_per_second));
  }
  Bytes bytes_over(int boundary, int microbatch) const {
    return boundary < encoder_ ? pipeline_.encoder->message.at(0, microbatch)
                               : pipeline_.message.at(boundary - encoder_, microbatch);
  }

 private:
  const RawPipeline& pipeline_;
  std::optional<RawLink> path_;
  int encoder_;  ///< number of stages before the tables' stages
};

/// Returns the durations of all steps of a pipeline. If backwards are split, `backward` is the input part.
StepTimes times_of(const RawPipeline& pipeline, bool split) {
  const PipelineShape& shape = pipeline.shape;
  const StepClock clock(pipeline);
  StepTimes times;
  for (int s = 0; s < shape.stages(); ++s) {
    for (int j = 0; j < shape.microbatches; ++j) {
      const Nanoseconds weight = clock.backward_weight(s, j);
      times.forward.push_back(clock.forward(s, j));
      times.backward.push_back(clock.backward(s, j) + (split ? Nanoseconds(0) : weight));
      if (split && pipeline.backward_weight) times.backward_weight.push_back(weight);
      if (s + 1 < shape.stages()) times.message.push_back(clock.message(s, j));
    }
  }
  return times;
}

bool splits_backward(const PipelineOrder& order) {
  const auto splits = [](const OrderStep& step) { return step.op == Op::backward_input; };
  return std::any_of(order.ranks.begin(), order.ranks.end(), [&](const std::vector<OrderStep>& steps) {
    return std::any_of(steps.begin(), steps.end(), splits);
  });
}

class Builder {
 public:
  Builder(const RawPipeline& pipeline, const PipelineOrder& order)
      : pipeline_(pipeline),
        order_(order),
        shape_(order.shape),
        microbatches_(shape_.microbatches),
        clock_(pipeline) {}

  PricedProgram build() {
    Program& program = result_.program;
    program.microbatches = shape_.microbatches;
    program.stages.assign(shape_.stages(), Stage{});
    program.works.assign(1, Work{});
    reserve();
    add_messages();
    const std::vector<std::vector<int>> stages = stages_of_ranks(shape_);
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      add_group(rank, stages[rank][shape_.spreads_encoder() ? 1 : 0]);
    }
    return std::move(result_);
  }

 private:
  std::size_t cell(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * microbatches_ + microbatch;
  }

  /// Reserves space for all steps and, for each boundary and microbatch, two messages with a send and a
  /// receive each: tables that grow by doubling would take twice the memory.
  void reserve() {
    const std::size_t messages = 2 * cell(shape_.stages() - 1, 0);
    std::size_t instructions = 2 * messages;
    for (const std::vector<OrderStep>& steps : order_.ranks) instructions += steps.size();
    result_.program.messages.reserve(messages);
    result_.costs.message.reserve(messages);
    result_.program.instructions.reserve(instructions);
    result_.costs.instruction.reserve(instructions);
    if (pipeline_.activation) result_.costs.activation.reserve(instructions);
  }

  void add_messages() {
    Program& program = result_.program;
    first_message_.assign(cell(shape_.stages() - 1, 0), -1);
    for (int s = 0; s + 1 < shape_.stages(); ++s) {
      for (int j = 0; j < microbatches_; ++j) {
        const std::int32_t below = rank_of_stage(shape_, s, j);
        const std::int32_t above = rank_of_stage(shape_, s + 1, j);
        if (below == above) continue;
        first_message_[cell(s, j)] = static_cast<std::int32_t>(program.messages.size());
        const Bytes bytes = clock_.bytes_over(s, j);
        program.messages.push_back({below, above, j, bytes, bytes});
        program.messages.push_back({above, below, j, bytes, bytes});
        result_.costs.message.insert(result_.costs.message.end(), 2, clock_.message(s, j));
      }
    }
  }

  void add_group(int rank, int stage) {
    Group group;
    group.first_rank = rank;
    group.stage = stage;
    group.begin = static_cast<std::int64_t>(result_.program.instructions.size());
    for (const OrderStep& step : order_.ranks[rank]) add_step(step);
    group.end = static_cast<std::int64_t>(result_.program.instructions.size());
    result_.program.groups.push_back(group);
    result_.costs.model_state.emplace_back();
  }

  void add_step(const OrderStep& step) {
    const bool forward = step.op == Op::forward;
    const bool exchanges = step.op != Op::backward_weight;
    if (exchanges) add_exchange(Op::receive, step, forward ? step.stage - 1 : step.stage, forward ? 0 : 1);
    add_compute(step);
    if (exchanges) add_exchange(Op::send, step, forward ? step.stage : step.stage - 1, forward ? 0 : 1);
  }

  /// Adds a send or a receive. `direction` is 0 for activations and 1 for gradients. Stages on one rank
  /// exchange no messages.
  void add_exchange(Op op, const OrderStep& step, int boundary, int direction) {
    if (boundary < 0 || boundary + 1 >= shape_.stages()) return;
    const std::int32_t first = first_message_[cell(boundary, step.microbatch)];
    if (first >= 0) add(op, step, first + direction, Nanoseconds(0), Bytes{});
  }

  void add_compute(const OrderStep& step) {
    add(step.op, step, 0, duration(step), step.op == Op::backward_input ? Bytes{} : activation(step));
  }

  /// A whole backward takes as long as its two parts.
  Nanoseconds duration(const OrderStep& step) const {
    if (step.op == Op::forward) return clock_.forward(step.stage, step.microbatch);
    if (step.op == Op::backward_weight) return clock_.backward_weight(step.stage, step.microbatch);
    const Nanoseconds input = clock_.backward(step.stage, step.microbatch);
    if (step.op == Op::backward_input) return input;
    return input + clock_.backward_weight(step.stage, step.microbatch);
  }

  Bytes activation(const OrderStep& step) const {
    const int row = step.stage - (shape_.spreads_encoder() ? 1 : 0);
    return pipeline_.activation && row >= 0 ? pipeline_.activation->at(row, step.microbatch) : Bytes{};
  }

  void add(Op op, const OrderStep& step, std::int32_t index, Nanoseconds duration, Bytes activation) {
    result_.program.instructions.push_back(
        {op, static_cast<std::uint16_t>(step.stage), step.microbatch, index});
    result_.costs.instruction.push_back(duration);
    if (pipeline_.activation) result_.costs.activation.push_back(activation);
  }

  const RawPipeline& pipeline_;
  const PipelineOrder& order_;
  const PipelineShape& shape_;
  const int microbatches_;
  StepClock clock_;
  std::vector<std::int32_t> first_message_;  ///< per boundary and microbatch, its activation; -1: none
  PricedProgram result_;
};

/// Returns the order of a valid pipeline.
PipelineOrder order_of(const RawPipeline& pipeline) {
  const PipelineShape& shape = pipeline.shape;
  OrderTables tables;
  if (reads_tables(shape.kind)) {
    tables.times = times_of(pipeline, splits_backward(shape.kind));
    tables.most_held = pipeline.activation_limit;
    if (tables.most_held.size() == 1) tables.most_held.resize(shape.ranks, tables.most_held.front());
  }
  return {shape, pipeline_steps(shape, tables)};
}

}  // namespace

std::optional<RawLink> RawPipeline::path() const {
  if (!link || !shared_link) return link ? link : shared_link;
  return RawLink{link->latency + shared_link->latency,
                 std::min(link->bytes_per_second, shared_link->bytes_per_second)};
}

void validate(const RawPipeline& pipeline, const std::string& where) {
  Validation(pipeline, where).run();
}

PipelineOrder pipeline_order(const RawPipeline& pipeline) {
  validate(pipeline);
  return order_of(pipeline);
}

PricedProgram make_program(const RawPipeline& pipeline) {
  return make_program(pipeline, pipeline_order(pipeline));
}

PricedProgram make_program(const RawPipeline& pipeline, const PipelineOrder& order,
                           const std::string& where) {
  validate(pipeline, where);
  if (splits_backward(order) && !pipeline.backward_weight) {
    refuse_key(where, "backward_weight_s",
               "expected this key for an order that splits backwards, found none");
  }
  return Builder(pipeline, order).build();
}

}  // namespace dflop
