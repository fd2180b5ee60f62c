// Runs the ranks of a rendezvous as threads of one process, and returns how they end.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "backend/process/rendezvous.hpp"
#include "core/error.hpp"
#include "tests/backend/process/free_port.hpp"

namespace dflop::testing {

inline constexpr Seconds kNever{300};  // if it expires after all, the message says who waited for what

inline RendezvousOptions options_of(int rank, int ranks, int port, Seconds meeting = Seconds{60},
                                    Seconds timeout = kNever) {
  return {"127.0.0.1", port, rank, ranks, meeting, timeout};
}

enum class End : std::uint8_t { done, error, aborted };

struct RankOutcome {
  End end = End::done;
  std::string message;
};

using RankBody = std::function<void(Rendezvous&)>;

inline RankOutcome outcome(const RendezvousOptions& options, const RankBody& body) {
  try {
    Rendezvous rendezvous(options);
    body(rendezvous);
    rendezvous.leave();
    return {};
  } catch (const Aborted& aborted) {
    return {End::aborted, aborted.what()};
  } catch (const Error& error) {
    return {End::error, error.what()};
  }
}

/// Runs each rank in its own thread with its own connection.
inline std::vector<RankOutcome> run(int ranks, const RankBody& body, Seconds timeout = kNever) {
  const int port = free_port();
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        outcomes[static_cast<std::size_t>(r)] =
            outcome(options_of(r, ranks, port, Seconds{60}, timeout), body);
      });
    }
  }
  return outcomes;
}

inline void expect_done(const std::vector<RankOutcome>& outcomes) {
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    EXPECT_EQ(outcomes[r].end, End::done) << "rank " << r << ": " << outcomes[r].message;
  }
}

inline void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

}  // namespace dflop::testing
