// oneDNN's matrix products make variants of the linear layers.
#pragma once

#include <string>

#include "kernels/kernels.hpp"

namespace dflop::host {

/// Adds oneDNN's linear layers as variants, if its library is installed and the kernels compute in f32.
void add_onednn(Kernels& kernels);

/// Returns the name and version of oneDNN, such as "oneDNN 2.6.3"; empty if add_onednn() finds no library.
std::string onednn_version();

}  // namespace dflop::host
