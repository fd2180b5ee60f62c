// A KernelTable has measured durations of kernel variants by key, and chooses the variant to run.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/kernel_choice/kernel_key.hpp"
#include "core/kernel_choice/kernel_stats.hpp"

namespace dflop {

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
  const std::map<KernelKey, Entry>& entries() const { return entries_; }

  /// Returns the entry of a key, and makes one if there is none. @pre the operation has variants
  Entry& entry(const KernelKey& key) {
    return entries_.try_emplace(key, names(key.operation).size()).first->second;
  }
  /// Adds the newer durations of another table with the same variants.
  void merge(const KernelTable& newer);

  /// Returns the variant to run: among variants whose confidence interval (KernelStats) lies below the
  /// default's, the one with the smallest mean; if there is none, the default. If the key has no durations of
  /// the default, the nearest() entry decides.
  std::size_t choose(const KernelKey& key) const;
  /// Returns the entry that choose() uses, with its key; null if there is none.
  const std::pair<const KernelKey, Entry>* basis(const KernelKey& key) const {
    return nearest(entries_, key, is_measured);
  }
  /// Returns whether an entry can decide: choices compare against the default, which needs durations.
  static bool is_measured(const Entry& entry) { return !entry.empty() && entry.front().count > 1; }
  static std::size_t best_of(const Entry& entry);

  bool operator==(const KernelTable&) const = default;

 private:
  VariantNames names_;
  std::map<KernelKey, Entry> entries_;
};

}  // namespace dflop
