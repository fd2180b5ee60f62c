#include "backend/communicator.hpp"

namespace dflop {

std::string_view to_string(Element element) {
  switch (element) {
    case Element::f32:
      return "f32";
    case Element::f64:
      return "f64";
    case Element::bf16:
      return "bf16";
  }
  return "?";
}

std::size_t bytes_of(Element element) {
  switch (element) {
    case Element::f32:
      return 4;
    case Element::f64:
      return 8;
    case Element::bf16:
      return 2;
  }
  return 0;
}

}  // namespace dflop
