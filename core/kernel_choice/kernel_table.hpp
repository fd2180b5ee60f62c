// A KernelTable has measured durations of kernel variants by key, and chooses the variant to run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/kernel_choice/kernel_map.hpp"
#include "core/kernel_choice/kernel_stats.hpp"

namespace dflop {

/// A KernelComparison compares a variant with the default.
struct KernelComparison {
  std::size_t variant = 0;
  double gain = 1;  ///< mean of the default over mean of the variant
  double low = 1;   ///< min gain, with both means at the ends of their intervals; `high` is the max gain
  double high = 1;
};

/// A KernelTable keeps KernelStats of calls. Durations are scaled with work_of() to the call in the middle of
/// the key's buckets.
class KernelTable {
 public:
  /// An Entry has the durations of each variant, the default first.
  using Entry = std::vector<KernelStats>;

  KernelTable() = default;
  explicit KernelTable(VariantNames names) : names_(std::move(names)) {}

  const VariantNames& names() const { return names_; }
  const std::vector<std::string>& names(KernelOperation operation) const {
    return names_[static_cast<std::size_t>(operation)];
  }
  const KernelMap<Entry>& entries() const { return entries_; }

  /// Returns the entry of a key, and makes one if there is none. @pre the operation has variants
  Entry& entry(KernelKey key);
  const Entry* find(KernelKey key) const { return entries_.find(key); }
  /// Adds a duration. @pre as entry(), and `variant` is one of the operation's variants
  void observe(KernelKey key, std::size_t variant, double ns) { entry(key)[variant].add(ns); }
  /// Adds the newer durations of another table with the same variants.
  void merge(const KernelTable& newer);

  /// Returns the variant to run: among variants whose interval lies below the default's, the one with the
  /// smallest mean; if there is none, the default. If the key has no durations of the default, the entry at
  /// nearest_index() decides.
  std::size_t choose(KernelKey key) const;
  /// Returns the key whose entry choose() uses: this one or the nearest; nothing if there is none.
  std::optional<KernelKey> basis_key(KernelKey key) const;
  /// Returns whether an entry can decide: choices compare against the default, which needs durations.
  static bool is_measured(const Entry& entry) { return !entry.empty() && entry.front().count > 1; }
  static std::size_t best_of(const Entry& entry);
  /// Compares a variant with the default. @pre both have durations
  static KernelComparison compare(const Entry& entry, std::size_t variant);

  bool operator==(const KernelTable&) const = default;

 private:
  VariantNames names_;
  KernelMap<Entry> entries_;
};

}  // namespace dflop
