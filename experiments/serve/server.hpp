// A server answers requests for schedules, a line of JSON each, as a training loop in another language asks.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

namespace dflop {

/// This is the version of the protocol. It rises when a client of the one before would misread an answer.
inline constexpr int kServeProtocol = 1;

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
/// `read_line` returns the next line, or nothing at the end; `write_line` writes one, and is called by one
/// thread at a time.
void serve(const std::function<std::optional<std::string>()>& read_line,
           const std::function<void(const std::string&)>& write_line);

}  // namespace dflop
