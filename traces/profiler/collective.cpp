#include "traces/profiler/collective.hpp"

#include <algorithm>

namespace dflop {
namespace {

struct ElementSize {
  std::string_view name;
  std::int64_t bytes;
};

constexpr ElementSize kElementSizes[] = {
    {"Char", 1},
    {"char", 1},
    {"signed char", 1},
    {"Byte", 1},
    {"unsigned char", 1},
    {"Bool", 1},
    {"bool", 1},
    {"Float8_e4m3fn", 1},
    {"Float8_e5m2", 1},
    {"Float8_e4m3fnuz", 1},
    {"Float8_e5m2fnuz", 1},
    {"c10::Float8_e4m3fn", 1},
    {"c10::Float8_e5m2", 1},
    {"Float8_e8m0fnu", 1},
    {"Half", 2},
    {"c10::Half", 2},
    {"BFloat16", 2},
    {"c10::BFloat16", 2},
    {"Short", 2},
    {"short", 2},
    {"short int", 2},
    {"UInt16", 2},
    {"Float", 4},
    {"float", 4},
    {"Int", 4},
    {"int", 4},
    {"UInt32", 4},
    {"Double", 8},
    {"double", 8},
    {"Long", 8},
    {"long", 8},
    {"long int", 8},
    {"ComplexFloat", 8},
    {"c10::complex<float>", 8},
    {"UInt64", 8},
    {"ComplexDouble", 16},
    {"c10::complex<double>", 16},
};

std::string until(std::string_view text, std::string_view stops) {
  return std::string(text.substr(0, std::min(text.find_first_of(stops), text.size())));
}

}  // namespace

std::optional<std::string> communication_name(std::string_view kernel) {
  for (const std::string_view prefix : {"ncclDevKernel_", "ncclKernel_"}) {
    if (kernel.substr(0, prefix.size()) == prefix) return until(kernel.substr(prefix.size()), "_(");
  }
  if (kernel.substr(0, 4) == "nccl") return until(kernel, "<(");
  for (const std::string_view space : {"ep::internode::", "ep::intranode::", "ep::internode_ll::"}) {
    const std::size_t at = kernel.find(space);
    if (at != std::string_view::npos) return until(kernel.substr(at + space.size()), "<(");
  }
  return std::nullopt;
}

std::optional<Bytes> kineto_element_size(std::string_view dtype) {
  for (const ElementSize& size : kElementSizes) {
    if (size.name == dtype) return Bytes{size.bytes};
  }
  return std::nullopt;
}

std::optional<Bytes> kineto_input_bytes(const KinetoEvent& event) {
  if (event.input_types.empty()) return std::nullopt;
  constexpr std::int64_t most = std::int64_t{1} << 56;  // far beyond any memory; keeps sums inside 64 bits
  Bytes sum;
  for (std::size_t i = 0; i < event.input_types.size(); ++i) {
    const std::optional<Bytes> size = kineto_element_size(event.input_types[i]);
    if (!size) return std::nullopt;
    sum.count = std::min(most, sum.count + event.input_elements[i] * size->count);
  }
  return sum;
}

}  // namespace dflop
