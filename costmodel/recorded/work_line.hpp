// A WorkLine says how the duration of an operation grows with its work and with what its stage holds, from
// recorded ones.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A WorkLine is duration = c0 + layers of the encoder (c1 tokens + c2 attention pairs) + c3 encoder tokens
/// where the connector is + layers of the LLM (c4 tokens + c5 attention pairs) + c6 LLM tokens where the
/// embedding is + c7 LLM tokens where the head is, none of them negative, through recorded operations of one
/// kind, with the least squares of its errors. Of all choices of terms it is that with the least variance of
/// its errors, degrees of freedom counted, so that few recordings do not make up many terms.
///
/// Operations may be of one stage or of several, whose layers then tell a layer's time from that of the ends.
class WorkLine {
 public:
  void add(const Stage& stage, const Work& work, Seconds duration);

  /// Finds the line. It is none with fewer than four different works, or where its errors are over 10 % of
  /// the mean duration (standard deviation): something else than these terms decides then.
  void settle();

  /// Returns the duration of a work; nothing without a line, and for work that has over four times as much of
  /// anything as any recorded one.
  std::optional<Seconds> price(const Stage& stage, const Work& work) const;

 private:
  static constexpr std::size_t kTerms = 8;
  using Terms = std::array<double, kTerms>;

  static Terms terms_of(const Stage& stage, const Work& work);
  using Equation = std::array<double, kTerms + 1>;  ///< terms, and the duration

  std::vector<Equation> reduced() const;
  std::optional<Terms> fit(unsigned subset, const std::vector<Equation>& equations, double& error) const;

  std::vector<Terms> works_;
  std::vector<double> durations_;  ///< seconds
  Terms most_{};                   ///< of the recorded works
  std::optional<Terms> line_;
};

}  // namespace dflop
