// borrowed() returns a shared pointer that does not own its object.
#pragma once

#include <memory>

namespace dflop {

/// Returns a pointer that does not own its object, which must outlive it.
template <typename T>
std::shared_ptr<const T> borrowed(const T& value) {
  return {std::shared_ptr<const T>(), &value};
}

}  // namespace dflop
