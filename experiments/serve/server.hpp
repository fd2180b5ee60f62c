// A server answers requests for schedules, a line of JSON each, as a training loop in another language asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dflop {

/// This is the version of the protocol. It rises when a client of the one before would misread an answer.
inline constexpr int kServeProtocol = 1;

/// What a client may ask for is bounded, so that one that goes wrong is told so, and answers go on:
inline constexpr std::size_t kMostLineBytes = std::size_t{64} << 20;    ///< of one request
inline constexpr std::size_t kMostOpenSessions = 64;                    ///< at a time
inline constexpr std::size_t kMostWaitingBatches = 2048;                ///< of a session
inline constexpr std::size_t kMostWaitingItems = std::size_t{1} << 22;  ///< of all sessions
/// Requests whose batches wait have at most so many bytes, in all sessions; so have partitions that wait, for
/// which the next request is read later.
inline constexpr std::size_t kMostWaitingBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMostPartitionBytes = kMostLineBytes;

/// Answers requests until there are no more, and returns when all are answered. The first line
/// that it writes says which program and protocol this is: {"dflop": "0.1.0", "protocol": 1}.
///
/// A request is {"id": 7, "method": "partition", "params": {...}}, its answer {"id": 7, "result": {...}} or
/// {"id": 7, "error": {"kind": "input", "message": "..."}}, where the kind is usage, input, infeasible or
/// internal. Answers come in the order in which they are ready; those of one session's `next`, and those of
/// partitions, each in the order of their requests.
///
///   partition  items of one batch into bins: read_item_costs(), read_item_bins(), method (local-search),
///              seed (1), steps, time_limit_s
///   open       open_session(); its result is {"session": 1} and Session::opened()
///   push       a batch to a session: {"session": 1} and what Session::push() reads; {"iteration": 0}
///   next       Session::next() of {"session": 1}
///   close      ends {"session": 1}
///   ping       {}
///
/// `read_line` returns the next line, or nothing at the end; of a line that is longer than kMostLineBytes it
/// need not return more than one byte beyond that. `write_line` writes one, and is called by one thread at a
/// time. From then on read_text_file() refuses pipes and devices in this process, for which nobody may wait.
void serve(const std::function<std::optional<std::string>()>& read_line,
           const std::function<void(const std::string&)>& write_line);

}  // namespace dflop
