// Raw pipelines of all shapes, shared by several tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/program/raw_pipeline.hpp"
#include "core/support/random.hpp"

namespace dflop::testing {

/// Calls check(shape) for every schedule and every shape that it allows up to these limits.
template <typename Check>
void for_each_shape(int most_ranks, int most_microbatches, int most_chunks, const Check& check) {
  for (const OrderTraits& order : pipeline_orders()) {
    const OrderKind kind = order.kind;
    const bool several_chunks = order.chunks == OrderTraits::kSeveralChunks;
    for (int p = 1; p <= most_ranks; ++p) {
      for (int m = 1; m <= most_microbatches; ++m) {
        for (int v = several_chunks ? 2 : order.chunks; v <= (several_chunks ? most_chunks : order.chunks);
             ++v) {
          SCOPED_TRACE(std::string(to_string(kind)) + " p " + std::to_string(p) + " m " + std::to_string(m) +
                       " v " + std::to_string(v));
          check(PipelineShape{kind, p, v, m});
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

/// Draws one of the orders for which `holds` is true.
inline OrderKind draw_order(Random& random, bool (*holds)(const OrderTraits&)) {
  const std::vector<OrderKind> orders = orders_where(holds);
  return orders[random.below(orders.size())];
}

/// Whether the steps do not depend on durations, and every microbatch runs a stage on the same rank.
inline bool is_fixed_chain(const OrderTraits& order) {
  return !order.reads_tables() && !order.spreads_encoder;
}

/// Whole nanoseconds from 0 to 20, so that simultaneous events and empty steps are common.
inline Nanoseconds random_time(Random& random) {
  return Nanoseconds(static_cast<std::int64_t>(random.below(21)));
}

inline StepTimes random_times(Random& random, const PipelineShape& shape) {
  StepTimes times;
  for (int cell = 0; cell < shape.stages() * shape.microbatches; ++cell) {
    times.forward.push_back(random_time(random));
    times.backward.push_back(random_time(random));
    times.backward_weight.push_back(random_time(random));
    times.message.push_back(random_time(random));
  }
  return times;
}

/// Returns a table that has the same value everywhere.
template <typename Value>
BroadcastTable<Value> same(Value value) {
  return {{{value}}};
}

/// Equal durations everywhere, messages that take no time, and one byte of activations per microbatch and
/// stage.
inline RawPipeline equal_pipeline(const PipelineShape& shape, Nanoseconds forward, Nanoseconds backward_input,
                                  Nanoseconds backward_weight) {
  RawPipeline pipeline;
  pipeline.shape = shape;
  pipeline.forward = same(Seconds(forward));
  pipeline.backward = same(Seconds(backward_input));
  pipeline.backward_weight = same(Seconds(backward_weight));
  pipeline.activation = same(Bytes{1});
  if (shape.spreads_encoder()) {
    pipeline.encoder = RawEncoder{same(Seconds(forward)), same(Seconds(backward_input + backward_weight))};
  }
  return pipeline;
}

/// Everything random, on a link with 1 byte per nanosecond and a latency of 3 ns.
inline RawPipeline random_pipeline(Random& random, const PipelineShape& shape) {
  RawPipeline pipeline = equal_pipeline(shape, {}, {}, {});
  pipeline.link = RawLink{Seconds(Nanoseconds(3)), 1e9};
  pipeline.message.rows.clear();
  for (auto* table : {&pipeline.forward, &pipeline.backward, &*pipeline.backward_weight}) table->rows.clear();
  pipeline.activation->rows.clear();
  const int rows = shape.ranks * shape.chunks;
  for (int s = 0; s < rows; ++s) {
    for (auto* table : {&pipeline.forward, &pipeline.backward, &*pipeline.backward_weight}) {
      std::vector<Seconds>& row = table->rows.emplace_back();
      for (int j = 0; j < shape.microbatches; ++j) row.push_back(Seconds(random_time(random)));
    }
    for (auto* table : {&pipeline.message, &*pipeline.activation}) {
      if (table == &pipeline.message && s + 1 == rows) continue;
      std::vector<Bytes>& row = table->rows.emplace_back();
      for (int j = 0; j < shape.microbatches; ++j) row.push_back(Bytes{random_time(random).count()});
    }
  }
  if (pipeline.encoder) {
    pipeline.encoder->forward.rows.assign(1, {});
    pipeline.encoder->backward.rows.assign(1, {});
    pipeline.encoder->message.rows.assign(1, {});
    for (int j = 0; j < shape.microbatches; ++j) {
      pipeline.encoder->forward.rows[0].push_back(Seconds(random_time(random)));
      pipeline.encoder->backward.rows[0].push_back(Seconds(random_time(random)));
      pipeline.encoder->message.rows[0].push_back(Bytes{random_time(random).count()});
    }
  }
  return pipeline;
}

}  // namespace dflop::testing
