// This example needs no model. It runs a pipeline with given durations in every available order, on 4 ranks
// with 16 microbatches, and prints the time of each order. To run it:
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

    // One value applies to all stages and microbatches. Regardless of how many stages a rank runs, it takes 1
    // s for the forward pass of a microbatch, and 1 s each for the input and weight parts of the backward
    // pass. Orders that do not split backward passes run both parts together.
    const BroadcastTable<Seconds> part{{{Seconds(1.0 / pipeline.shape.chunks)}}};
    pipeline.forward = part;
    pipeline.backward = part;
    pipeline.backward_weight = part;
    if (order.spreads_encoder) {  // each microbatch is also encoded, by one of the ranks
      pipeline.encoder = RawEncoder{.forward = {{{Seconds(0.4)}}}, .backward = {{{Seconds(0.8)}}}};
    }

    const Timeline timeline = SimExecutor().run(make_program(pipeline), Detail::usage);
    fmt::print("{:20} {:8.1f} s {:6.1f} %\n", order.name, Seconds(timeline.makespan).count(),
               100 * idle_fraction(timeline));
  }
  return 0;
}
