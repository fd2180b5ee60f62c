// AttentionOptions limit how a library may compute attention on a GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// AttentionSums is the order in which a library adds up attention's gradients: `fixed` makes runs repeatable
/// to the bit; `any` needs less memory.
enum class AttentionSums : std::uint8_t { fixed, any };

template <>
inline constexpr NameTable<AttentionSums, 2> kNames<AttentionSums> = {
    {{AttentionSums::fixed, "fixed"}, {AttentionSums::any, "any"}}};

/// AttentionOptions limit a library's attention. Calls outside the limits run on the project's own kernels.
struct AttentionOptions {
  AttentionSums sums = AttentionSums::fixed;
  std::optional<Bytes> workspace = {};  ///< the max for one call; none: 3 % of the device's memory

  bool operator==(const AttentionOptions&) const = default;
};

}  // namespace dflop
