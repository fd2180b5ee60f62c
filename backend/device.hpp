// A device gives one rank memory, streams and events, and counts what the rank's buffers take. The host is a
// device like any other.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/units.hpp"
#include "kernels/kernels.hpp"

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

/// A Buffer is device memory that is given back with the object. Aligned to 256 bytes; contents are not set.
class Buffer {
 public:
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  virtual ~Buffer() = default;
  void* data() { return data_; }
  const void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 protected:
  Buffer(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  void* data_;  // a derived class may take it and give it back before its end

 private:
  std::size_t bytes_;
};

/// A DeviceEvent is a point in a stream. It may be recorded again; who waits for it waits for the latest
/// recording.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Returns when the device came to the event, on a clock that all ranks of the run share.
  /// @throws Error (internal) before it is recorded; waits until the device is there.
  virtual Nanoseconds time() = 0;
};

/// A DeviceStream does work in order. What is put into it may run later; what stands in two streams may run
/// at once.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual void record(DeviceEvent& event) = 0;
  /// Lets what comes after the call wait until the device has come to the event. One that was never recorded
  /// is an error.
  virtual void wait(DeviceEvent& event) = 0;
  /// Returns when all work of the stream is done. @throws Error (internal) where the device reports a
  /// failure.
  virtual void synchronize() = 0;

  /// Copies from the host. The source may be used again when the call returns.
  virtual void copy_to_device(void* destination, const void* source, std::size_t bytes) = 0;
  virtual void copy_to_host(void* destination, const void* source, std::size_t bytes) = 0;
  virtual void copy(void* destination, const void* source, std::size_t bytes) = 0;
};

/// A Device is one rank's view of a device; not to be used from several threads at once.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  ///< "host", "NVIDIA H200"
  /// Returns whether work is done when the call returns that puts it into a stream, and may be given any
  /// memory of the host. Threads do not run ahead then, and who waits for another's work sleeps.
  virtual bool is_synchronous() const { return false; }
  /// Prepares a thread; it is called in each one before it works with the device, its streams or kernels.
  virtual void enter_thread() {}
  /// Returns what a cache keeps between kernels that a training step would not find there, so that
  /// measurements have to flush it; none where steps find it, too.
  virtual Bytes cache() const { return {}; }
  /// Returns to a multiple of how many values zeros fill up rows within MLPs in memory (Parameter); 1: rows
  /// are as wide as the model says.
  virtual int row_alignment() const { return 1; }

  /// Returns memory of so many bytes. @throws OutOfMemory
  virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
  virtual std::unique_ptr<DeviceStream> make_stream() = 0;
  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  /// Returns kernels that run on `stream`, which outlives them.
  virtual std::unique_ptr<Kernels> make_kernels(DeviceStream& stream, DType dtype) = 0;

  virtual Bytes in_use() const = 0;       ///< of this rank, now
  virtual Bytes most_in_use() const = 0;  ///< of this rank, since reset_most_in_use()
  virtual void reset_most_in_use() = 0;
};

}  // namespace dflop
