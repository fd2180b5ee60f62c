#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/kernels.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::KernelFile kernels = dflop::parse_kernel_file(text, "fuzz.kernels");
    dflop::require(dflop::parse_kernel_file(dflop::to_json(kernels), "again.kernels") == kernels);
    for (const auto& [key, entry] : kernels.table.entries()) {
      dflop::require(kernels.table.choose(key) < kernels.table.names(key.operation).size());
    }
  });
}
