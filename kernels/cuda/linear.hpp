// Matrix products of a linear layer by cuBLASLt, on one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "kernels/cuda/launch.hpp"
#include "kernels/kernels.hpp"

namespace dflop::cuda {

class CudaLinear {
 public:
  /// `multiprocessors` as of CudaKernelOptions. Takes the workspace from the target's pool.
  /// @throws Error (no_device) without cuBLASLt, Error (internal) where there is no memory.
  CudaLinear(const CudaTarget& target, int multiprocessors);
  ~CudaLinear();
  CudaLinear(const CudaLinear&) = delete;
  CudaLinear& operator=(const CudaLinear&) = delete;

  // As in kernels.hpp, of checked arguments.
  void forward(Matrix y, ConstMatrix x, ConstMatrix weight, ConstMatrix bias);
  void backward_input(Matrix dx, ConstMatrix dy, ConstMatrix weight);
  void backward_weight(Sums dweight, Sums dbias, ConstMatrix dy, ConstMatrix x);

 private:
  struct Library;  ///< what cuBLASLt keeps: handle, workspace, algorithms found

  CudaTarget target_;
  std::unique_ptr<Library> library_;
};

}  // namespace dflop::cuda
