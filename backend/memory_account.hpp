// What a rank's buffers take of its memory, and how much they may.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/units.hpp"

namespace dflop {

/// Not to be used from several threads at once. Bytes are those that were asked for.
class MemoryAccount {
 public:
  /// `owner` is for messages: "rank 3 on host". No limit: what the machine gives.
  MemoryAccount(std::string owner, std::optional<Bytes> limit) : owner_(std::move(owner)), limit_(limit) {}

  /// @throws OutOfMemory where the limit does not allow it.
  void check(std::size_t bytes) const;
  void add(std::size_t bytes);
  void remove(std::size_t bytes);
  /// The machine has refused so many bytes and has `left`. @throws OutOfMemory
  [[noreturn]] void refused(std::size_t bytes, Bytes left) const;

  Bytes in_use() const { return in_use_; }
  Bytes most_in_use() const { return most_in_use_; }
  void reset_most_in_use() { most_in_use_ = in_use_; }

 private:
  [[noreturn]] void fail(Bytes needed, Bytes left, const std::string& why) const;

  std::string owner_;
  std::optional<Bytes> limit_;
  Bytes in_use_;
  Bytes most_in_use_;
};

}  // namespace dflop
