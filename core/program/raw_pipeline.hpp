// A RawPipeline is a pipeline described by its durations alone, without a model.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "core/order/pipeline_order.hpp"

namespace dflop {

/// A BroadcastTable has one value for each row and column: a single row stands for all rows, a single value
/// in a row for all its columns.
template <typename Value>
struct BroadcastTable {
  std::vector<std::vector<Value>> rows;

  const Value& at(std::size_t row, std::size_t column) const {
    const std::vector<Value>& values = rows[rows.size() == 1 ? 0 : row];
    return values[values.size() == 1 ? 0 : column];
  }
  bool operator==(const BroadcastTable&) const = default;
};

/// A RawLink is between any two ranks, and messages do not share it; as shared_link it is one that all
/// messages divide.
struct RawLink {
  Seconds latency{0};
  double bytes_per_second = 0;

  bool operator==(const RawLink&) const = default;
};

/// A RawEncoder is the encoder of an encoder_in_bubbles pipeline. Tables have one row; columns are
/// microbatches.
struct RawEncoder {
  BroadcastTable<Seconds> forward;
  BroadcastTable<Seconds> backward;
  BroadcastTable<Bytes> message{{{Bytes{}}}};  ///< to the first rank, and its gradient back
};

/// A RawPipeline has tables of durations and bytes. Rows of a table are the ranks * chunks stages of the
/// shape in model order (boundaries between a stage and the next for `message`), without the encoder of
/// encoder_in_bubbles; columns are microbatches.
struct RawPipeline {
  PipelineShape shape;
  BroadcastTable<Seconds> forward;
  BroadcastTable<Seconds> backward;  ///< the input part where there is a backward_weight
  std::optional<BroadcastTable<Seconds>> backward_weight;
  std::optional<BroadcastTable<Bytes>> activation;  ///< kept from a forward to the end of its backward
  BroadcastTable<Bytes> message{{{Bytes{}}}};       ///< activations forward, gradients as many back
  std::optional<RawLink> link;                      ///< none: messages take no time here
  std::optional<RawLink> shared_link;               ///< that all messages go over, beside `link`
  std::optional<RawEncoder> encoder;                ///< of encoder_in_bubbles, and of no other
  /// These limits are OrderTables::most_held: one for all ranks, or one for each. Empty: no limits. Only
  /// orders that read limits may have some.
  std::vector<int> activation_limit;

  /// Returns the latency and bandwidth of a message with nothing else on the links; nothing without links.
  std::optional<RawLink> path() const;
};

/// Checks a pipeline. `where` is its place for errors, as the name of its file.
/// @throws Error (input) naming the key (of schema "dflop.pipeline") if the shape is wrong, a table is ragged
/// or of another size, a value is negative or not finite, the order lacks its weight parts or encoder or has
/// one or limits that it does not know, bytes have no link, or all durations together pass 10^6 s or all
/// bytes 2^60.
void validate(const RawPipeline& pipeline, const std::string& where = "pipeline");

/// Makes the program: one group a rank, one message each way for each microbatch and boundary between stages
/// of different ranks. A backward that the order does not split takes as long as both parts together.
/// verify() accepts it.
/// @throws Error (input) as validate().
PricedProgram make_program(const RawPipeline& pipeline);

/// Returns the order that make_program() runs. @throws Error (input) as validate().
PipelineOrder pipeline_order(const RawPipeline& pipeline);

/// Makes the program in an order of one's own, which is for the pipeline's shape but for its placement, and
/// runs to its end. A backward that it splits needs a `backward_weight`. `where` is the pipeline's place for
/// errors.
/// @throws Error (input) as validate(), and where the weight parts are missing.
PricedProgram make_program(const RawPipeline& pipeline, const PipelineOrder& order,
                           const std::string& where = "pipeline");

}  // namespace dflop
