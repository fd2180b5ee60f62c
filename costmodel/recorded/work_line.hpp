// A WorkLine says how the duration of a stage's operation grows with its work, from recorded ones.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A WorkLine is duration = c0 + c1 encoder tokens + c2 encoder attention pairs + c3 LLM tokens + c4 LLM
/// attention pairs, none of them negative, through the recorded operations of one kind on one stage, with the
/// least squares of its errors. Of all choices of terms it is that with the least variance of its errors,
/// degrees of freedom counted, so that few recordings do not make up many terms.
class WorkLine {
 public:
  void add(const Work& work, Seconds duration);

  /// Finds the line. It is none with fewer than four different works, or where its errors are over 10 % of
  /// the mean duration (standard deviation): something else than these terms decides then.
  void settle();

  /// Returns the duration of a work; nothing without a line, and for work that has over four times as much of
  /// anything as any recorded one.
  std::optional<Seconds> price(const Work& work) const;

 private:
  static constexpr std::size_t kTerms = 5;
  using Terms = std::array<double, kTerms>;

  static Terms terms_of(const Work& work);
  std::optional<Terms> fit(unsigned subset, double& error) const;

  std::vector<Terms> works_;
  std::vector<double> durations_;  ///< seconds
  Terms most_{};                   ///< of the recorded works
  std::optional<Terms> line_;
};

}  // namespace dflop
