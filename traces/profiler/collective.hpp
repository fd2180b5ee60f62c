// Names and sizes of communication in a PyTorch-profiler trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/units.hpp"
#include "traces/profiler/events.hpp"

namespace dflop {

/// The operation of a kernel of NCCL ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "AllReduce") or of DeepEP
/// ("deep_ep::internode::dispatch<...>": "dispatch"); nothing for another kernel.
std::optional<std::string> communication_name(std::string_view kernel);

/// Size of an element, of the names that PyTorch uses for process groups ("BFloat16") and for operations
/// ("c10::BFloat16", "long int"); nothing for an unknown one.
std::optional<Bytes> kineto_element_size(std::string_view dtype);

/// Bytes of all inputs of an operation; nothing where a type or shape is not known.
std::optional<Bytes> kineto_input_bytes(const KinetoEvent& event);

}  // namespace dflop
