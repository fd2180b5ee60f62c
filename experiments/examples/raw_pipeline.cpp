// This example needs no model: it runs a pipeline of given durations in each order that there is, on 4 ranks
// with 16 microbatches, and prints what each takes. To run it:
//
//   build/release/examples/raw_pipeline
#include <fmt/format.h>

#include "core/program/raw_pipeline.hpp"
#include "sim/engine.hpp"

int main() {
  using namespace dflop;
  fmt::print("{:20} {:>10} {:>8}\n", "order", "makespan", "bubble");
  for (const OrderTraits& order : pipeline_orders()) {
    RawPipeline pipeline;
    pipeline.shape.kind = order.kind;
    pipeline.shape.ranks = 4;
    pipeline.shape.chunks = order.chunks == OrderTraits::kSeveralChunks ? 2 : order.chunks;
    pipeline.shape.microbatches = 16;

    // One value stands for all stages and microbatches. A microbatch takes a rank 1 s forward and, for inputs
    // and for weights, 1 s each backward, however many stages the rank runs; orders that do not split
    // backwards take both parts together.
    const BroadcastTable<Seconds> part{{{Seconds(1.0 / pipeline.shape.chunks)}}};
    pipeline.forward = part;
    pipeline.backward = part;
    pipeline.backward_weight = part;
    if (order.spreads_encoder) {  // each microbatch is also encoded, on one of the ranks
      pipeline.encoder = RawEncoder{.forward = {{{Seconds(0.4)}}}, .backward = {{{Seconds(0.8)}}}};
    }

    const Timeline timeline = SimExecutor().run(make_program(pipeline), Detail::usage);
    fmt::print("{:20} {:8.1f} s {:6.1f} %\n", order.name, Seconds(timeline.makespan).count(),
               100 * idle_fraction(timeline));
  }
  return 0;
}
