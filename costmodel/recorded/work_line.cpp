#include "costmodel/recorded/work_line.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

namespace dflop {
namespace {

constexpr std::size_t kFewestWorks = 4;
constexpr double kMostError = 0.1;  ///< of the mean duration
constexpr double kFarthest = 4;     ///< times what was recorded

}  // namespace

WorkLine::Terms WorkLine::terms_of(const Work& work) {
  return {1, static_cast<double>(work.encoder.tokens), static_cast<double>(work.encoder.attention_pairs),
          static_cast<double>(work.llm.tokens), static_cast<double>(work.llm.attention_pairs)};
}

void WorkLine::add(const Work& work, Seconds duration) {
  works_.push_back(terms_of(work));
  durations_.push_back(duration.count());
  for (std::size_t t = 0; t < kTerms; ++t) most_[t] = std::max(most_[t], works_.back()[t]);
}

/// Fits the terms of a subset (bit t: term t); nothing where one of them is not recorded, negative, or cannot
/// be told from others.
std::optional<WorkLine::Terms> WorkLine::fit(unsigned subset, double& error) const {
  std::vector<std::size_t> terms;
  for (std::size_t t = 0; t < kTerms; ++t) {
    if ((subset >> t & 1) == 0) continue;
    if (most_[t] == 0) return std::nullopt;
    terms.push_back(t);
  }
  Eigen::MatrixXd matrix(works_.size(), terms.size());
  for (std::size_t row = 0; row < works_.size(); ++row) {
    for (std::size_t k = 0; k < terms.size(); ++k)
      matrix(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(k)) =
          works_[row][terms[k]] / most_[terms[k]];
  }
  const Eigen::Map<const Eigen::VectorXd> durations(durations_.data(),
                                                    static_cast<Eigen::Index>(durations_.size()));
  const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver(matrix);
  if (solver.rank() < static_cast<Eigen::Index>(terms.size())) return std::nullopt;
  const Eigen::VectorXd solution = solver.solve(durations);
  if ((solution.array() < 0).any()) return std::nullopt;
  const double freedom = static_cast<double>(works_.size()) - static_cast<double>(terms.size());
  error = std::sqrt((matrix * solution - durations).squaredNorm() / freedom);
  Terms line{};
  for (std::size_t k = 0; k < terms.size(); ++k)
    line[terms[k]] = solution[static_cast<Eigen::Index>(k)] / most_[terms[k]];
  return line;
}

void WorkLine::settle() {
  const std::size_t different = std::set<Terms>(works_.begin(), works_.end()).size();
  if (different < kFewestWorks) return;
  double mean = 0;
  for (const double duration : durations_) mean += duration / static_cast<double>(durations_.size());
  double least = kMostError * mean;
  for (unsigned subset = 1; subset < 1U << kTerms; ++subset) {
    double error = 0;
    if (static_cast<std::size_t>(std::popcount(subset)) + 1 >= different) continue;
    const auto line = fit(subset, error);
    if (!line || error >= least) continue;
    least = error;
    line_ = line;
  }
}

std::optional<Seconds> WorkLine::price(const Work& work) const {
  if (!line_) return std::nullopt;
  const Terms terms = terms_of(work);
  double seconds = 0;
  for (std::size_t t = 0; t < kTerms; ++t) {
    if (terms[t] > kFarthest * most_[t]) return std::nullopt;
    seconds += (*line_)[t] * terms[t];
  }
  return Seconds(seconds);
}

}  // namespace dflop
