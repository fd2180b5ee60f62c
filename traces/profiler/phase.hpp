// Host ranges of a PyTorch-profiler trace and what they say about the launches inside them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "traces/profiler/events.hpp"
#include "traces/profiler/kineto.hpp"

namespace dflop {

enum class KinetoMarkKind : std::uint8_t {
  forward,      ///< an annotation
  backward,     ///< autograd::engine, a backward operation, or an annotation
  optimizer,    ///< Optimizer.step, or an annotation
  recorded_op,  ///< an operation that autograd recorded, which only a forward pass has
  collective,   ///< "nccl:..." around the launch of a collective
};

/// A range of time on a host thread.
struct KinetoMark {
  std::int64_t thread = 0;
  Nanoseconds start{0};
  Nanoseconds end{0};
  KinetoMarkKind kind = KinetoMarkKind::forward;
  std::int32_t annotation = -1;  ///< of a collective: index into the caller's list
};

/// What the ranges around a launch say.
struct KinetoContext {
  KinetoPhase phase = KinetoPhase::other;
  std::int32_t collective = -1;  ///< annotation of the innermost collective
};

/// The kind of a cpu_op or user_annotation; nothing for one that says nothing.
std::optional<KinetoMarkKind> kineto_mark(const KinetoEvent& event);

/// The context of each launch, in the order of `launches`. A range inside another overrides it, except that a
/// forward inside a backward is recomputation and stays backward. A launch outside all ranges on a thread
/// that has only backward ranges is backward.
std::vector<KinetoContext> kineto_contexts(const std::vector<KinetoLaunch>& launches,
                                           std::vector<KinetoMark> marks);

}  // namespace dflop
