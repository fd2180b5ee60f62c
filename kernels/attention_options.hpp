// AttentionOptions limit how a library may compute attention on a GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// AttentionSums is the order in which a library adds up attention's gradients. With `fixed`, repeated runs
/// are bit-identical; `any` needs less memory.
enum class AttentionSums : std::uint8_t { fixed, any };

template <>
inline constexpr NameTable<AttentionSums, 2> kNames<AttentionSums> = {
    {{AttentionSums::fixed, "fixed"}, {AttentionSums::any, "any"}}};

/// AttentionOptions limit a library's attention. The project's own kernels compute calls outside these
/// limits.
struct AttentionOptions {
  AttentionSums sums = AttentionSums::fixed;
  std::optional<Bytes> workspace = {};  ///< max memory for one call; none: 3 % of the device's memory

  bool operator==(const AttentionOptions&) const = default;
};

}  // namespace dflop
