#include "core/order/pipeline_order.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::string_view kEncoder = "e";

/// These operations are steps of an order; the letters are used in their names.
constexpr std::pair<Op, char> kStepLetters[] = {
    {Op::forward, 'F'}, {Op::backward, 'B'}, {Op::backward_input, 'I'}, {Op::backward_weight, 'W'}};

char letter_of(Op op) {
  const auto row = std::find_if(std::begin(kStepLetters), std::end(kStepLetters),
                                [&](const auto& step) { return step.first == op; });
  return row == std::end(kStepLetters) ? '?' : row->second;
}

std::optional<Op> op_from_letter(char letter) {
  const auto row = std::find_if(std::begin(kStepLetters), std::end(kStepLetters),
                                [&](const auto& step) { return step.second == letter; });
  return row == std::end(kStepLetters) ? std::nullopt : std::optional(row->first);
}

/// Returns the number in a text that consists only of digits, if it is below `limit`.
std::optional<int> number_below(std::string_view text, int limit) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || stop != end || text.front() == '-' || number >= limit) return std::nullopt;
  return number;
}

/// Returns the stage of a rank's chunk. The encoder's stage, which every rank has, does not count as a chunk.
std::optional<int> stage_of_chunk(const PipelineShape& shape, int rank, std::string_view chunk) {
  if (shape.spreads_encoder() && chunk == kEncoder) return 0;
  if (shape.spreads_encoder()) return chunk == "0" ? std::optional(rank + 1) : std::nullopt;
  if (rank < shape.leading) return chunk == "0" ? std::optional(rank) : std::nullopt;
  const std::optional<int> number = number_below(chunk, shape.chunks);
  if (!number) return std::nullopt;
  const int first = shape.leading + *number * shape.ranks;
  const int place = rank - shape.leading;
  const bool up = rank_of_stage(shape, first) != shape.leading && shape.ranks > 1;
  return first + (up ? shape.ranks - 1 - place : place);
}

/// An OrderCheck checks one order.
class OrderCheck {
 public:
  OrderCheck(const PipelineOrder& order, const std::string& where)
      : order_(order),
        shape_(order.shape),
        where_(where),
        forward_at_(cells(), kNowhere),
        backward_at_(cells(), kNowhere),
        weight_at_(cells(), kNowhere),
        forward_done_(cells(), false),
        backward_done_(cells(), false),
        next_(order.ranks.size(), 0) {}

  void run() {
    if (order_.ranks.size() != static_cast<std::size_t>(shape_.all_ranks())) {
      refuse_key(where_, "ranks", "expected {} lists, one for each pipeline rank, found {}",
                 shape_.all_ranks(), order_.ranks.size());
    }
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) check_steps(static_cast<int>(r));
    check_complete();
    for (std::size_t r = 0; r < order_.ranks.size(); ++r) check_channels(static_cast<int>(r));
    check_progress();
  }

 private:
  static constexpr std::int32_t kNowhere = -1;

  std::size_t cells() const { return static_cast<std::size_t>(shape_.stages()) * shape_.microbatches; }
  std::size_t cell(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * shape_.microbatches + microbatch;
  }
  std::string name(Op op, int stage, int microbatch) const {
    return step_name(shape_, {op, stage, microbatch});
  }

  /// Rejects the step at `position` of a rank's list; -1: the whole list.
  template <typename... Values>
  [[noreturn]] void refuse(int rank, std::int64_t position, fmt::format_string<Values...> message,
                           Values&&... values) const {
    const std::string place = position < 0 ? "" : fmt::format("[{}]", position);
    refuse_key(where_, fmt::format("ranks[{}]{}", rank, place), message, std::forward<Values>(values)...);
  }

  /// Checks that each step occurs once, on its rank, and after the steps that it depends on.
  void check_steps(int r) {
    const std::vector<OrderStep>& steps = order_.ranks[r];
    for (std::int64_t k = 0; k < std::ssize(steps); ++k) {
      const OrderStep& step = steps[k];
      const std::string found = step_name(shape_, step);
      const int owner = rank_of_stage(shape_, step.stage, step.microbatch);
      if (owner != r) refuse(r, k, "{} belongs to rank {}", found, owner);
      const std::size_t at = cell(step.stage, step.microbatch);
      const bool is_weight = step.op == Op::backward_weight;
      std::int32_t& own = step.op == Op::forward ? forward_at_[at]
                          : is_weight            ? weight_at_[at]
                                                 : backward_at_[at];
      if (own != kNowhere) check_repeated(r, k, own);
      if (step.op != Op::forward && forward_at_[at] == kNowhere) {
        refuse(r, k, "expected {} before {}", name(Op::forward, step.stage, step.microbatch), found);
      }
      if (is_weight) check_weight(r, k, backward_at_[at]);
      own = static_cast<std::int32_t>(k);
    }
  }

  [[noreturn]] void check_repeated(int r, std::int64_t k, std::int32_t before) const {
    const OrderStep& step = order_.ranks[r][k];
    const OrderStep& other = order_.ranks[r][before];
    if (step.op == other.op) {
      refuse(r, k, "{} is also at position {}", step_name(shape_, step), before);
    }
    refuse(r, k, "{} next to {}: expected a whole backward (B) or its two parts (I, W)",
           step_name(shape_, step), step_name(shape_, other));
  }

  void check_weight(int r, std::int64_t k, std::int32_t backward) const {
    const OrderStep& step = order_.ranks[r][k];
    if (backward == kNowhere) {
      refuse(r, k, "expected {} before {}", name(Op::backward_input, step.stage, step.microbatch),
             step_name(shape_, step));
    }
    if (order_.ranks[r][backward].op == Op::backward) check_repeated(r, k, backward);
  }

  void check_complete() const {
    for (int s = 0; s < shape_.stages(); ++s) {
      for (int j = 0; j < shape_.microbatches; ++j) {
        const int rank = rank_of_stage(shape_, s, j);
        const auto missing = [&](const std::string& what) {
          refuse(rank, -1, "expected {}, found none", what);
        };
        const std::int32_t backward = backward_at_[cell(s, j)];
        if (forward_at_[cell(s, j)] == kNowhere) missing(name(Op::forward, s, j));
        if (backward == kNowhere) {
          missing(name(Op::backward, s, j) + " or " + name(Op::backward_input, s, j));
        }
        const bool split = order_.ranks[rank][backward].op == Op::backward_input;
        if (split && weight_at_[cell(s, j)] == kNowhere) missing(name(Op::backward_weight, s, j));
      }
    }
  }

  /// Checks that results sent by a rank are taken in the order in which they are sent.
  void check_channels(int r) const {
    std::map<std::tuple<int, int, int>, std::int32_t> latest;  // stage, stage and rank of the receiver
    for (const OrderStep& step : order_.ranks[r]) {
      if (step.op == Op::backward_weight) continue;
      const int to = step.op == Op::forward ? step.stage + 1 : step.stage - 1;
      if (to < 0 || to >= shape_.stages()) continue;
      const int receiver = rank_of_stage(shape_, to, step.microbatch);
      if (receiver == r) continue;
      const std::size_t at = cell(to, step.microbatch);
      const std::int32_t taken = step.op == Op::forward ? forward_at_[at] : backward_at_[at];
      std::int32_t& last = latest.try_emplace({step.stage, to, receiver}, kNowhere).first->second;
      if (taken < last) {
        refuse(receiver, taken, "{} comes before {}, which rank {} sends first",
               step_name(shape_, order_.ranks[receiver][taken]),
               step_name(shape_, order_.ranks[receiver][last]), r);
      }
      last = taken;
    }
  }

  /// Returns the step whose result this one waits for, or nothing.
  std::optional<OrderStep> awaited(const OrderStep& step) const {
    if (step.op == Op::backward_weight) return std::nullopt;
    const bool forward = step.op == Op::forward;
    const int from = forward ? step.stage - 1 : step.stage + 1;
    if (from < 0 || from >= shape_.stages()) return std::nullopt;
    if ((forward ? forward_done_ : backward_done_)[cell(from, step.microbatch)]) return std::nullopt;
    return OrderStep{step.op, from, step.microbatch};
  }

  /// Runs all ranks as far as they get, ignoring time.
  void check_progress() {
    std::vector<int> ready;
    for (int r = shape_.all_ranks(); r-- > 0;) ready.push_back(r);
    while (!ready.empty()) {
      const int r = ready.back();
      ready.pop_back();
      for (; next_[r] < order_.ranks[r].size() && !awaited(order_.ranks[r][next_[r]]); ++next_[r]) {
        const OrderStep& step = order_.ranks[r][next_[r]];
        if (step.op == Op::backward_weight) continue;
        const bool forward = step.op == Op::forward;
        (forward ? forward_done_ : backward_done_)[cell(step.stage, step.microbatch)] = true;
        const int to = forward ? step.stage + 1 : step.stage - 1;
        if (to >= 0 && to < shape_.stages()) ready.push_back(rank_of_stage(shape_, to, step.microbatch));
      }
    }
    for (int r = 0; r < shape_.all_ranks(); ++r) {
      if (next_[r] < order_.ranks[r].size()) refuse_stall(r);
    }
  }

  [[noreturn]] void refuse_stall(int r) const {
    const OrderStep& step = order_.ranks[r][next_[r]];
    const OrderStep other = *awaited(step);
    const int rank = rank_of_stage(shape_, other.stage, other.microbatch);
    const Op op = other.op == Op::forward ? Op::forward : made_by(other).op;
    refuse(r, static_cast<std::int64_t>(next_[r]),
           "deadlock: {} waits for {} of rank {}, which is never reached", step_name(shape_, step),
           name(op, other.stage, other.microbatch), rank);
  }

  /// Returns the backward, or its input part, of a step's stage and microbatch.
  const OrderStep& made_by(const OrderStep& step) const {
    const int rank = rank_of_stage(shape_, step.stage, step.microbatch);
    return order_.ranks[rank][backward_at_[cell(step.stage, step.microbatch)]];
  }

  const PipelineOrder& order_;
  const PipelineShape& shape_;
  const std::string& where_;
  /// These are positions of steps in the lists of their ranks.
  std::vector<std::int32_t> forward_at_;
  std::vector<std::int32_t> backward_at_;  ///< whole or input part
  std::vector<std::int32_t> weight_at_;
  std::vector<bool> forward_done_;
  std::vector<bool> backward_done_;
  std::vector<std::size_t> next_;  ///< per rank
};

}  // namespace

std::string step_name(const PipelineShape& shape, const OrderStep& step) {
  std::string name = letter_of(step.op) + std::to_string(step.microbatch);
  if (shape.spreads_encoder()) {
    if (step.stage == 0) name += "." + std::string(kEncoder);
  } else if (step.stage >= shape.leading + shape.ranks) {
    name += "." + std::to_string((step.stage - shape.leading) / shape.ranks);
  }
  return name;
}

std::optional<OrderStep> step_from_name(const PipelineShape& shape, int rank, std::string_view name) {
  if (name.empty()) return std::nullopt;
  const std::optional<Op> op = op_from_letter(name.front());
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view chunk = dot < name.size() ? name.substr(dot + 1) : "0";
  if (!op || dot < 2 || chunk.empty()) return std::nullopt;
  const std::optional<int> microbatch = number_below(name.substr(1, dot - 1), shape.microbatches);
  const std::optional<int> stage = stage_of_chunk(shape, rank, chunk);
  if (!microbatch || !stage) return std::nullopt;
  return OrderStep{*op, *stage, *microbatch};
}

void validate(const PipelineOrder& order, const std::string& where) {
  OrderCheck(order, where).run();
}

}  // namespace dflop
