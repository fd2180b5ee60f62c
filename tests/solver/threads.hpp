// Many threads at once, and what they must not leave behind.
#pragma once

#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

namespace dflop::testing {

constexpr int kThreads = 8;

/// Calls body(thread) in threads of their own, and returns when all are done.
template <typename Body>
void in_threads(const Body& body) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
}

/// Of this process.
inline std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// Whether this process has a child, alive or a zombie.
inline bool has_child() {
  siginfo_t any{};
  return waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace dflop::testing
