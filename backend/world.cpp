#include "backend/world.hpp"

#include <barrier>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.hpp"
#include "core/support/bytes.hpp"
#include "core/support/core_gate.hpp"

namespace dflop {
namespace {

/// Failures keep the first failure that is not just an echo of another rank's.
class Failures {
 public:
  explicit Failures(const RankWork& work) : work_(work) {}

  /// Adds the exception that is being handled.
  void add(std::size_t rank) {
    std::string message = "a failure of unknown type";
    bool own = true;
    try {
      throw;
    } catch (const Aborted&) {
      own = false;
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {
    }
    {
      const std::lock_guard lock(mutex_);
      if (!first_ || (own && !first_is_own_)) first_ = std::current_exception();
      first_is_own_ = first_is_own_ || own;
    }
    if (own) work_.on_failure(rank, message);
  }

  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  const RankWork& work_;
  std::mutex mutex_;
  std::exception_ptr first_;
  bool first_is_own_ = false;
};

}  // namespace

LocalRank::LocalRank(World& world, int rank, DType dtype)
    : device(world.make_device(rank)),
      communicator(world.make_communicator(rank)),
      stream(device->make_stream()),
      kernels(device->make_kernels(*stream, dtype)) {}

void do_in_all(World& world, const std::function<void()>& work) {
  std::exception_ptr failure;
  ByteWriter own;
  const auto add = [&](ErrorKind kind, const std::string& message) {
    failure = std::current_exception();
    own.add(kind);
    own.add(message);
  };
  try {
    work();
  } catch (const Aborted&) {
    throw;  // all processes know the failure
  } catch (const Error& error) {
    add(error.kind(), error.what());
  } catch (const std::exception& error) {
    add(ErrorKind::internal, error.what());
  }
  std::string first;
  for (const std::string& process : world.gather(own.take())) {
    if (first.empty()) first = process;
  }
  first = world.broadcast(first);
  if (failure) std::rethrow_exception(failure);
  if (first.empty()) return;
  ByteReader reader(first);
  const auto kind = reader.get<ErrorKind>();
  throw Error(kind, reader.get_text());
}

void run_in_threads(std::size_t count, const RankWork& work) {
  Failures failures(work);
  std::barrier start(static_cast<std::ptrdiff_t>(count));
  const auto rank = [&](std::size_t i) {
    become_batch_work();
    try {
      work.prepare(i);
    } catch (...) {
      failures.add(i);
      start.arrive_and_drop();
      return;
    }
    start.arrive_and_wait();
    try {
      work.run(i);
    } catch (...) {
      failures.add(i);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      try {
        threads.emplace_back(rank, i);
      } catch (...) {  // the system has no thread left; the other ranks must not wait for this one
        failures.add(i);
        start.arrive_and_drop();
      }
    }
  }
  failures.rethrow();
}

}  // namespace dflop
