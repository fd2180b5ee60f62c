// A MemoryAccount counts what a rank's buffers take of its memory and how much they may.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/units.hpp"

namespace dflop {

/// OutOfMemory says that a device has no room left.
class OutOfMemory : public std::runtime_error {
 public:
  /// The message is as "rank 3 on host: 1.50 GiB more are needed, 0.25 GiB are left"
  OutOfMemory(const std::string& message, Bytes needed, Bytes available)
      : std::runtime_error(message), needed_(needed), available_(available) {}
  Bytes needed() const { return needed_; }
  Bytes available() const { return available_; }

 private:
  Bytes needed_;
  Bytes available_;
};

/// A MemoryAccount counts the bytes that a rank has asked for. Not to be used from several threads at once.
class MemoryAccount {
 public:
  /// `owner` is for messages: "rank 3 on host". Without a limit the rank may have what the machine gives.
  MemoryAccount(std::string owner, std::optional<Bytes> limit) : owner_(std::move(owner)), limit_(limit) {}

  /// Checks a request for so many bytes. @throws OutOfMemory where the limit does not allow it.
  void check(std::size_t bytes) const;
  void add(std::size_t bytes);
  void remove(std::size_t bytes);
  /// Reports that the machine has refused so many bytes and has `left`. @throws OutOfMemory
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
