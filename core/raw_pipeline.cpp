#include "core/raw_pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr double kMostSeconds = 1e6;
constexpr double kMostBytes = 0x1p60;

std::string found(std::size_t expected, const std::string& what, std::size_t size) {
  return "expected " + std::to_string(expected) + " " + what + ", found " + std::to_string(size);
}

/// Refuses what is wrong with one pipeline, by key.
class Validation {
 public:
  Validation(const RawPipeline& pipeline, const std::string& where) : pipeline_(pipeline), where_(where) {}

  void run() {
    const PipelineShape& shape = pipeline_.shape;
    validate(shape, where_);
    if (splits_backward(shape.kind) && !pipeline_.backward_weight) {
      refuse("backward_weight_s",
             "expected this key for " + std::string(to_string(shape.kind)) + ", found none");
    }
    check_link("link", pipeline_.link);
    check_link("shared_link", pipeline_.shared_link);
    const std::size_t stages = shape.stages();
    double seconds = sum("forward_s", pipeline_.forward, stages);
    seconds += sum("backward_s", pipeline_.backward, stages);
    if (pipeline_.backward_weight) {
      seconds += sum("backward_weight_s", *pipeline_.backward_weight, stages);
    }
    if (pipeline_.activation) check_bytes("activation_bytes", *pipeline_.activation, stages);
    const double bytes = check_bytes("p2p_bytes", pipeline_.message, stages - 1);
    const auto path = pipeline_.path();
    if (bytes > 0 && !path) refuse("link", "expected this key beside p2p_bytes, found none");
    if (path) {
      const double messages = 2.0 * static_cast<double>(stages - 1) * shape.microbatches;
      seconds += path->latency.count() * messages + 2 * bytes / path->bytes_per_second;
    }
    if (!(seconds <= kMostSeconds)) {
      throw Error(ErrorKind::input,
                  "expected durations and messages of at most 1000000 s together, found " +
                      std::to_string(std::llround(std::min(seconds, 1e18))) + " s",
                  where_);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& message) const {
    throw Error(ErrorKind::input, message, where_ + ": key '" + key + "'");
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
      refuse(key, found(rows, "rows", table.rows.size()));
    }
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const std::size_t size = table.rows[r].size();
      if (size != 1 && size != columns) {
        refuse(key + "[" + std::to_string(r) + "]", found(columns, "values, one for each microbatch", size));
      }
    }
  }

  static double number(Seconds value) { return value.count(); }
  static double number(Bytes value) { return static_cast<double>(value.count); }

  /// Sum of a well-formed table of `rows` rows, broadcast.
  template <typename Value>
  double sum(const std::string& key, const BroadcastTable<Value>& table, std::size_t rows) const {
    check_table(key, table, rows);
    const double row_weight = table.rows.size() == 1 ? static_cast<double>(rows) : 1;
    double total = 0;
    for (const auto& row : table.rows) {
      const double weight = row_weight * (row.size() == 1 ? pipeline_.shape.microbatches : 1);
      for (const Value& value : row) {
        if (!std::isfinite(number(value)) || number(value) < 0) {
          refuse(key, "expected numbers of at least 0");
        }
        total += weight * number(value);
      }
    }
    return total;
  }

  double check_bytes(const std::string& key, const BroadcastTable<Bytes>& table, std::size_t rows) const {
    const double total = sum(key, table, rows);
    if (total > kMostBytes) refuse(key, "expected at most 2^60 bytes in all");
    return total;
  }

  const RawPipeline& pipeline_;
  const std::string& where_;
};

class Builder {
 public:
  explicit Builder(const RawPipeline& pipeline)
      : pipeline_(pipeline), shape_(pipeline.shape), microbatches_(shape_.microbatches) {}

  PricedPipeline build() {
    Program& program = result_.program;
    program.microbatches = shape_.microbatches;
    program.stages.assign(shape_.stages(), Stage{});
    program.works.assign(1, Work{});
    make_times();
    add_messages();
    const auto steps = pipeline_steps(shape_, times_);
    for (int rank = 0; rank < shape_.ranks; ++rank) add_group(rank, steps[rank]);
    return std::move(result_);
  }

 private:
  std::size_t cell(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * microbatches_ + microbatch;
  }

  /// Whether stages `boundary` and `boundary` + 1 are there and on different ranks.
  bool has_messages(int boundary) const {
    return boundary >= 0 && boundary + 1 < shape_.stages() &&
           rank_of_stage(shape_, boundary) != rank_of_stage(shape_, boundary + 1);
  }

  Nanoseconds message_time(Bytes bytes) const {
    const auto path = pipeline_.path();
    if (!path) return Nanoseconds(0);
    return to_nanoseconds(path->latency + Seconds(static_cast<double>(bytes.count) / path->bytes_per_second));
  }

  void make_times() {
    const bool split = splits_backward(shape_.kind);
    for (int s = 0; s < shape_.stages(); ++s) {
      for (int j = 0; j < microbatches_; ++j) {
        Nanoseconds backward = to_nanoseconds(pipeline_.backward.at(s, j));
        if (pipeline_.backward_weight) {
          const Nanoseconds weight = to_nanoseconds(pipeline_.backward_weight->at(s, j));
          if (split) {
            times_.backward_weight.push_back(weight);
          } else {
            backward += weight;
          }
        }
        times_.forward.push_back(to_nanoseconds(pipeline_.forward.at(s, j)));
        times_.backward.push_back(backward);
        if (s + 1 < shape_.stages()) times_.message.push_back(message_time(pipeline_.message.at(s, j)));
      }
    }
  }

  void add_messages() {
    first_message_.assign(shape_.stages(), -1);
    for (int s = 0; s < shape_.stages(); ++s) {
      if (!has_messages(s)) continue;
      first_message_[s] = static_cast<std::int32_t>(result_.program.messages.size());
      const std::int32_t below = rank_of_stage(shape_, s);
      const std::int32_t above = rank_of_stage(shape_, s + 1);
      for (int j = 0; j < microbatches_; ++j) {
        const Bytes bytes = pipeline_.message.at(s, j);
        result_.program.messages.push_back({below, above, j, bytes, bytes});
        result_.program.messages.push_back({above, below, j, bytes, bytes});
        result_.costs.message.insert(result_.costs.message.end(), 2, times_.message[cell(s, j)]);
      }
    }
  }

  void add_group(int rank, const std::vector<ScheduleStep>& steps) {
    Group group;
    group.first_rank = rank;
    group.stage = rank;  // the first of its stages
    group.begin = static_cast<std::int64_t>(result_.program.instructions.size());
    for (const ScheduleStep& step : steps) add_step(step);
    group.end = static_cast<std::int64_t>(result_.program.instructions.size());
    result_.program.groups.push_back(group);
    result_.costs.model_state.emplace_back();
  }

  void add_step(const ScheduleStep& step) {
    const int below = step.stage - 1;
    if (step.op == Op::forward) add_exchange(Op::receive, step, below, 0);
    if (step.op == Op::backward || step.op == Op::backward_input) {
      add_exchange(Op::receive, step, step.stage, 1);
    }
    add_compute(step);
    if (step.op == Op::forward) add_exchange(Op::send, step, step.stage, 0);
    if (step.op == Op::backward || step.op == Op::backward_input) add_exchange(Op::send, step, below, 1);
  }

  /// `direction`: 0 for activations, 1 for gradients.
  void add_exchange(Op op, const ScheduleStep& step, int boundary, int direction) {
    if (!has_messages(boundary)) return;
    add(op, step, first_message_[boundary] + 2 * step.microbatch + direction, Nanoseconds(0), Bytes{});
  }

  void add_compute(const ScheduleStep& step) {
    const std::size_t at = cell(step.stage, step.microbatch);
    const Nanoseconds duration = step.op == Op::forward           ? times_.forward[at]
                                 : step.op == Op::backward_weight ? times_.backward_weight[at]
                                                                  : times_.backward[at];
    const bool keeps = pipeline_.activation && step.op != Op::backward_input;
    add(step.op, step, 0, duration, keeps ? pipeline_.activation->at(step.stage, step.microbatch) : Bytes{});
  }

  void add(Op op, const ScheduleStep& step, std::int32_t index, Nanoseconds duration, Bytes activation) {
    result_.program.instructions.push_back(
        {op, static_cast<std::uint16_t>(step.stage), step.microbatch, index});
    result_.costs.instruction.push_back(duration);
    result_.costs.activation.push_back(activation);
    result_.costs.workspace.push_back(Bytes{});
  }

  const RawPipeline& pipeline_;
  const PipelineShape& shape_;
  const int microbatches_;
  StepTimes times_;
  std::vector<std::int32_t> first_message_;  ///< per boundary: activation and gradient of each microbatch
  PricedPipeline result_;
};

}  // namespace

std::optional<RawLink> RawPipeline::path() const {
  if (!link || !shared_link) return link ? link : shared_link;
  return RawLink{link->latency + shared_link->latency,
                 std::min(link->bytes_per_second, shared_link->bytes_per_second)};
}

void validate(const RawPipeline& pipeline, const std::string& where) {
  Validation(pipeline, where).run();
}

PricedPipeline make_program(const RawPipeline& pipeline) {
  validate(pipeline);
  return Builder(pipeline).build();
}

}  // namespace dflop
