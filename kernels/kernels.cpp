#include "kernels/kernels.hpp"

namespace dflop {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}

std::size_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 2;
  }
  return 0;
}

std::size_t sum_bytes_of(DType dtype) {
  return dtype == DType::f64 ? 8 : 4;
}

}  // namespace dflop
