#include "backend/process/rendezvous_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include "backend/communicator.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

constexpr std::chrono::seconds kAnswerTime{2};  // for what each rank waits for
constexpr std::chrono::seconds kHelloTime{30};  // who is silent for longer keeps no descriptor
constexpr std::uint64_t kMostHelloBytes = 4096;

/// Reads "rank ranks", of whoever has connected.
bool read_hello(const std::string& key, int& rank, int& ranks) {
  const char* const end = key.data() + key.size();
  const auto [space, first] = std::from_chars(key.data(), end, rank);
  if (first != std::errc() || space == end || *space != ' ') return false;
  const auto [stop, second] = std::from_chars(space + 1, end, ranks);
  return second == std::errc() && stop == end;
}

}  // namespace

RendezvousServer::RendezvousServer(const RendezvousOptions& options)
    : options_(options),
      meeting_ends_(in_time(options.meeting)),
      listener_(listen_on(options.host, options.port)) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw Error(ErrorKind::internal, "no pipe is left");
  wake_read_ = Descriptor(ends[0]);
  wake_write_ = Descriptor(ends[1]);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

RendezvousServer::~RendezvousServer() {
  thread_.request_stop();
  const char byte = 0;
  if (::write(wake_write_.number(), &byte, 1) < 0) return;  // then it wakes with the next tick
}

void RendezvousServer::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    wait();
    check_times();
    std::erase_if(peers_, [](const auto& peer) { return !peer->connection.is_open(); });
  }
}

void RendezvousServer::wait() {
  std::vector<pollfd> polled = {{wake_read_.number(), POLLIN, 0}, {listener_.number(), POLLIN, 0}};
  for (const auto& peer : peers_) polled.push_back({peer->connection.number(), POLLIN, 0});
  if (::poll(polled.data(), polled.size(), kTickMs) <= 0) return;
  for (std::size_t i = 0; i + 2 < polled.size(); ++i) {
    if (polled[i + 2].revents != 0 && peers_[i]->connection.is_open()) read(*peers_[i]);
  }
  if (polled[1].revents != 0) accept();
}

void RendezvousServer::accept() {
  auto peer = std::make_unique<Peer>();
  peer->connection = accept_from(listener_);
  if (!peer->connection.is_open()) return;
  set_connection_options(peer->connection, options_.timeout);
  peer->hello_by = in_time(kHelloTime);
  peers_.push_back(std::move(peer));
}

void RendezvousServer::read(Peer& peer) {
  try {
    const bool open = receive_bytes(peer.connection, peer.received);
    while (auto frame = peer.received.next(peer.rank < 0 ? kMostHelloBytes : kMostValueBytes)) {
      handle(peer, std::move(*frame));
      if (!peer.connection.is_open()) return;
    }
    if (!open) lose(peer);
  } catch (const Error&) {  // whoever sends that is no rank
    lose(peer);
  } catch (const std::exception& error) {  // what passes through needs more memory than there is
    end_run(std::string("rank 0 cannot pass on what ranks send: ") + error.what());
  }
}

void RendezvousServer::handle(Peer& peer, Frame frame) {
  if (peer.rank < 0) return greet(peer, frame);
  switch (frame.kind) {
    case FrameKind::put:
      return put(std::move(frame));
    case FrameKind::get:
      return get(peer, frame.key);
    case FrameKind::ping:
      return send(peer, {FrameKind::pong, "", 0, std::to_string(host_time().count())});
    case FrameKind::abort:
      return end_run(rank_name(peer.rank) + " ended the run: " + frame.value);
    case FrameKind::late:
      return ask_all(peer.rank);
    case FrameKind::state:
      return add_state(peer.rank, frame.value);
    case FrameKind::bye:
      return leave(peer.rank);
    case FrameKind::hello:
    case FrameKind::welcome:
    case FrameKind::refused:
    case FrameKind::value:
    case FrameKind::pong:
    case FrameKind::ask:
    case FrameKind::ended:
    case FrameKind::gone:
      break;  // nothing that a rank that takes part sends
  }
  lose(peer);
}

/// A rank of another run must not end this one: it is told, and this one goes on waiting.
void RendezvousServer::greet(Peer& peer, const Frame& hello) {
  int rank = -1;
  int ranks = 0;
  if (hello.kind != FrameKind::hello || !read_hello(hello.key, rank, ranks)) {
    peer.connection = {};
    return;
  }
  std::string problem;
  if (ranks != options_.ranks) {
    problem = "rank 0 is of a run of " + std::to_string(options_.ranks) + " ranks, " + rank_name(rank) +
              " of one of " + std::to_string(ranks);
  } else if (rank < 0 || rank >= ranks) {
    problem = rank_name(rank) + " is not of 0 to " + std::to_string(ranks - 1);
  } else if (peer_of(rank) != nullptr || met_) {
    problem = rank_name(rank) + " has come already; another run may use this port";
  } else if (ended_) {
    problem = ended_->value;
  }
  if (!problem.empty()) {
    send(peer, {FrameKind::refused, "", 0, problem});
    peer.connection = {};
    return;
  }
  peer.rank = rank;
  if (std::ranges::count_if(peers_, [](const auto& p) { return p->rank >= 0; }) < options_.ranks) return;
  met_ = true;
  send_all({FrameKind::welcome, "", 0, ""});
}

void RendezvousServer::put(Frame frame) {
  if (frame.readers == 0) return;
  const std::string key = frame.key;
  values_[key] = {std::move(frame.value), frame.readers};
  const auto wanted = wanted_.find(key);
  if (wanted == wanted_.end()) return;
  const std::vector<int> ranks = std::move(wanted->second);
  wanted_.erase(wanted);
  for (const int rank : ranks) {
    if (Peer* peer = peer_of(rank)) get(*peer, key);
  }
}

void RendezvousServer::get(Peer& peer, const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    wanted_[key].push_back(peer.rank);
    return;
  }
  const bool last = --found->second.readers == 0;
  send(peer, {FrameKind::value, key, 0, last ? std::move(found->second.value) : found->second.value});
  if (last) values_.erase(key);
}

void RendezvousServer::leave(int rank) {
  left_.insert(rank);
  if (left_.size() == static_cast<std::size_t>(options_.ranks)) send_all({FrameKind::gone, "", 0, ""});
}

void RendezvousServer::lose(Peer& peer) {
  const bool at_work = peer.rank >= 0 && left_.count(peer.rank) == 0;
  peer.connection = {};
  if (!at_work) return;
  end_run(rank_name(peer.rank) + kGone);
}

void RendezvousServer::ask_all(int origin) {
  if (report_ || ended_) return;
  report_ = Report{origin, in_time(kAnswerTime), {}};
  for (const int rank : left_) report_->states[rank] = "has ended";
  send_all({FrameKind::ask, "", 0, ""});
}

void RendezvousServer::add_state(int rank, const std::string& state) {
  if (!report_) return;
  report_->states.emplace(rank, state);  // that it has ended stays
  if (report_->states.size() == static_cast<std::size_t>(options_.ranks)) finish_report();
}

void RendezvousServer::finish_report() {
  const Report report = *std::exchange(report_, std::nullopt);
  std::string text =
      rank_name(report.origin) + " waited for longer than " + in_seconds(options_.timeout) + ":";
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const auto state = report.states.find(rank);
    text += "\n  " + rank_name(rank) + " " +
            (state != report.states.end() ? state->second : "does not answer: its process may be stopped");
  }
  end_run(text, std::to_string(report.origin));
}

void RendezvousServer::check_times() {
  const auto now = Deadline::clock::now();
  if (!met_ && !ended_ && now > meeting_ends_) {
    end_run(missing() + " not come to " + options_.host + ":" + std::to_string(options_.port) + " within " +
            in_seconds(options_.meeting));
  }
  if (report_ && now > report_->deadline) finish_report();
  for (const auto& peer : peers_) {
    if (peer->rank < 0 && now > peer->hello_by) peer->connection = {};
  }
}

/// Ends the run. The first reason stays: what follows is its consequence.
void RendezvousServer::end_run(const std::string& reason, const std::string& origin) {
  if (ended_) return;
  ended_ = Frame{FrameKind::ended, origin, 0, reason};
  send_all(*ended_);
}

void RendezvousServer::send(Peer& peer, const Frame& frame) {
  if (peer.connection.is_open() && !send_bytes(peer.connection, to_bytes(frame))) lose(peer);
}

void RendezvousServer::send_all(const Frame& frame) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i]->rank >= 0) send(*peers_[i], frame);
  }
}

RendezvousServer::Peer* RendezvousServer::peer_of(int rank) {
  for (const auto& peer : peers_) {
    if (peer->rank == rank && peer->connection.is_open()) return peer.get();
  }
  return nullptr;
}

/// Returns "ranks 2, 3 have".
std::string RendezvousServer::missing() const {
  std::string ranks;
  int count = 0;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (std::ranges::any_of(peers_, [&](const auto& p) { return p->rank == rank; })) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    ++count;
  }
  return (count == 1 ? "rank " : "ranks ") + ranks + (count == 1 ? " has" : " have");
}

}  // namespace dflop
