// This header handles untyped memory: pointer offsets, and conversion of values to bytes and back. Only
// processes of the same build on the same kind of machine may exchange these bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace dflop {

/// Returns the address that is `bytes` bytes after `data`.
inline const std::byte* offset(const void* data, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
inline std::byte* offset(void* data, std::size_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}

/// A ByteWriter appends values to a string of bytes: numbers and structs as in memory, vectors and texts
/// after their length.
class ByteWriter {
 public:
  template <typename Value>
  void add(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename Value>
  void add(std::span<const Value> values) {
    static_assert(std::is_trivially_copyable_v<Value>);
    add(static_cast<std::uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  template <typename Value>
  void add(const std::vector<Value>& values) {
    add(std::span<const Value>(values));
  }
  void add(const std::string& text) { add(std::span<const char>(text)); }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// A ByteReader reads the values of a ByteWriter back, in the order of writing.
/// @throws Error (internal) if it reads past the end.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return bytes_.empty(); }

  template <typename Value>
  Value get() {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value value{};
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  template <typename Value>
  std::vector<Value> get_all() {
    const auto count = get<std::uint64_t>();
    if (count > bytes_.size() / sizeof(Value)) fail();
    std::vector<Value> values(static_cast<std::size_t>(count));
    if (!values.empty()) std::memcpy(values.data(), take(count * sizeof(Value)), count * sizeof(Value));
    return values;
  }
  std::string get_text() {
    const std::vector<char> text = get_all<char>();
    return {text.begin(), text.end()};
  }

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorKind::internal, "another process of the run sent less than expected");
  }
  const char* take(std::size_t bytes) {
    if (bytes > bytes_.size()) fail();
    const char* begin = bytes_.data();
    bytes_.remove_prefix(bytes);
    return begin;
  }
  std::string_view bytes_;
};

}  // namespace dflop
