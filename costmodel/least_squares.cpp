#include "costmodel/least_squares.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr double kDifference = 1e-4;
constexpr double kMinProgress = 1e-9;
constexpr double kFirstDamping = 1e-3;
constexpr double kMaxDamping = 1e8;

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;

class Minimizer {
 public:
  explicit Minimizer(const LeastSquares& problem) : problem_(problem), point_(problem.start) {
    check();
    residuals_ = evaluate(point_);
    cost_ = cost_of(residuals_);
    if (!std::isfinite(cost_)) throw Error(ErrorKind::internal, "residuals are not finite at the start");
  }

  LeastSquaresFit run() {
    int steps = 0;
    while (steps < problem_.most_steps && step()) ++steps;
    return {point_, cost_, steps};
  }

 private:
  void check() const {
    const std::size_t size = point_.size();
    bool good = size > 0 && problem_.lower.size() == size && problem_.upper.size() == size;
    for (std::size_t i = 0; good && i < size; ++i) {
      good = problem_.lower[i] <= point_[i] && point_[i] <= problem_.upper[i];
    }
    if (!good) throw Error(ErrorKind::internal, "least squares: expected a start inside its bounds");
  }

  Vector evaluate(const std::vector<double>& point) const {
    const std::vector<double> values = problem_.residuals(point);
    return Eigen::Map<const Vector>(values.data(), static_cast<Eigen::Index>(values.size()));
  }

  double cost_of(const Vector& residuals) const {
    return robust_cost({residuals.data(), static_cast<std::size_t>(residuals.size())}, problem_.robust_scale);
  }

  /// Multiplies rows by the square root of the robust cost's weight.
  void reweigh(Matrix& jacobian, Vector& residuals) const {
    if (problem_.robust_scale == 0) return;
    for (Eigen::Index i = 0; i < residuals.size(); ++i) {
      const double weight = 1 / std::sqrt(std::hypot(1.0, residuals[i] / problem_.robust_scale));
      residuals[i] *= weight;
      jacobian.row(i) *= weight;
    }
  }

  Matrix jacobian() const {
    Matrix result(residuals_.size(), static_cast<Eigen::Index>(point_.size()));
    for (std::size_t i = 0; i < point_.size(); ++i) {
      std::vector<double> moved = point_;
      // Step away from the nearer bound.
      const bool up = problem_.upper[i] - point_[i] >= point_[i] - problem_.lower[i];
      const double difference = up ? kDifference : -kDifference;
      moved[i] += difference;
      result.col(static_cast<Eigen::Index>(i)) = (evaluate(moved) - residuals_) / difference;
    }
    return result;
  }

  /// Zeroes the columns of variables at a bound that the gradient pushes outward, which holds them.
  void hold_at_bounds(Matrix& jacobian, const Vector& gradient) const {
    for (std::size_t i = 0; i < point_.size(); ++i) {
      const double slope = gradient[static_cast<Eigen::Index>(i)];
      const bool held =
          (point_[i] <= problem_.lower[i] && slope > 0) || (point_[i] >= problem_.upper[i] && slope < 0);
      if (held) jacobian.col(static_cast<Eigen::Index>(i)).setZero();
    }
  }

  /// Takes one accepted step; returns false if no worthwhile step is left.
  bool step() {
    Matrix derivatives = jacobian();
    Vector weighted = residuals_;
    reweigh(derivatives, weighted);
    hold_at_bounds(derivatives, derivatives.transpose() * weighted);
    const Matrix normal = derivatives.transpose() * derivatives;
    const Vector gradient = derivatives.transpose() * weighted;
    for (; damping_ < kMaxDamping; damping_ *= 4) {
      Matrix damped = normal;
      // A variable without influence has a zero diagonal; setting it to one keeps the matrix regular and the
      // variable unmoved.
      for (Eigen::Index i = 0; i < damped.rows(); ++i)
        damped(i, i) += damping_ * normal(i, i) + (normal(i, i) == 0 ? 1 : 0);
      const Vector move = damped.ldlt().solve(-gradient);
      std::vector<double> next = point_;
      for (std::size_t i = 0; i < next.size(); ++i) {
        next[i] =
            std::clamp(next[i] + move[static_cast<Eigen::Index>(i)], problem_.lower[i], problem_.upper[i]);
      }
      const Vector residuals = evaluate(next);
      const double cost = cost_of(residuals);
      if (!(cost < cost_)) continue;
      const bool worth_more = cost_ - cost > kMinProgress * cost_;
      point_ = next;
      residuals_ = residuals;
      cost_ = cost;
      damping_ /= 8;
      return worth_more;
    }
    return false;
  }

  const LeastSquares& problem_;
  std::vector<double> point_;
  Vector residuals_;
  double cost_ = 0;
  double damping_ = kFirstDamping;
};

}  // namespace

double robust_cost(std::span<const double> residuals, double scale) {
  double sum = 0;
  for (const double r : residuals)
    sum += scale == 0 ? r * r / 2 : scale * scale * (std::hypot(1.0, r / scale) - 1);
  return sum;
}

LeastSquaresFit minimize(const LeastSquares& problem) {
  return Minimizer(problem).run();
}

}  // namespace dflop
