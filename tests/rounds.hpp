// How often tests do what takes long with sanitizers.
#pragma once

#include <string_view>

namespace dflop::testing {

inline constexpr bool kSanitized = !std::string_view(DFLOP_SANITIZE).empty();

/// Returns how many rounds of random inputs, or steps, a test makes that makes `times` elsewhere. Each
/// executes what the ones before it do; sanitizers, with which it takes ten times as long, learn what there
/// is from the first.
constexpr int rounds(int times) {
  return kSanitized ? (times + 2) / 3 : times;
}

}  // namespace dflop::testing
