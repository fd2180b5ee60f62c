#include "core/kernel_choice/kernel_table.hpp"

namespace dflop {

void KernelTable::merge(const KernelTable& newer) {
  for (const auto& [key, other] : newer.entries_) {
    Entry& own = entry(key);
    for (std::size_t variant = 0; variant < own.size(); ++variant) own[variant].merge(other[variant]);
  }
}

std::size_t KernelTable::choose(const KernelKey& key) const {
  const auto* found = basis(key);
  return found != nullptr ? best_of(found->second) : 0;
}

std::size_t KernelTable::best_of(const Entry& entry) {
  std::size_t best = 0;
  if (!is_measured(entry)) return best;
  for (std::size_t variant = 1; variant < entry.size(); ++variant) {
    const KernelStats& stats = entry[variant];
    if (stats.count > 1 && stats.high() < entry.front().low() && stats.mean < entry[best].mean)
      best = variant;
  }
  return best;
}

}  // namespace dflop
