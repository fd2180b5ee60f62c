// This file reads ranges in PyTorch-profiler traces that tell which step of a pipeline a rank executes: the
// ranges of torch.distributed.pipelining ("PP:1F0"), and ranges that users put around calls ("dflop:forward
// stage=1 mb=0").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/names.hpp"
#include "core/units.hpp"

namespace dflop {

/// A KinetoRangeKind is a rank's activity in a range.
enum class KinetoRangeKind : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  send_forward,      ///< the output of a forward
  send_backward,     ///< the output of a backward
  receive_forward,   ///< the input of a forward
  receive_backward,  ///< the input of a backward
  send,              ///< the output of the preceding forward or backward
  receive,           ///< the input of the following forward or backward
  reshard_send,      ///< a send between ranks of different dp
  reshard_receive,
  all_reduce,        ///< sum of a stage's gradients
  all_reduce_start,  ///< begin of an all_reduce that overlaps with compute
  all_reduce_wait,
  optimizer_step,
  wait,  ///< for messages whose send or receive was called earlier
};

template <>
inline constexpr NameTable<KinetoRangeKind, 17> kNames<KinetoRangeKind> = {
    {{KinetoRangeKind::forward, "forward"},
     {KinetoRangeKind::backward, "backward"},
     {KinetoRangeKind::backward_input, "backward_input"},
     {KinetoRangeKind::backward_weight, "backward_weight"},
     {KinetoRangeKind::send_forward, "send_forward"},
     {KinetoRangeKind::send_backward, "send_backward"},
     {KinetoRangeKind::receive_forward, "receive_forward"},
     {KinetoRangeKind::receive_backward, "receive_backward"},
     {KinetoRangeKind::send, "send"},
     {KinetoRangeKind::receive, "receive"},
     {KinetoRangeKind::reshard_send, "reshard_send"},
     {KinetoRangeKind::reshard_receive, "reshard_receive"},
     {KinetoRangeKind::all_reduce, "all_reduce"},
     {KinetoRangeKind::all_reduce_start, "all_reduce_start"},
     {KinetoRangeKind::all_reduce_wait, "all_reduce_wait"},
     {KinetoRangeKind::optimizer_step, "optimizer_step"},
     {KinetoRangeKind::wait, "wait"}}};

constexpr bool is_compute(KinetoRangeKind kind) {
  using enum KinetoRangeKind;
  return kind == forward || kind == backward || kind == backward_input || kind == backward_weight;
}
constexpr bool is_send(KinetoRangeKind kind) {
  using enum KinetoRangeKind;
  return kind == send_forward || kind == send_backward || kind == send || kind == reshard_send;
}
constexpr bool is_receive(KinetoRangeKind kind) {
  using enum KinetoRangeKind;
  return kind == receive_forward || kind == receive_backward || kind == receive || kind == reshard_receive;
}
constexpr bool is_reduction(KinetoRangeKind kind) {
  using enum KinetoRangeKind;
  return kind == all_reduce || kind == all_reduce_start || kind == all_reduce_wait;
}

/// A KinetoRange is a range on a thread of the host.
struct KinetoRange {
  KinetoRangeKind kind = KinetoRangeKind::forward;
  std::int32_t stage = -1;                ///< of the rank; -1: unknown
  std::int32_t microbatch = -1;           ///< -1: none
  std::optional<std::int32_t> peer{};     ///< global rank at the other end of a message
  std::optional<std::int32_t> message{};  ///< number of a message or sum, the same at all its ends
  std::int64_t thread = 0;
  Nanoseconds start{0};
  Nanoseconds end{0};
  std::size_t event = 0;  ///< index in traceEvents
};

/// Tells whether a name looks like a range: "PP:..." or "dflop:...".
bool names_a_range(std::string_view name);

/// Reads a name: kind, stage, microbatch, peer and number.
///   PP:<stage><action>[<microbatch>]   actions F B I W, SEND_F SEND_B RECV_F RECV_B, REDUCE_GRAD, and all
///                                      that begin with WAIT; others, such as UNSHARD, are not pipeline steps
///   dflop:<kind> [stage=S] [mb=M] [peer=R] [msg=N]
/// @returns nullopt for other names, and for names that do not match these forms
std::optional<KinetoRange> parse_range(std::string_view name);

/// Tells whether a name comes from torch.distributed.pipelining but is not a step of a pipeline, such as
/// "PP:1UNSHARD".
bool is_other_action(std::string_view name);

}  // namespace dflop
