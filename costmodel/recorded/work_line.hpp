// A WorkLine predicts the duration of an operation from its work and its stage's contents. It is fitted to
// recorded operations.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A WorkLine is duration = c0 + layers of the encoder (c1 tokens + c2 attention pairs) + c3 encoder tokens
/// if the connector is there + layers of the LLM (c4 tokens + c5 attention pairs) + c6 LLM tokens if the
/// embedding is there + c7 LLM tokens if the head is there + c8 tokens of the second encoder if the connector
/// is there. It is the least-squares fit through recorded
/// operations of one kind, with no negative coefficient. Of all subsets of terms it uses the one with the
/// least error variance, counting degrees of freedom, so that few recordings do not support many terms.
///
/// Operations may come from one stage or from several, whose different layer counts separate a layer's time
/// from the time of connector, embedding and head.
class WorkLine {
 public:
  void add(const Stage& stage, const Work& work, Seconds duration);

  /// Fits the line. There is no line if fewer than four different works were added, or if the standard
  /// deviation of its errors exceeds 10 % of the mean duration, because factors outside these terms then
  /// dominate.
  void settle();

  /// Returns the duration of `work`; nullopt if no line was fitted, or if any term of the work is over four
  /// times the largest recorded one.
  std::optional<Seconds> price(const Stage& stage, const Work& work) const;

 private:
  static constexpr std::size_t kTerms = 9;
  using Terms = std::array<double, kTerms>;

  static Terms terms_of(const Stage& stage, const Work& work);
  using Equation = std::array<double, kTerms + 1>;  ///< terms, then the duration

  std::vector<Equation> reduced() const;
  std::optional<Terms> fit(unsigned subset, const std::vector<Equation>& equations, double& error) const;

  std::vector<Terms> works_;
  std::vector<double> durations_;  ///< seconds
  Terms most_{};                   ///< max of each term over the recorded works
  std::optional<Terms> line_;
};

}  // namespace dflop
