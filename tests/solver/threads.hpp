// Many threads at once, what they must not leave behind, and how often tests repeat operations that are slow
// with sanitizers.
#pragma once

#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <thread>
#include <vector>

namespace dflop::testing {

constexpr int kThreads = 8;

/// Returns how often a test that usually solves `times` integer programs does so in this build. With the
/// address sanitizer each large array that CBC allocates and frees takes several system calls, so a solution
/// takes at least a tenth of a second.
constexpr int integer_programs(int times) {
  return std::string_view(DFLOP_SANITIZE).find("address") == std::string_view::npos ? times
                                                                                    : (times + 39) / 40;
}

/// Calls body(thread) in separate threads, and returns when all are done.
template <typename Body>
void in_threads(const Body& body) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
}

/// Open files of this process.
inline std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// Whether this process has a child, alive or a zombie.
inline bool has_child() {
  siginfo_t any{};
  return waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace dflop::testing
