// Hand-built pipelines of equal stages, which tests and benches feed to the engine.
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "core/program.hpp"

namespace dflop::testing {

/// `lists` has the instructions of each group. Every group is its own stage. All tables of costs are zero.
PricedProgram make_program(const std::vector<std::vector<Instruction>>& lists, std::vector<Message> messages,
                           std::vector<Collective> collectives);

struct Pipeline {
  int stages = 1;
  int microbatches = 1;
  OrderKind order = OrderKind::one_f_one_b;
  Nanoseconds forward{10'000'000};
  Nanoseconds backward{20'000'000};
  Nanoseconds message{0};
  Bytes model_state{1'000};
  Bytes activation{100};
  Bytes workspace{10};
};

/// One group per stage; activations go down and gradients up between neighbors.
PricedProgram make_pipeline(const Pipeline& pipeline);

}  // namespace dflop::testing
