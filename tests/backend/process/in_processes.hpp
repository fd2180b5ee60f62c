// Emulates the processes of a run by threads that do the same work, and keeps the exception of each.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace dflop::testing {

/// Runs `work` for ranks 0 to `ranks` - 1, each in its own thread. Returns the message of each one's
/// exception; empty if there was none.
inline std::vector<std::string> messages_of_processes(int ranks, const std::function<void(int rank)>& work) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        work(r);
      } catch (const std::exception& error) {
        messages[static_cast<std::size_t>(r)] = error.what();
      }
    });
  }
  threads.clear();
  return messages;
}

}  // namespace dflop::testing
