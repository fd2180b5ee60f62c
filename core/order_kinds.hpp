// This header lists the kinds of pipeline order. One table has all properties of each kind. Lists, help,
// errors, the search space and the random draws of tests follow from this table. Its rows are in
// core/order/pipeline_order.cpp, next to the functions that make the steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// An OrderKind is an order of forwards and backwards; core/order/pipeline_order.hpp describes each kind.
enum class OrderKind : std::uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  zb_v,
  eager_1f1b,
  encoder_in_bubbles,
  three_phase,
  on_demand,
};

/// A Placement says which rank holds which chunk.
enum class Placement : std::uint8_t {
  round_robin,  ///< stage s is on rank s mod ranks
  v,            ///< stages go down the ranks and up again, and so on
};

template <>
inline constexpr NameTable<Placement, 2> kNames<Placement> = {
    {{Placement::round_robin, "round-robin"}, {Placement::v, "v"}}};

struct PipelineShape;
struct OrderStep;
struct OrderTables;

/// An OrderTraits is a row of the table: the properties of one kind of order, and the functions that make and
/// describe its steps. The functions expect a valid shape of this kind.
struct OrderTraits {
  /// This value of `chunks` stands for any number, at least 2, that the plan specifies.
  static constexpr int kSeveralChunks = 0;

  using Steps = std::vector<std::vector<OrderStep>>;
  using Depth = int (*)(const PipelineShape& shape, int rank);

  OrderKind kind;
  std::string_view name;
  int chunks = 1;                                ///< stages of each pipeline rank
  Placement placement = Placement::round_robin;  ///< of the chunks, unless the shape specifies one
  bool splits_backward = false;                  ///< backwards have input and weight parts
  bool in_rounds = false;        ///< fastest, and searched, if the ranks divide the microbatches
  bool spreads_encoder = false;  ///< stage 0 is an encoder that all ranks have; only for colocated plans
  bool reads_times = false;      ///< the steps depend on OrderTables::times
  bool reads_limits = false;     ///< the steps depend on OrderTables::most_held
  bool is_usual = false;         ///< describe() omits its name
  bool is_searched = true;       ///< the planner search tries it by default

  /// Makes the steps of every rank of a shape without leading stages. On each stage, steps of the same
  /// operation are in increasing microbatch order. `tables` has entries only if the order reads them. If it
  /// reads times, they are always set.
  Steps (*steps)(const PipelineShape& shape, const OrderTables& tables);
  /// Returns the max number of microbatches whose activations `rank` holds at once if all steps take equally
  /// long. It counts a microbatch once for each chunk. For eager-1f1b and encoder-in-bubbles, which hold as
  /// many as memory allows, it returns 1f1b's number, because they are slow with fewer. `rank` may also be a
  /// leading one.
  Depth most_held;
  /// Returns a number of consecutive microbatches that `rank` holds at once in every run, whatever the
  /// durations of steps.
  Depth surely_held;
  /// Returns the kind that this order turns into if there are too few microbatches for it; otherwise its own
  /// kind. Null: it never turns into another kind.
  OrderKind (*acts_as)(int ranks, int microbatches) = nullptr;

  bool has_chunks() const { return chunks != 1; }
  bool reads_tables() const { return reads_times || reads_limits; }
  /// Returns whether each rank can run `count` chunks in this order.
  bool takes_chunks(int count) const { return chunks == kSeveralChunks ? count >= 2 : count == chunks; }
  /// Returns the numbers of chunks that a rank can run, in words for errors.
  std::string chunks_taken() const;
};

/// Returns all kinds, in listing order.
std::span<const OrderTraits> pipeline_orders();
std::vector<OrderKind> all_order_kinds();

const OrderTraits& traits(OrderKind order);

/// Returns the kinds for which `holds` is true, in the order of the table.
std::vector<OrderKind> orders_where(bool (*holds)(const OrderTraits& order));

/// Returns `orders` with the default order, 1f1b, moved to the front.
std::vector<OrderKind> plainest_first(std::vector<OrderKind> orders);

std::string_view to_string(OrderKind order);
std::optional<OrderKind> order_kind_from_string(std::string_view name);

/// Returns whether backwards are split into input and weight parts.
inline bool splits_backward(OrderKind order) {
  return traits(order).splits_backward;
}

/// Returns whether ranks can run several stages.
inline bool has_chunks(OrderKind order) {
  return traits(order).has_chunks();
}

/// Returns whether the order depends on OrderTables in addition to the shape.
inline bool reads_tables(OrderKind order) {
  return traits(order).reads_tables();
}

}  // namespace dflop
