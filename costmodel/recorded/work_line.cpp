#include "costmodel/recorded/work_line.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

namespace dflop {
namespace {

// Only stages at an end of their module have the terms of that end. A subset with such terms must also have
// the terms of the module's layers.
constexpr unsigned kEncoderLayers = 1U << 1;
constexpr unsigned kConnector = 1U << 3;  // the second encoder runs whole, so its term needs no other
constexpr unsigned kLlmLayers = 1U << 4;
constexpr unsigned kLlmEnds = 1U << 6 | 1U << 7;

bool holds_layers(unsigned subset) {
  return ((subset & kConnector) == 0 || (subset & kEncoderLayers) != 0) &&
         ((subset & kLlmEnds) == 0 || (subset & kLlmLayers) != 0);
}

constexpr std::size_t kFewestWorks = 4;
constexpr double kMaxError = 0.1;  ///< of the mean duration
constexpr double kFarthest = 4;    ///< times what was recorded

}  // namespace

WorkLine::Terms WorkLine::terms_of(const Stage& stage, const Work& work) {
  const auto encoder_tokens = static_cast<double>(work.encoder.tokens);
  const auto llm_tokens = static_cast<double>(work.llm.tokens);
  return {1,
          stage.encoder_layers * encoder_tokens,
          stage.encoder_layers * static_cast<double>(work.encoder.attention_pairs),
          stage.connector ? encoder_tokens : 0,
          stage.llm_layers * llm_tokens,
          stage.llm_layers * static_cast<double>(work.llm.attention_pairs),
          stage.embedding ? llm_tokens : 0,
          stage.head ? llm_tokens - static_cast<double>(work.llm.untrained_tokens) : 0,
          stage.connector ? static_cast<double>(work.encoder.second.tokens) : 0};
}

void WorkLine::add(const Stage& stage, const Work& work, Seconds duration) {
  works_.push_back(terms_of(stage, work));
  durations_.push_back(duration.count());
  for (std::size_t t = 0; t < kTerms; ++t) most_[t] = std::max(most_[t], works_.back()[t]);
}

/// Returns a few equations with the same least squares as all recordings (there may be tens of thousands),
/// because every choice of terms is fitted to them: the triangle of a QR decomposition. Each term is scaled
/// by its max.
std::vector<WorkLine::Equation> WorkLine::reduced() const {
  const auto rows = static_cast<Eigen::Index>(works_.size());
  Eigen::MatrixXd matrix(rows, kTerms + 1);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const auto i = static_cast<std::size_t>(row);
    for (std::size_t t = 0; t < kTerms; ++t)
      matrix(row, static_cast<Eigen::Index>(t)) = most_[t] > 0 ? works_[i][t] / most_[t] : 0;
    matrix(row, kTerms) = durations_[i];
  }
  const Eigen::HouseholderQR<Eigen::MatrixXd> solver(matrix);
  std::vector<Equation> equations(std::min<std::size_t>(works_.size(), kTerms + 1));
  for (std::size_t e = 0; e < equations.size(); ++e) {
    for (std::size_t t = e; t <= kTerms; ++t)
      equations[e][t] = solver.matrixQR()(static_cast<Eigen::Index>(e), static_cast<Eigen::Index>(t));
  }
  return equations;
}

/// Fits the terms of a subset (bit t: term t); nullopt if a coefficient is negative, or terms cannot be told
/// apart.
std::optional<WorkLine::Terms> WorkLine::fit(unsigned subset, const std::vector<Equation>& equations,
                                             double& error) const {
  std::vector<std::size_t> terms;
  for (std::size_t t = 0; t < kTerms; ++t) {
    if ((subset >> t & 1) != 0) terms.push_back(t);
  }
  const auto rows = static_cast<Eigen::Index>(equations.size());
  Eigen::MatrixXd matrix(rows, terms.size());
  Eigen::VectorXd durations(rows);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const Equation& equation = equations[static_cast<std::size_t>(row)];
    for (std::size_t k = 0; k < terms.size(); ++k)
      matrix(row, static_cast<Eigen::Index>(k)) = equation[terms[k]];
    durations(row) = equation[kTerms];
  }
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
  double least = kMaxError * mean;
  const std::vector<Equation> equations = reduced();
  unsigned unrecorded = 0;  // terms
  for (std::size_t t = 0; t < kTerms; ++t) unrecorded |= most_[t] == 0 ? 1U << t : 0;
  for (unsigned subset = 1; subset < 1U << kTerms; ++subset) {
    double error = 0;
    if ((subset & unrecorded) != 0 || !holds_layers(subset)) continue;
    if (static_cast<std::size_t>(std::popcount(subset)) + 1 >= different) continue;
    const auto line = fit(subset, equations, error);
    if (!line || error >= least) continue;
    least = error;
    line_ = line;
  }
}

std::optional<Seconds> WorkLine::price(const Stage& stage, const Work& work) const {
  if (!line_) return std::nullopt;
  const Terms terms = terms_of(stage, work);
  double seconds = 0;
  for (std::size_t t = 0; t < kTerms; ++t) {
    if (terms[t] > kFarthest * most_[t]) return std::nullopt;
    seconds += (*line_)[t] * terms[t];
  }
  return Seconds(seconds);
}

}  // namespace dflop
