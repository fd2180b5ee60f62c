// Places in untyped memory.
#pragma once

#include <cstddef>

namespace dflop {

inline const std::byte* offset(const void* data, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
inline std::byte* offset(void* data, std::size_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}

}  // namespace dflop
