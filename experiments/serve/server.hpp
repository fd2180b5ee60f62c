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

/// These limits bound a client's requests, so that a faulty client gets an error and the server keeps
/// answering:
inline constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;    ///< per request
inline constexpr std::size_t kMaxOpenSessions = 64;                    ///< at the same time
inline constexpr std::size_t kMaxWaitingBatches = 2048;                ///< per session
inline constexpr std::size_t kMaxWaitingItems = std::size_t{1} << 22;  ///< in all sessions
/// In all sessions together, waiting batches have at most kMaxWaitingBytes bytes, and waiting partition
/// requests kMaxPartitionBytes. If the latter limit is reached, the next request is read later.
inline constexpr std::size_t kMaxWaitingBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMaxPartitionBytes = kMaxLineBytes;

/// Answers requests until the input ends, and returns when all are answered. The first line of output
/// identifies the program and the protocol: {"dflop": "0.1.0", "protocol": 1}.
///
/// A request is {"id": 7, "method": "partition", "params": {...}}. Its answer is {"id": 7, "result": {...}}
/// or {"id": 7, "error": {"kind": "input", "message": "..."}}, where the kind is usage, input, infeasible or
/// internal. Answers come as soon as they are ready. Answers to the `next` requests of one session come in
/// the order of their requests, and so do answers to `partition` requests.
///
///   partition  items of one batch into bins: read_item_costs(), read_item_bins(), method (local-search),
///              seed (1), steps, time_limit_s
///   open       open_session(); its result is {"session": 1} and Session::opened()
///   push       a batch to a session: {"session": 1} and what Session::push() reads; {"iteration": 0}
///   next       Session::next() of {"session": 1}
///   close      ends {"session": 1}
///   ping       {}
///
/// `read_line` returns the next line; nullopt at the end. If a line is longer than kMaxLineBytes, it may
/// return only its first kMaxLineBytes + 1 bytes. `write_line` writes a line, and is called by one thread at
/// a time. From the call of serve() on, read_text_file() rejects pipes and devices in this process, because
/// waiting for one would block all clients.
void serve(const std::function<std::optional<std::string>()>& read_line,
           const std::function<void(const std::string&)>& write_line);

}  // namespace dflop
