// This header lists the kinds of pipeline order: one table holds all that other parts of the program ask of a
// kind, and lists, help, errors, the search space and the draws of tests follow from it. Its rows stand in
// core/order/pipeline_order.cpp, beside the functions that make the steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// An OrderKind is an order of forwards and backwards; core/order/pipeline_order.hpp describes each.
enum class OrderKind : std::uint8_t {
  gpipe,
  one_f_one_b,
  interleaved,
  zb_h1,
  zb_h2,
  zb_v,
  eager_1f1b,
  encoder_in_bubbles,
};

/// A Placement says which rank holds which chunk.
enum class Placement : std::uint8_t {
  round_robin,  ///< stage s of ranks * chunks on rank s mod ranks
  v,            ///< down the ranks and up again, and so on
};

template <>
inline constexpr NameTable<Placement, 2> kNames<Placement> = {
    {{Placement::round_robin, "round-robin"}, {Placement::v, "v"}}};

struct PipelineShape;
struct OrderStep;
struct OrderTables;

/// OrderTraits is a row of the table: what is true of one kind of order, and how its steps are made. Shapes
/// that its functions are given are valid and of its kind.
struct OrderTraits {
  /// This number of chunks stands for one that the plan says, at least 2.
  static constexpr int kSeveralChunks = 0;

  using Steps = std::vector<std::vector<OrderStep>>;
  using Depth = int (*)(const PipelineShape& shape, int rank);

  OrderKind kind;
  std::string_view name;
  int chunks = 1;                                ///< stages of each pipeline rank
  Placement placement = Placement::round_robin;  ///< of the chunks, where an order does not say
  bool splits_backward = false;                  ///< backwards have input and weight parts
  bool in_rounds = false;        ///< microbatches are a multiple of the ranks, which take them in turn
  bool spreads_encoder = false;  ///< stage 0 is an encoder that all ranks have; for colocated plans alone
  bool reads_times = false;      ///< the steps depend on OrderTables::times
  bool reads_limits = false;     ///< the steps depend on OrderTables::most_held
  bool is_usual = false;         ///< describe() leaves its name out
  bool is_searched = true;       ///< the planner search tries it without being asked to

  /// Makes the steps of every rank of a shape without leading stages. Steps of one operation on one stage
  /// come with rising microbatches. `tables` has entries only if the order reads them, and then times always.
  Steps (*steps)(const PipelineShape& shape, const OrderTables& tables);
  /// Counts the microbatches of which rank `rank` holds activations when it holds most, all chunks together,
  /// if steps take equally long. An order that holds as many as memory allows counts as 1f1b: with fewer it
  /// is slow. It works for leading stages, too.
  Depth most_held;
  /// Counts the microbatches that the rank holds at once whatever the times: any so many that follow each
  /// other.
  Depth surely_held;
  /// Returns the order that this one is where microbatches are too few for it. Null: it is always itself.
  OrderKind (*acts_as)(int ranks, int microbatches) = nullptr;

  bool has_chunks() const { return chunks != 1; }
  bool reads_tables() const { return reads_times || reads_limits; }
  /// Returns whether ranks can run so many chunks.
  bool takes_chunks(int count) const { return chunks == kSeveralChunks ? count >= 2 : count == chunks; }
  /// Says how many chunks ranks can run, as errors do.
  std::string chunks_taken() const;
};

/// Returns all kinds, in the order in which they are listed.
std::span<const OrderTraits> pipeline_orders();
std::vector<OrderKind> all_order_kinds();

const OrderTraits& traits(OrderKind order);

/// Returns the kinds for which `holds` is true, in the order of the table.
std::vector<OrderKind> orders_where(bool (*holds)(const OrderTraits& order));

/// Returns the same kinds with the default, 1f1b, before the others.
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

/// Returns whether the order depends on OrderTables, and not only on the shape.
inline bool reads_tables(OrderKind order) {
  return traits(order).reads_tables();
}

}  // namespace dflop
