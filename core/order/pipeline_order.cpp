#include "core/order/pipeline_order.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/order/greedy.hpp"
#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Returns `warm_up` forwards, then one forward and one backward in turn, and the remaining backwards. With a
/// `lag`, backwards are split, and weight parts are that many microbatches behind the input parts.
std::vector<OrderStep> one_f_one_b(int stage, int microbatches, int warm_up, std::optional<int> lag = {}) {
  warm_up = std::min(warm_up, microbatches);
  std::vector<OrderStep> steps;
  for (int j = 0; j < warm_up; ++j) steps.push_back({Op::forward, stage, j});
  for (int j = 0; j < microbatches; ++j) {
    if (warm_up + j < microbatches) steps.push_back({Op::forward, stage, warm_up + j});
    steps.push_back({lag ? Op::backward_input : Op::backward, stage, j});
    if (lag && j >= *lag) steps.push_back({Op::backward_weight, stage, j - *lag});
  }
  for (int j = std::max(0, microbatches - lag.value_or(0)); j < microbatches; ++j) {
    steps.push_back({Op::backward_weight, stage, j});
  }
  return steps;
}

/// A ChunkOrder computes the chunk and microbatch of the k-th forward on any rank of an interleaved order.
/// Backwards are in the same order with the chunks reversed.
struct ChunkOrder {
  int group;  ///< microbatches; the last group may have fewer
  int chunks;
  int microbatches;

  int first(int k) const { return k / (group * chunks) * group; }
  int size(int k) const { return std::min(group, microbatches - first(k)); }
  int chunk(int k) const { return k % (group * chunks) / size(k); }
  int microbatch(int k) const { return first(k) + k % (group * chunks) % size(k); }
};

std::vector<OrderStep> interleaved(const PipelineShape& shape, int rank) {
  const int group = interleaved_group(shape.ranks, shape.microbatches);
  const ChunkOrder order{group, shape.chunks, shape.microbatches};
  const int total = shape.chunks * shape.microbatches;
  const int warm_up = std::min(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * group, total);
  std::vector<OrderStep> steps;
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

/// Returns how many microbatches each rank of an eager-1f1b holds. The numbers fall from rank to rank, down
/// to 1f1b's: a rank that held as many as the one before it would run each forward only after that
/// rank's last backward, and the two would take turns.
std::vector<int> eager_held(int ranks, const std::vector<int>& most_held) {
  std::vector<int> held;
  for (int rank = 0; rank < ranks; ++rank) {
    const int of_1f1b = ranks - rank;
    int most = 2 * of_1f1b - 1;
    if (!most_held.empty()) most = std::min(most, most_held[rank]);
    if (rank > 0) most = std::min({most, held.back(), std::max(held.back() - 1, of_1f1b)});
    held.push_back(most);
  }
  return held;
}

using Steps = OrderTraits::Steps;

/// Calls `steps(rank)` for each rank.
template <typename RankSteps>
Steps of_each_rank(const PipelineShape& shape, const RankSteps& rank_steps) {
  Steps steps;
  for (int rank = 0; rank < shape.ranks; ++rank) steps.push_back(rank_steps(rank));
  return steps;
}

Steps gpipe_steps(const PipelineShape& shape, const OrderTables&) {
  return of_each_rank(shape, [&](int rank) {
    std::vector<OrderStep> steps;
    for (int j = 0; j < shape.microbatches; ++j) steps.push_back({Op::forward, rank, j});
    for (int j = 0; j < shape.microbatches; ++j) steps.push_back({Op::backward, rank, j});
    return steps;
  });
}

Steps one_f_one_b_steps(const PipelineShape& shape, const OrderTables&) {
  return of_each_rank(
      shape, [&](int rank) { return one_f_one_b(rank, shape.microbatches, shape.ranks - rank - 1); });
}

Steps interleaved_steps(const PipelineShape& shape, const OrderTables& tables) {
  if (shape.chunks == 1) return one_f_one_b_steps(shape, tables);
  return of_each_rank(shape, [&](int rank) { return interleaved(shape, rank); });
}

Steps zb_h1_steps(const PipelineShape& shape, const OrderTables&) {
  return of_each_rank(
      shape, [&](int rank) { return one_f_one_b(rank, shape.microbatches, shape.ranks - rank - 1, rank); });
}

OrderKind zb_h2_acts_as(int ranks, int microbatches) {
  return microbatches < 2 * ranks - 1 ? OrderKind::zb_h1 : OrderKind::zb_h2;
}

bool is_zb_h1(const PipelineShape& shape) {
  return zb_h2_acts_as(shape.ranks, shape.microbatches) == OrderKind::zb_h1;
}

Steps zb_h2_steps(const PipelineShape& shape, const OrderTables& tables) {
  if (is_zb_h1(shape)) return zb_h1_steps(shape, tables);
  return of_each_rank(shape, [&](int rank) {
    return one_f_one_b(rank, shape.microbatches, 2 * (shape.ranks - rank - 1), 2 * rank);
  });
}

Steps zb_v_steps_of(const PipelineShape& shape, const OrderTables& tables) {
  return zb_v_steps(shape, tables.times);
}

Steps eager_steps(const PipelineShape& shape, const OrderTables& tables) {
  const std::vector<int> held = eager_held(shape.ranks, tables.most_held);
  return of_each_rank(shape, [&](int rank) { return one_f_one_b(rank, shape.microbatches, held[rank] - 1); });
}

/// Returns 1f1b on the stages after a spread encoder.
Steps one_f_one_b_after_encoder(const PipelineShape& shape) {
  Steps steps = one_f_one_b_steps(shape, {});
  for (std::vector<OrderStep>& of_rank : steps) {
    for (OrderStep& step : of_rank) ++step.stage;
  }
  return steps;
}

Steps bubble_steps_of(const PipelineShape& shape, const OrderTables& tables) {
  return bubble_steps(shape, tables, one_f_one_b_after_encoder(shape));
}

Steps three_phase_steps(const PipelineShape& shape, const OrderTables&) {
  const Steps llm = one_f_one_b_after_encoder(shape);
  return of_each_rank(shape, [&](int rank) {
    std::vector<OrderStep> steps;
    for (int j = rank; j < shape.microbatches; j += shape.ranks) steps.push_back({Op::forward, 0, j});
    steps.insert(steps.end(), llm[rank].begin(), llm[rank].end());
    for (int j = rank; j < shape.microbatches; j += shape.ranks) steps.push_back({Op::backward, 0, j});
    return steps;
  });
}

/// The first rank of p needs the encoder's outputs of microbatch g p when rank r runs the forward of
/// microbatch g p - r or a later one, and it has all gradients of unit g when rank r has run the backward of
/// microbatch g p + p - 1 + r or an earlier one. So no encoder step waits long, and none waits for a step
/// that waits for it.
Steps on_demand_steps(const PipelineShape& shape, const OrderTables&) {
  const Steps llm = one_f_one_b_after_encoder(shape);
  return of_each_rank(shape, [&](int rank) {
    const int last = shape.microbatches - 1;
    int next_forward = rank;   // the microbatch that this rank encodes next
    int next_backward = rank;  // likewise
    std::vector<OrderStep> steps;
    for (const OrderStep& step : llm[rank]) {
      if (step.op == Op::forward) {
        for (; next_forward <= last && next_forward - 2 * rank <= step.microbatch;
             next_forward += shape.ranks)
          steps.push_back({Op::forward, 0, next_forward});
      }
      steps.push_back(step);
      if (step.op == Op::forward) continue;
      for (; next_backward <= last && std::min(last, next_backward + shape.ranks - 1) <= step.microbatch;
           next_backward += shape.ranks)
        steps.push_back({Op::backward, 0, next_backward});
    }
    return steps;
  });
}

int holds_all(const PipelineShape& shape, int) {
  return shape.microbatches;
}

int holds_one(const PipelineShape&, int) {
  return 1;
}

/// Returns 1f1b's warm-up plus one.
int one_f_one_b_held(const PipelineShape& shape, int rank) {
  return std::min(shape.microbatches, shape.all_ranks() - rank);
}

/// Returns the number of microbatches that a leading stage holds if ranks with several chunks follow it. Such
/// ranks hold more microbatches than ranks with one stage. `group`: microbatches of one chunk in a row
int leading_held(const PipelineShape& shape, int rank, int group) {
  return std::min(shape.microbatches, shape.leading - rank + 2 * group);
}

int interleaved_held(const PipelineShape& shape, int rank) {
  const int after = shape.all_ranks() - rank - 1;
  const int group = interleaved_group(shape.ranks, shape.microbatches);
  if (rank < shape.leading) return leading_held(shape, rank, group);
  return std::min(shape.microbatches * shape.chunks, 2 * after + (shape.chunks - 1) * group + 1);
}

int zb_h1_held(const PipelineShape& shape, int) {
  return std::min(shape.microbatches, shape.ranks);
}

int zb_h2_held(const PipelineShape& shape, int) {
  return std::min(shape.microbatches, is_zb_h1(shape) ? shape.ranks : 2 * shape.ranks - 1);
}

int zb_v_held(const PipelineShape& shape, int rank) {
  if (rank < shape.leading) return leading_held(shape, rank, shape.ranks);
  return std::min(shape.microbatches, shape.ranks) * shape.chunks;
}

constexpr OrderTraits kOrders[] = {
    {.kind = OrderKind::gpipe,
     .name = "gpipe",
     .is_usual = true,
     .is_searched = false,  // as slow as 1f1b, with more memory
     .steps = gpipe_steps,
     .most_held = holds_all,
     .surely_held = holds_all},
    {.kind = OrderKind::one_f_one_b,
     .name = "1f1b",
     .is_usual = true,
     .steps = one_f_one_b_steps,
     .most_held = one_f_one_b_held,
     .surely_held = one_f_one_b_held},
    {.kind = OrderKind::interleaved,
     .name = "interleaved",
     .chunks = OrderTraits::kSeveralChunks,
     .in_rounds = true,
     .steps = interleaved_steps,
     .most_held = interleaved_held,
     .surely_held = holds_one},
    {.kind = OrderKind::zb_h1,
     .name = "zb-h1",
     .splits_backward = true,
     .steps = zb_h1_steps,
     .most_held = zb_h1_held,
     .surely_held = one_f_one_b_held},
    {.kind = OrderKind::zb_h2,
     .name = "zb-h2",
     .splits_backward = true,
     .steps = zb_h2_steps,
     .most_held = zb_h2_held,
     .surely_held = one_f_one_b_held,
     .acts_as = zb_h2_acts_as},
    {.kind = OrderKind::zb_v,
     .name = "zb-v",
     .chunks = 2,
     .placement = Placement::v,
     .splits_backward = true,
     .reads_times = true,
     .steps = zb_v_steps_of,
     .most_held = zb_v_held,
     .surely_held = holds_one},
    {.kind = OrderKind::eager_1f1b,
     .name = "eager-1f1b",
     .reads_limits = true,
     .steps = eager_steps,
     .most_held = one_f_one_b_held,
     .surely_held = holds_one},
    {.kind = OrderKind::encoder_in_bubbles,
     .name = "encoder-in-bubbles",
     .spreads_encoder = true,
     .reads_times = true,
     .reads_limits = true,
     .steps = bubble_steps_of,
     .most_held = one_f_one_b_held,
     .surely_held = one_f_one_b_held},
    {.kind = OrderKind::three_phase,
     .name = "three-phase",
     .spreads_encoder = true,
     .is_searched = false,  // encoder-in-bubbles is this order if it cannot do better
     .steps = three_phase_steps,
     .most_held = one_f_one_b_held,
     .surely_held = one_f_one_b_held},
    {.kind = OrderKind::on_demand,
     .name = "on-demand",
     .spreads_encoder = true,
     .is_searched = false,  // encoder-in-bubbles fills more idle time
     .steps = on_demand_steps,
     .most_held = one_f_one_b_held,
     .surely_held = one_f_one_b_held},
};

constexpr std::size_t row_of(OrderKind order) {
  return static_cast<std::size_t>(order);
}

/// Returns whether each row is at the index of its kind's value, where traits() looks it up.
constexpr bool rows_are_in_place() {
  for (std::size_t row = 0; row < std::size(kOrders); ++row) {
    if (row_of(kOrders[row].kind) != row) return false;
  }
  return true;
}
static_assert(rows_are_in_place(), "the rows of kOrders come in the order of the enumerators");

/// Returns the order of the stage before `stage`, whose steps are among `steps`: the same steps, with
/// forwards one ahead.
std::vector<OrderStep> upstream_steps(const std::vector<OrderStep>& steps, int stage, int microbatches) {
  std::vector<OrderStep> upstream = {{Op::forward, stage - 1, 0}};
  for (const OrderStep& step : steps) {
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

/// Returns the times without the first `count` entries of each table.
StepTimes without_first(StepTimes times, std::ptrdiff_t count) {
  for (auto* table : {&times.forward, &times.backward, &times.backward_weight, &times.message}) {
    if (!table->empty()) table->erase(table->begin(), table->begin() + count);
  }
  return times;
}

}  // namespace

std::span<const OrderTraits> pipeline_orders() {
  return kOrders;
}

const OrderTraits& traits(OrderKind order) {
  return kOrders[row_of(order)];
}

std::vector<OrderKind> orders_where(bool (*holds)(const OrderTraits& order)) {
  std::vector<OrderKind> found;
  for (const OrderTraits& order : kOrders) {
    if (holds(order)) found.push_back(order.kind);
  }
  return found;
}

std::vector<OrderKind> all_order_kinds() {
  return orders_where([](const OrderTraits&) { return true; });
}

std::vector<OrderKind> plainest_first(std::vector<OrderKind> orders) {
  std::stable_partition(orders.begin(), orders.end(),
                        [](OrderKind order) { return order == PlanOptions{}.order; });
  return orders;
}

std::string OrderTraits::chunks_taken() const {
  return chunks == kSeveralChunks ? fmt::format("at least 2 for {}", name)
                                  : fmt::format("{} for {}", chunks, name);
}

std::string_view to_string(OrderKind order) {
  return traits(order).name;
}

std::optional<OrderKind> order_kind_from_string(std::string_view name) {
  for (const OrderTraits& order : kOrders) {
    if (order.name == name) return order.kind;
  }
  return std::nullopt;
}

int interleaved_group(int ranks, int microbatches) {
  int group = std::min(ranks, microbatches);
  while (microbatches % group != 0 && microbatches % group < ranks) ++group;
  return group;
}

void validate(const PipelineShape& shape, const std::string& where) {
  const auto require = [&](bool holds, std::string_view key, const std::string& expected, int found) {
    if (!holds) refuse_key(where, key, "expected {}, found {}", expected, found);
  };
  require(shape.ranks >= 1, "stages", "at least 1", shape.ranks);
  require(shape.microbatches >= 1, "microbatches", "at least 1", shape.microbatches);
  const OrderTraits& order = traits(shape.kind);
  require(order.takes_chunks(shape.chunks), "chunks", order.chunks_taken(), shape.chunks);
  const int most_ranks = kMaxRawStages / shape.chunks;
  require(shape.ranks <= most_ranks, "stages",
          fmt::format("at most {} of {} chunks", most_ranks, shape.chunks), shape.ranks);
  const int most = kMaxRawCells / shape.stages();
  require(shape.microbatches <= most, "microbatches",
          fmt::format("at most {} for {} stages", most, shape.stages()), shape.microbatches);
}

int rank_of_stage(const PipelineShape& shape, int stage, int microbatch) {
  if (stage < shape.leading) return stage;
  if (shape.spreads_encoder()) return stage == 0 ? microbatch % shape.ranks : stage - 1;
  const int chunk = (stage - shape.leading) / shape.ranks;
  const int place = (stage - shape.leading) % shape.ranks;
  const bool is_v = chunk % 2 == 1 && shape.chunk_placement() == Placement::v;
  return shape.leading + (is_v ? shape.ranks - 1 - place : place);
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

std::vector<std::vector<OrderStep>> pipeline_steps(const PipelineShape& shape, const OrderTables& tables) {
  PipelineShape chunked = shape;
  chunked.leading = 0;
  OrderTables known;
  if (reads_tables(shape.kind)) {
    known = tables;
    if (known.times.forward.empty()) known.times = equal_times(shape);
    known.times = without_first(std::move(known.times), std::ptrdiff_t{shape.leading} * shape.microbatches);
  }
  std::vector<std::vector<OrderStep>> steps = traits(shape.kind).steps(chunked, known);
  for (std::vector<OrderStep>& of_rank : steps) {
    for (OrderStep& step : of_rank) step.stage += shape.leading;
  }
  for (int stage = shape.leading; stage > 0; --stage) {
    steps.insert(steps.begin(), upstream_steps(steps.front(), stage, shape.microbatches));
  }
  return steps;
}

}  // namespace dflop
