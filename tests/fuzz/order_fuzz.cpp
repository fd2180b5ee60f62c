#include "core/program/lowering.hpp"
#include "core/program/raw_pipeline.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/plan.hpp"

namespace dflop {
namespace {

/// An accepted order must read back the same, and make a program that verify() accepts.
void read_order(std::string_view text, const PipelineShape& shape) {
  const PipelineOrder order = parse_order(text, "fuzz.json", shape);
  const std::string written = to_json(order);
  require(parse_order(written, "again.json", shape).ranks == order.ranks);
  if (shape.leading > 0) return;  // leading stages need a model
  const BroadcastTable<Seconds> second{{{Seconds(1)}}};
  RawPipeline pipeline;
  pipeline.shape = shape;
  pipeline.forward = pipeline.backward = second;
  pipeline.backward_weight = second;
  if (shape.spreads_encoder()) pipeline.encoder = RawEncoder{second, second};
  try {
    verify(make_program(pipeline, order).program);
  } catch (const Error&) {
    require(false);
  }
}

}  // namespace
}  // namespace dflop

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using dflop::OrderKind;
  const dflop::PipelineShape shapes[] = {{OrderKind::one_f_one_b, 2, 1, 3},
                                         {OrderKind::interleaved, 2, 2, 2},
                                         {OrderKind::interleaved, 1, 2, 2, 1},
                                         {OrderKind::encoder_in_bubbles, 2, 1, 3}};
  for (const dflop::PipelineShape& shape : shapes) {
    dflop::run_fuzz_target(data, size, [&](std::string_view text) { dflop::read_order(text, shape); });
  }
  return 0;
}
