#include "backend/device.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>

namespace dflop {
namespace {

/// Returns "1.50 GiB", or "300 bytes" below a MiB.
std::string in_words(Bytes bytes) {
  if (bytes.count < (std::int64_t{1} << 20)) return std::to_string(bytes.count) + " bytes";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f GiB", static_cast<double>(bytes.count) * 0x1p-30);
  return text.data();
}

Bytes as_bytes(std::size_t bytes) {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  return {static_cast<std::int64_t>(std::min(bytes, most))};
}

}  // namespace

void MemoryAccount::check(std::size_t bytes) const {
  const Bytes needed = as_bytes(bytes);
  if (!limit_ || needed <= *limit_ - in_use_) return;
  fail(needed, *limit_ - in_use_, "; its limit is " + in_words(*limit_));
}

void MemoryAccount::add(std::size_t bytes) {
  in_use_ += as_bytes(bytes);
  most_in_use_ = std::max(most_in_use_, in_use_);
}

void MemoryAccount::remove(std::size_t bytes) {
  in_use_ -= as_bytes(bytes);
}

void MemoryAccount::refused(std::size_t bytes, Bytes left) const {
  fail(as_bytes(bytes), left, "; the machine has no more");
}

void MemoryAccount::fail(Bytes needed, Bytes left, const std::string& why) const {
  throw OutOfMemory(
      owner_ + ": " + in_words(needed) + " more are needed, " + in_words(left) + " are left" + why, needed,
      left);
}

}  // namespace dflop
