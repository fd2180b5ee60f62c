// Each rank of this process has a thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace dflop {

/// A RankWork says what each rank does in its thread.
struct RankWork {
  std::function<void(std::size_t rank)> prepare;
  std::function<void(std::size_t rank)> run;  ///< begins when all ranks have prepared, or have failed to
  /// This is called in its thread where a rank fails by itself, not for what Aborted tells of another: to end
  /// the others' waiting.
  std::function<void(std::size_t rank, const std::string& message)> on_failure;
};

/// Does the work of ranks 0 to `count` - 1 and returns when all threads have ended.
/// @throws what the first rank that failed by itself has thrown.
void run_in_threads(std::size_t count, const RankWork& work);

}  // namespace dflop
