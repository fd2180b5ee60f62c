// A RawPipeline is a pipeline described only by its durations and bytes, without a model.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "core/order/pipeline_order.hpp"

namespace dflop {

/// A BroadcastTable has one value for each row and column. A single row applies to all rows, and a single
/// value in a row to all its columns.
template <typename Value>
struct BroadcastTable {
  std::vector<std::vector<Value>> rows;

  const Value& at(std::size_t row, std::size_t column) const {
    const std::vector<Value>& values = rows[rows.size() == 1 ? 0 : row];
    return values[values.size() == 1 ? 0 : column];
  }
  bool operator==(const BroadcastTable&) const = default;
};

/// A RawLink is a link between ranks. As RawPipeline::link, it describes the separate link of each pair of
/// ranks, on which messages do not contend. As RawPipeline::shared_link, it is one link whose bandwidth all
/// messages share.
struct RawLink {
  Seconds latency{0};
  double bytes_per_second = 0;

  bool operator==(const RawLink&) const = default;
};

/// A RawEncoder is the encoder of a pipeline that spreads it. Its tables have one row; columns are
/// microbatches.
struct RawEncoder {
  BroadcastTable<Seconds> forward;
  BroadcastTable<Seconds> backward;
  BroadcastTable<Bytes> message{{{Bytes{}}}};  ///< to the first rank; its gradient back has as many bytes
};

/// A RawPipeline has tables of durations and bytes. A table has one row per stage (ranks * chunks of them) in
/// model order, without a spread encoder; `message` has one row per boundary between two
/// stages. Columns are microbatches.
struct RawPipeline {
  PipelineShape shape;
  BroadcastTable<Seconds> forward;
  BroadcastTable<Seconds> backward;  ///< the input part if there is a backward_weight
  std::optional<BroadcastTable<Seconds>> backward_weight;
  std::optional<BroadcastTable<Bytes>> activation;  ///< kept from a forward to the end of its backward
  BroadcastTable<Bytes> message{{{Bytes{}}}};  ///< of activations forward; gradients back have as many bytes
  std::optional<RawLink> link;                 ///< nullopt: messages take no time on it
  std::optional<RawLink> shared_link;          ///< used by all messages in addition to `link`
  std::optional<RawEncoder> encoder;           ///< only with orders that spread it, which require it
  /// These limits are OrderTables::most_held: one for all ranks, or one for each. Empty: no limits. Only
  /// orders that read limits may have any.
  std::vector<int> activation_limit;

  /// Returns the latency and bandwidth of a message on otherwise idle links; nullopt if there are no links.
  std::optional<RawLink> path() const;
};

/// Checks a pipeline. `where` names it in errors, for example its file.
/// @throws Error (input) naming the key (of schema "dflop.pipeline") if the shape is wrong, a table is ragged
/// or of the wrong size, a value is negative or not finite, the order lacks weight parts or an encoder that
/// it needs or has an encoder or limits that it does not support, bytes have no link, or all durations
/// together exceed 10^6 s or all bytes 2^60.
void validate(const RawPipeline& pipeline, const std::string& where = "pipeline");

/// Makes the program: one group per rank, and for each microbatch and boundary between stages of different
/// ranks one message each way. A backward that the order does not split takes as long as both parts together.
/// verify() accepts the program.
/// @throws what validate() throws
PricedProgram make_program(const RawPipeline& pipeline);

/// Returns the order that make_program() runs. @throws what validate() throws
PipelineOrder pipeline_order(const RawPipeline& pipeline);

/// Makes the program in a custom order, which must be for the pipeline's shape, except for its placement, and
/// must not deadlock. A backward that the order splits needs a `backward_weight`. `where` names the pipeline
/// in errors.
/// @throws what validate() throws, and Error (input) if a `backward_weight` is needed but missing
PricedProgram make_program(const RawPipeline& pipeline, const PipelineOrder& order,
                           const std::string& where = "pipeline");

}  // namespace dflop
