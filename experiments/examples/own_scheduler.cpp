// This example adds its own scheduling method and then acts as the `dflop` command: its lists, help and
// errors include the method along with the built-in ones. To run it, in the project's folder:
//
//   build/release/examples/own_scheduler compare --scheduler round-robin --seed 1 --iterations 8
//     --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 --gbs 512
//
// The project builds every source in this folder to build/release/examples/<name>, and runs it as a test. Add
// arguments_<name> and output_<name> for yours to CMakeLists.txt.
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/cli/command.hpp"
#include "solver/schedulers/methods.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// Deals the items like cards, the largest first: the k-th item goes into bin k mod bins.
AssignmentSolution deal_round_robin(const BinProblem& problem, const SolveLimits&) {
  AssignmentSolution solution;
  solution.bound = Seconds(lower_bound(problem));  // zero would be valid, but prove nothing
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
  // The method only finds bins. Method::solve() enforces caps, computes the value of the bins and, because
  // this method considers costs, puts them in an order that suits the pipeline.
  register_method({.name = "round-robin",
                   .objective = Objective::published,
                   .budget = Budget::none,
                   .minimizes = true,
                   .find_bins = deal_round_robin});
  remove_temporaries_on_signals();  // as the `dflop` command does
  return run_dflop(std::vector<std::string>(argv + 1, argv + argc));
}
