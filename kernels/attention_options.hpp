// A library may compute attention on a GPU, within these limits.
#pragma once

#include <cstdint>
#include <optional>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// AttentionSums say in which order a library takes the sums of attention's gradients: in a fixed one, so
/// that a run repeats to the bit, or in any, which needs less memory.
enum class AttentionSums : std::uint8_t { fixed, any };

template <>
inline constexpr NameTable<AttentionSums, 2> kNames<AttentionSums> = {
    {{AttentionSums::fixed, "fixed"}, {AttentionSums::any, "any"}}};

/// AttentionOptions say what a library may do for attention. Own kernels compute what it may not.
struct AttentionOptions {
  AttentionSums sums = AttentionSums::fixed;
  std::optional<Bytes> workspace = {};  ///< the most that one call may take; none: 3 % of the device's memory

  bool operator==(const AttentionOptions&) const = default;
};

}  // namespace dflop
