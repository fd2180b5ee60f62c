// This example adds a scheduling method of its own and then is the `dflop` command, whose lists, help and
// errors have the method beside the built-in ones. To run it, in the project's folder:
//
//   build/release/examples/own_scheduler compare --scheduler round-robin --seed 1 --iterations 8
//     --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 --gbs 512
//
// A source beside this one is built to build/release/examples/<name> with the project, as this one is, and is
// run as a test: give it arguments_<name> and output_<name> in CMakeLists.txt.
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/cli/command.hpp"
#include "solver/schedulers/methods.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Deals the items like cards, the largest first: the k-th goes into bin k mod bins.
AssignmentSolution deal_round_robin(const BinProblem& problem, const SolveLimits&) {
  AssignmentSolution solution;
  solution.bound = Seconds(lower_bound(problem));  // zero would do, and prove nothing
  solution.bin.resize(problem.items());
  std::int32_t next = 0;
  for (const std::int32_t item : by_falling_size(problem)) {
    solution.bin[item] = next;
    next = (next + 1) % problem.bins;
  }
  return solution;
}

}  // namespace
}  // namespace dflop

int main(int argc, char** argv) {
  using namespace dflop;
  // The method only finds bins: Method::solve() sees to caps, says what the bins are worth and, as this
  // method looks at costs, puts them in an order that is good for the pipeline.
  register_method({.name = "round-robin",
                   .objective = Objective::published,
                   .budget = Budget::none,
                   .minimises = true,
                   .find_bins = deal_round_robin});
  remove_temporaries_on_signals();  // as the `dflop` command does
  return run_dflop(std::vector<std::string>(argv + 1, argv + argc));
}
