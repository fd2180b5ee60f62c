#include "costmodel/correction/correction.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "traces/files/correction.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return dflop::run_fuzz_target(data, size, [](std::string_view text) {
    const dflop::CorrectionFile file = dflop::parse_correction(text, "fuzz.json");
    dflop::require(dflop::parse_correction(dflop::to_json(file), "again.json") == file);
    static_cast<void>(dflop::Correction(file.fits));
  });
}
