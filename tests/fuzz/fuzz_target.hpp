// Shared by all fuzz targets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace dflop {

/// Runs `read` on the input. An input error is expected; any other exception ends the program.
template <typename Read>
int run_fuzz_target(const std::uint8_t* data, std::size_t size, Read read) {
  try {
    read(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
  }
  return 0;
}

/// Aborts if a property does not hold, such as that written output reads back the same.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace dflop
