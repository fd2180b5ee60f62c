// A Device gives one rank memory, streams, events and kernels, and counts the memory of the rank's buffers.
// The host is a device too.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/out_of_memory.hpp"
#include "core/units.hpp"
#include "kernels/kernels.hpp"

namespace dflop {

/// A MemoryAccount counts the bytes that a rank has allocated. It is not thread-safe.
class MemoryAccount {
 public:
  /// `owner` names the rank in messages: "rank 3 on host". If `limit` is empty, only the machine's memory
  /// limits the rank.
  MemoryAccount(std::string owner, std::optional<Bytes> limit) : owner_(std::move(owner)), limit_(limit) {}

  /// Checks a request for `bytes` bytes. @throws OutOfMemory if it exceeds the limit.
  void check(std::size_t bytes) const;
  void add(std::size_t bytes);
  void remove(std::size_t bytes);
  /// Throws OutOfMemory with a message that the machine could not provide `bytes` bytes and has `left` bytes
  /// free.
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

/// A Buffer owns device memory and frees it when it is destroyed. The memory is aligned to 256 bytes and is
/// not initialized.
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

  void* data_;  // a derived class may free it in its own destructor

 private:
  std::size_t bytes_;
};

/// A DeviceEvent marks a point in a stream. If it is recorded several times, the latest recording counts.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Waits until the device reaches the event. Returns the time at which the device reached it, on a clock
  /// that all ranks of the process share.
  /// @throws Error (internal) if the event was not recorded.
  virtual Nanoseconds time() = 0;
};

/// A DeviceStream runs its work in order. Work may run later than the call that enqueues it. Work in
/// different streams may run concurrently.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  virtual void record(DeviceEvent& event) = 0;
  /// Makes later work in this stream wait until the device has reached the event. An event that was never
  /// recorded is an error.
  virtual void wait(DeviceEvent& event) = 0;
  /// Waits until all work in the stream is done. @throws Error (internal) if the device reports a failure.
  virtual void synchronize() = 0;

  /// Copies from host to device memory. The source may be reused as soon as the call returns.
  virtual void copy_to_device(void* destination, const void* source, std::size_t bytes) = 0;
  virtual void copy_to_host(void* destination, const void* source, std::size_t bytes) = 0;
  virtual void copy(void* destination, const void* source, std::size_t bytes) = 0;
};

/// A Device is one rank's view of a device. It is not thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  ///< "host", "NVIDIA H200"
  /// Returns whether every call completes its work before it returns, and kernels can read any host memory.
  /// If so, a thread never runs ahead of its device, and a thread that waits for another thread's work
  /// sleeps.
  virtual bool is_synchronous() const { return false; }
  /// Prepares the calling thread. Every thread must call it before it uses the device, its streams or its
  /// kernels.
  virtual void enter_thread() {}
  /// Returns the size of the cache that a measurement must flush before each pass; zero if no flush is
  /// needed. In a training step the cache does not keep a kernel's data until the next kernel.
  virtual Bytes cache() const { return {}; }
  /// Rows within MLPs are padded with zeros in memory to a multiple of this number of values (see
  /// Parameter). 1 means that rows are not padded.
  virtual int row_alignment() const { return 1; }

  /// Allocates `bytes` bytes. @throws OutOfMemory
  virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
  virtual std::unique_ptr<DeviceStream> make_stream() = 0;
  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  /// Returns kernels that run on `stream`, which must outlive them.
  virtual std::unique_ptr<Kernels> make_kernels(DeviceStream& stream, DType dtype) = 0;

  virtual Bytes in_use() const = 0;       ///< bytes that this rank has allocated now
  virtual Bytes most_in_use() const = 0;  ///< max of in_use() since reset_most_in_use()
  virtual void reset_most_in_use() = 0;
};

}  // namespace dflop
