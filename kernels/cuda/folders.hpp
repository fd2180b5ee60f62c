// Where CUDA's libraries are that are loaded when they are first used.
#pragma once

#include <string>
#include <vector>

namespace dflop {

/// Beside the places that the dynamic linker knows.
inline std::vector<std::string> cuda_folders() {
  return {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
}

}  // namespace dflop
