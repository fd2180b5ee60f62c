// These functions use the names and ranges in a PyTorch-profiler trace to tell which communication a device
// activity belongs to, how many bytes it moves, and which part of a training step it is in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "traces/profiler/events.hpp"
#include "traces/profiler/kineto.hpp"

namespace dflop {

/// Returns the operation of a kernel of NCCL ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "AllReduce") or
/// DeepEP ("deep_ep::internode::dispatch<...>": "dispatch"); nullopt for other kernels.
std::optional<std::string> communication_name(std::string_view kernel);

/// Returns the size of an element from PyTorch's name of its type, for process groups ("BFloat16") or
/// operations ("c10::BFloat16", "long int"); nullopt for an unknown name.
std::optional<Bytes> kineto_element_size(std::string_view dtype);

/// Returns the total bytes of all inputs of an operation; nullopt if a type or shape is unknown.
std::optional<Bytes> kineto_input_bytes(const KinetoEvent& event);

/// A KinetoMarkKind is the kind of a KinetoMark.
enum class KinetoMarkKind : std::uint8_t {
  forward,      ///< an annotation
  backward,     ///< autograd::engine, a backward operation, or an annotation
  optimizer,    ///< Optimizer.step, or an annotation
  recorded_op,  ///< an operation that autograd recorded, which only a forward pass has
  collective,   ///< "nccl:..." around the launch of a collective
};

/// A KinetoMark is a time range on a host thread that classifies the launches inside it.
struct KinetoMark {
  std::int64_t thread = 0;
  Nanoseconds start{0};
  Nanoseconds end{0};
  KinetoMarkKind kind = KinetoMarkKind::forward;
  std::int32_t annotation = -1;  ///< for a collective: index into the caller's list of annotations
};

/// A KinetoContext is the classification of a launch by the ranges around it.
struct KinetoContext {
  KinetoPhase phase = KinetoPhase::other;
  std::int32_t collective = -1;  ///< annotation of the innermost collective
};

/// Returns the mark kind of a cpu_op or user_annotation; nullopt if it is not a mark.
std::optional<KinetoMarkKind> kineto_mark(const KinetoEvent& event);

/// Returns the context of each launch, in the order of `launches`. A range inside another overrides it,
/// except that a forward inside a backward is recomputation and counts as backward. A launch outside all
/// ranges on a thread that has only backward ranges is backward.
std::vector<KinetoContext> kineto_contexts(const std::vector<KinetoLaunch>& launches,
                                           std::vector<KinetoMark> marks);

}  // namespace dflop
