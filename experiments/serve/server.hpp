// This server answers scheduling requests from training loops in other languages, one line of JSON each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dflop {

/// This is the version of the protocol. It increases when a client of the previous version would misread an
/// answer.
inline constexpr int kServeProtocol = 1;

/// Limits on the requests of clients. If a faulty client exceeds a limit, it gets an error and the server
/// continues.
inline constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;  ///< bytes per request
inline constexpr std::size_t kMaxOpenSessions = 64;      ///< number of sessions open at the same time
inline constexpr std::size_t kMaxWaitingBatches = 2048;  ///< waiting batches per session
inline constexpr std::size_t kMaxWaitingItems = std::size_t{1} << 22;  ///< waiting items, over all sessions
/// Max total bytes of waiting requests: kMaxWaitingBytes for pushed batches of all sessions, and
/// kMaxPartitionBytes for `partition` requests. When `partition` requests reach their limit, the server reads
/// no further request until some are answered.
inline constexpr std::size_t kMaxWaitingBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMaxPartitionBytes = kMaxLineBytes;

/// Answers requests until the input ends, and returns when all are answered. The first line of output
/// identifies the program and the protocol: {"dflop": "0.1.0", "protocol": 1}.
///
/// A request is {"id": 7, "method": "partition", "params": {...}}. Its answer is {"id": 7, "result": {...}}
/// or {"id": 7, "error": {"kind": "input", "message": "..."}}, where the kind is usage, input, infeasible or
/// internal. Answers come as soon as they are ready. The `next` requests of one session are answered in their
/// order, and so are all `partition` requests.
///
///   partition  items of one batch into bins: read_item_costs(), read_item_bins(), method (local-search),
///              seed (1), steps, time_limit_s
///   open       open_session(); its result is {"session": 1} and Session::opened()
///   push       a batch to a session: {"session": 1} and what Session::push() reads; {"iteration": 0}
///   next       Session::next() of {"session": 1}
///   close      ends {"session": 1}
///   ping       {}
///
/// `read_line` returns the next line, or nullopt at the end. It may cut a line that is longer than
/// kMaxLineBytes after kMaxLineBytes + 1 bytes. `write_line` writes a line, and is called by one thread at a
/// time. After serve() is called, read_text_file() rejects pipes and devices in this process, because waiting
/// for one would block all clients.
void serve(const std::function<std::optional<std::string>()>& read_line,
           const std::function<void(const std::string&)>& write_line);

}  // namespace dflop
