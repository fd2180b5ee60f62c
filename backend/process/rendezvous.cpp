#include "backend/process/rendezvous.hpp"

#include <poll.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "core/error.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

constexpr std::chrono::seconds kGrace{5};       // for rank 0 to report how the run ended
constexpr std::chrono::seconds kSlowAnswer{1};  // of a watch; normally it answers at once
constexpr int kPings = 5;

std::string state_text(const std::optional<RankWait>& wait) {
  if (!wait) return "is not waiting";
  std::array<char, 32> time{};
  std::snprintf(time.data(), time.size(), " (%.2f s)", Seconds(host_time() - wait->since).count());
  return "waits for " + wait->what.substr(0, kMaxWordBytes / 2) + time.data();
}

}  // namespace

Rendezvous::Rendezvous(const RendezvousOptions& options) : options_(options) {
  host_time();  // starts the clock
  if (options.rank == 0) server_ = std::make_unique<RendezvousServer>(options);
  connection_ = connect_to(options.host, options.port, in_time(options.meeting));
  set_connection_options(connection_, options.timeout);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch_rank(stop); });
  send({FrameKind::hello, std::to_string(rank()) + " " + std::to_string(ranks()), 0, options_.token});
  Lock lock(mutex_);
  changed_.wait_until(lock, in_time(options_.meeting + kGrace), [&] { return met_ || ended_; });
  if (met_) return;
  throw Error(ErrorKind::internal, ended_ ? *ended_ : "whoever listens at " + address() + " does not answer");
}

Rendezvous::~Rendezvous() {
  Lock lock(mutex_);
  // The others must receive this rank's last frames before rank 0 or the connection is gone.
  if (ended_ && met_) changed_.wait_for(lock, kGrace, [&] { return told_; });
}

void Rendezvous::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd polled{connection_.number(), POLLIN, 0};
    if (::poll(&polled, 1, kTickMs) > 0 && !read()) return;
    check_wait();
  }
}

/// Reads the frames that have arrived. Returns false if no more can come.
bool Rendezvous::read() {
  std::string problem = rank_name(0) + kGone;
  bool open = false;
  try {
    open = receive_bytes(connection_, received_);
    while (auto frame = received_.next(kMaxValueBytes)) handle(std::move(*frame));
  } catch (const Error&) {
    open = false;
    problem = "whoever listens at " + address() + " is not rank 0 of a run";
  } catch (const std::exception& error) {  // no memory for the received frames
    open = false;
    problem = std::string("cannot receive what rank 0 sends: ") + error.what();
  }
  if (open) return true;
  {
    const Lock lock(mutex_);
    told_ = true;
    changed_.notify_all();
    if (gone_) return false;
  }
  end_run(problem);
  return false;
}

void Rendezvous::handle(Frame frame) {
  if (frame.kind == FrameKind::challenge) return send({FrameKind::proof, "", 0, frame.value});
  if (frame.kind == FrameKind::ask) return send({FrameKind::state, "", 0, state_text(state().state.wait)});
  if (frame.kind == FrameKind::ended || frame.kind == FrameKind::refused) {
    {
      const Lock lock(mutex_);
      if (frame.kind == FrameKind::ended) told_ = true;
      changed_.notify_all();
    }
    end_run(frame.value, frame.key == std::to_string(rank()));
  }
  const Lock lock(mutex_);
  if (frame.kind == FrameKind::welcome) met_ = true;
  if (frame.kind == FrameKind::gone && leaves_) gone_ = true;
  if (frame.kind == FrameKind::pong) pong_ = frame.value;
  if (frame.kind == FrameKind::value)
    values_[{static_cast<int>(frame.readers), frame.key}] = std::move(frame.value);
  changed_.notify_all();
}

void Rendezvous::watch_rank(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (!stop.stop_requested() && !ended_) {
    tick_.wait_for(lock, stop, std::chrono::milliseconds(kTickMs), [this] { return ended_.has_value(); });
    lock.unlock();
    ask();
    lock.lock();
  }
}

/// Requests this rank's state. The thread that reads frames must not wait for the answer: a device that loads
/// code blocks queries until it is idle, which may be until the run ends.
void Rendezvous::ask() {
  const std::lock_guard watching(watch_mutex_);
  if (!watch_) return;
  {
    const Lock lock(mutex_);
    if (ended_) return;
    asked_since_ = host_time();
  }
  RankState answer;
  try {
    answer = watch_();
  } catch (const std::exception& error) {  // for example of a device that has failed
    answer.failure = error.what();
  }
  const Lock lock(mutex_);
  seen_ = {std::move(answer), *std::exchange(asked_since_, std::nullopt)};
}

Rendezvous::Seen Rendezvous::state() {
  const Lock lock(mutex_);
  Seen now = seen_;
  if (asked_since_ && host_time() - *asked_since_ > kSlowAnswer) {
    now = {{RankWait{"its device to answer", *asked_since_}, now.state.failure}, host_time()};
  }
  if (wait_) now = {{wait_, now.state.failure}, host_time()};
  return now;
}

void Rendezvous::check_wait() {
  const auto [now, at] = state();
  if (now.failure) abort(*now.failure);
  if (!now.wait || at - now.wait->since < to_nanoseconds(options_.timeout)) return;
  bool answers = true;
  {
    const Lock lock(mutex_);
    if (ended_ || !met_) return;
    if (late_since_) answers = Deadline::clock::now() - *late_since_ < kGrace;
    if (late_since_ && answers) return;
    if (!late_since_) late_since_ = Deadline::clock::now();
    told_ = !answers;  // rank 0 will send nothing more
  }
  if (answers) return send({FrameKind::late, "", 0, ""});
  end_run("rank 0 does not answer rank " + std::to_string(rank()) + ", which " + state_text(now.wait) +
              ": its process may be stopped",
          true);
}

void Rendezvous::send(const Frame& frame) {
  const std::lock_guard lock(send_mutex_);
  if (send_bytes(connection_, to_bytes(frame))) return;
  shut_down(connection_);  // part of the frame may have been sent, so nothing can follow it; the thread
                           // notices the end
}

/// Ends the run. The first reason is kept, because later failures are its consequences.
void Rendezvous::end_run(const std::string& reason, bool was_late) {
  {
    const Lock lock(mutex_);
    if (ended_) return;
    ended_ = reason;
    was_late_ = was_late;
    changed_.notify_all();
  }
  call_on_end();
}

void Rendezvous::call_on_end() {
  const std::lock_guard lock(end_mutex_);
  const auto callback = std::exchange(on_end_, nullptr);
  if (callback) callback();
}

void Rendezvous::on_end(std::function<void()> callback) {
  {
    const std::lock_guard lock(end_mutex_);
    on_end_ = std::move(callback);
  }
  if (has_ended()) call_on_end();
}

void Rendezvous::watch(std::function<RankState()> callback) {
  const std::lock_guard watching(watch_mutex_);
  watch_ = std::move(callback);
  const Lock lock(mutex_);
  seen_ = {};
}

bool Rendezvous::has_ended() {
  const Lock lock(mutex_);
  return ended_.has_value();
}

/// Throws if the run has ended. @pre the mutex is held
void Rendezvous::check_held() {
  if (!ended_) return;
  if (std::exchange(was_late_, false)) throw Error(ErrorKind::internal, *ended_);
  throw Aborted(ErrorKind::internal, *ended_);
}

void Rendezvous::check() {
  const Lock lock(mutex_);
  check_held();
}

void Rendezvous::put(const std::string& key, std::string value, int readers) {
  check();
  if (value.size() > kMaxValueBytes) {
    throw Error(ErrorKind::internal, "'" + key + "' has " + std::to_string(value.size()) +
                                         " bytes; a rank can give the others at most " +
                                         std::to_string(kMaxValueBytes) + " at once");
  }
  send({FrameKind::put, key, static_cast<std::uint32_t>(readers), std::move(value)});
}

std::string Rendezvous::get(int from, const std::string& key, const std::string& what) {
  const Waiting waiting(*this, what);
  check();
  send({FrameKind::get, key, static_cast<std::uint32_t>(from), ""});
  Lock lock(mutex_);
  const std::pair<int, std::string> place(from, key);
  changed_.wait(lock, [&] { return values_.count(place) > 0 || ended_; });
  const auto found = values_.find(place);
  if (found == values_.end()) check_held();
  std::string value = std::move(found->second);
  values_.erase(found);
  return value;
}

std::vector<std::string> Rendezvous::gather(std::string value, const std::string& what) {
  const std::string key = "gather " + std::to_string(gathered_++);
  if (rank() != 0) {
    put(key, std::move(value));
    return {};
  }
  std::vector<std::string> values = {std::move(value)};
  for (int r = 1; r < ranks(); ++r) values.push_back(get(r, key, what + " of rank " + std::to_string(r)));
  return values;
}

std::string Rendezvous::broadcast(std::string value, const std::string& what) {
  const std::string key = "broadcast " + std::to_string(broadcasts_++);
  if (rank() != 0) return get(0, key, what + " of rank 0");
  put(key, value, ranks() - 1);
  return value;
}

/// Uses the shortest of several round trips, because the error is at most half of it.
Nanoseconds Rendezvous::clock_offset() {
  if (rank() == 0) return Nanoseconds{0};
  const Waiting waiting(*this, "the clock of rank 0");
  Nanoseconds shortest = Nanoseconds::max();
  Nanoseconds offset{0};
  for (int i = 0; i < kPings; ++i) {
    const Nanoseconds before = host_time();
    send({FrameKind::ping, "", 0, ""});
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return pong_ || ended_; });
    if (!pong_) check_held();
    const Nanoseconds trip = host_time() - before;
    const std::string pong = *std::exchange(pong_, std::nullopt);
    Nanoseconds::rep there_ns = 0;
    const auto [stop, problem] = std::from_chars(pong.data(), pong.data() + pong.size(), there_ns);
    if (problem != std::errc() || stop != pong.data() + pong.size())
      throw Error(ErrorKind::internal, "rank 0 sent a clock that is not a number: '" + pong + "'");
    const Nanoseconds there{there_ns};
    if (trip >= shortest) continue;
    shortest = trip;
    offset = there - (before + trip / 2);
  }
  return offset;
}

void Rendezvous::abort(const std::string& reason) {
  if (has_ended()) return;
  send({FrameKind::abort, "", 0, reason.substr(0, kMaxWordBytes)});
  end_run("rank " + std::to_string(rank()) + " ended the run: " + reason);
}

void Rendezvous::leave() {
  {
    const Lock lock(mutex_);
    if (ended_ || gone_) return;
    leaves_ = true;
  }
  send({FrameKind::bye, "", 0, ""});
  Lock lock(mutex_);
  changed_.wait_until(lock, in_time(2 * options_.timeout + kGrace), [&] { return gone_ || ended_; });
  gone_ = true;  // true for this rank, which has said goodbye
}

Rendezvous::Waiting::Waiting(Rendezvous& rendezvous, std::string what) : rendezvous_(rendezvous) {
  const Lock lock(rendezvous.mutex_);
  outer_ = !rendezvous.wait_;
  if (outer_) rendezvous.wait_ = RankWait{std::move(what), host_time()};
}

Rendezvous::Waiting::~Waiting() {
  const Lock lock(rendezvous_.mutex_);
  if (outer_) rendezvous_.wait_.reset();
}

}  // namespace dflop
