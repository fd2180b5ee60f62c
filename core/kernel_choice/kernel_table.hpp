// A KernelTable has what the variants of operations took, by key, and says which of them to run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/kernel_choice/kernel_map.hpp"
#include "core/kernel_choice/kernel_stats.hpp"

namespace dflop {

/// A KernelComparison says how a variant stands to the default.
struct KernelComparison {
  std::size_t variant = 0;
  double gain = 1;  ///< mean of the default over that of the variant
  double low = 1;   ///< of the gain, where both means are at the ends of their intervals
  double high = 1;
};

/// A KernelTable keeps KernelStats of calls. Durations are those of the call in the middle of its key's
/// buckets: others are brought there by work_of().
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

  /// Returns the entry of a key, which is made where there is none. @pre the operation has variants
  Entry& entry(KernelKey key);
  const Entry* find(KernelKey key) const { return entries_.find(key); }
  /// Adds a duration. @pre as entry(), and variant is one of the operation's
  void observe(KernelKey key, std::size_t variant, double ns) { entry(key)[variant].add(ns); }
  /// Adds the newer durations of another table of the same variants.
  void merge(const KernelTable& newer);

  /// Returns the variant to run: of those whose interval lies below the default's the one of the least mean;
  /// else the default. Without durations of the default at the key the nearest_index() that has some says.
  std::size_t choose(KernelKey key) const;
  /// Returns the key by whose entry choose() goes: this one or the nearest; nothing where there is none.
  std::optional<KernelKey> basis_key(KernelKey key) const;
  /// Returns whether an entry can say anything: a choice is one against the default.
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
