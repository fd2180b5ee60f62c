#include "core/kernel_choice/kernel_table.hpp"

#include <limits>

namespace dflop {

KernelTable::Entry& KernelTable::entry(KernelKey key) {
  const std::size_t found = entries_.index_of(key);
  if (found < entries_.size()) return entries_.value(found);
  return entries_.value(entries_.add(key, Entry(names(key.operation()).size())));
}

void KernelTable::merge(const KernelTable& newer) {
  for (std::size_t i = 0; i < newer.entries_.size(); ++i) {
    Entry& own = entry(newer.entries_.keys()[i]);
    const Entry& other = newer.entries_.value(i);
    for (std::size_t variant = 0; variant < own.size(); ++variant) own[variant].merge(other[variant]);
  }
}

std::optional<KernelKey> KernelTable::basis_key(KernelKey key) const {
  const auto nearest =
      nearest_index(entries_, key, [&](std::size_t i) { return is_measured(entries_.value(i)); });
  return nearest ? std::optional(entries_.keys()[*nearest]) : std::nullopt;
}

std::size_t KernelTable::choose(KernelKey key) const {
  const std::optional<KernelKey> basis = basis_key(key);
  return basis ? best_of(*find(*basis)) : 0;
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

KernelComparison KernelTable::compare(const Entry& entry, std::size_t variant) {
  const KernelStats& base = entry.front();
  const KernelStats& other = entry[variant];
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  return {variant, base.mean / other.mean, std::max(0.0, base.low()) / other.high(),
          other.low() > 0 ? base.high() / other.low() : kEndless};
}

}  // namespace dflop
