#include "experiments/serve/batch_window.hpp"

namespace dflop {

bool BatchWindow::add(const std::vector<double>& costs, bool is_last) {
  batch_ = costs.size();
  costs_.insert(costs_.end(), costs.begin(), costs.end());
  ++held_;
  return is_last || !delay_.is_on() || held_ == static_cast<std::size_t>(delay_.window);
}

std::vector<std::vector<PushedAt>> BatchWindow::take() {
  std::vector<std::int32_t> order(costs_.size());
  if (held_ > 1) {
    order = delay_outliers(costs_, static_cast<int>(batch_), delay_);
  } else {
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  }
  std::vector<std::vector<PushedAt>> batches(held_);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    batches[i / batch_].push_back({first_ + from / batch_, from % batch_});
  }
  first_ += held_;
  held_ = 0;
  costs_.clear();
  return batches;
}

}  // namespace dflop
