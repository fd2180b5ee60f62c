// Processes of a run are threads in tests: each does the same, and what each throws is kept.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace dflop::testing {

/// Runs `work` for ranks 0 to `ranks` - 1, each in a thread, and returns the message of each one's exception;
/// empty where there was none.
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
