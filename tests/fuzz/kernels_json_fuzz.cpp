#include <array>

#include "core/kernel_choice/rank_kernels.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/kernels.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::KernelFile kernels = dflop::parse_kernel_file(text, "fuzz.kernels");
    dflop::require(dflop::parse_kernel_file(dflop::to_json(kernels), "again.kernels") == kernels);
    for (const dflop::KernelKey key : kernels.table.entries().keys()) {
      const std::size_t chosen = kernels.table.choose(key);
      dflop::require(chosen < kernels.table.names(key.operation()).size());
      dflop::KernelTable::compare(*kernels.table.find(key), chosen);
    }
  });
  return file != 0 ? file : dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::LearnedKernels learned = dflop::parse_learned_kernels(text, "fuzz.json");
    dflop::require(dflop::parse_learned_kernels(dflop::to_json(learned), "again.json") == learned);
    dflop::KernelPlanner planner(dflop::KernelMode::learn, dflop::PlannerState(learned.state));
    dflop::RankKernels rank;
    for (int step = 0; step < 3; ++step) {
      const dflop::KernelChoices choices = planner.next_step();
      rank.begin_step(choices);
      for (const dflop::KernelKey key : learned.state.keys.keys()) {
        for (int call = 0; call <= step; ++call) {
          const dflop::ChosenKernel chosen = rank.choose(key);
          dflop::require(chosen.variant < learned.state.table.names(key.operation()).size());
          if (chosen.timed) rank.observe(chosen, 1000, 1);
        }
      }
      const std::array seen{rank.end_step()};
      planner.end_step(seen, 1e9);
    }
  });
}
