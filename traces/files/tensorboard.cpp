#include "traces/files/tensorboard.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <type_traits>

#include "core/error.hpp"

namespace dflop {
namespace {

/// These are the protobuf wire types used in an Event.
enum class WireType : std::uint8_t { varint = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };

template <typename Unsigned>
void add_little_endian(std::string& out, Unsigned value) {
  static_assert(std::is_unsigned_v<Unsigned>);
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void add_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void add_key(std::string& out, int field, WireType type) {
  add_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
}

void add_bytes(std::string& out, int field, std::string_view bytes) {
  add_key(out, field, WireType::bytes);
  add_varint(out, bytes.size());
  out += bytes;
}

std::string begin_event(Seconds wall_time) {
  std::string event;
  add_key(event, 1, WireType::eight_bytes);
  add_little_endian(event, std::bit_cast<std::uint64_t>(wall_time.count()));
  return event;
}

/// Returns the masked CRC of a TFRecord: rotated and offset, because CRCs of data that contain CRCs are weak.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

Seconds now() {
  return std::chrono::system_clock::now().time_since_epoch();
}

std::string new_event_path(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(ErrorKind::output, "the folder cannot be created: " + error.message(), folder);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '-';
  return fmt::format("{}/events.out.tfevents.{}.{}.{}", folder, static_cast<std::int64_t>(now().count()),
                     host.data(), ::getpid());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

std::string tf_record(std::string_view bytes) {
  std::string record;
  add_little_endian(record, static_cast<std::uint64_t>(bytes.size()));
  add_little_endian(record, masked_crc(record));
  record += bytes;
  add_little_endian(record, masked_crc(bytes));
  return record;
}

std::string version_event(Seconds wall_time) {
  std::string event = begin_event(wall_time);
  add_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string scalar_event(Seconds wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    add_bytes(value, 1, scalar.tag);
    add_key(value, 2, WireType::four_bytes);
    add_little_endian(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    add_bytes(summary, 1, value);
  }
  std::string event = begin_event(wall_time);
  add_key(event, 2, WireType::varint);
  add_varint(event, static_cast<std::uint64_t>(step));
  add_bytes(event, 5, summary);
  return event;
}

EventFile::EventFile(const std::string& folder) : file_(new_event_path(folder), GrowingFile::Mode::create) {
  file_.add(tf_record(version_event(now())));
}

void EventFile::add(std::int64_t step, std::span<const Scalar> scalars) {
  file_.add(tf_record(scalar_event(now(), step, scalars)));
}

}  // namespace dflop
