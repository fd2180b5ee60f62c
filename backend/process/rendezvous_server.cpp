#include "backend/process/rendezvous_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>

#include "backend/communicator.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

constexpr std::chrono::seconds kAnswerTime{2};          // for each rank's answer about what it waits for
constexpr std::chrono::seconds kHelloTime{30};          // a connection that stays silent longer is closed
constexpr std::chrono::milliseconds kAcceptAgain{100};  // if the system has no descriptor left
constexpr std::chrono::seconds kLastWords{5};           // for frames in flight at the end
constexpr std::size_t kMaxSendings = 2 * kMaxKeysOfRank;

/// Reads "rank ranks" from a hello, which may come from a stranger.
bool read_hello(const std::string& key, int& rank, int& ranks) {
  const char* const end = key.data() + key.size();
  const auto [space, first] = std::from_chars(key.data(), end, rank);
  if (first != std::errc() || space == end || *space != ' ') return false;
  const auto [stop, second] = std::from_chars(space + 1, end, ranks);
  return second == std::errc() && stop == end;
}

/// Compares in constant time, so that the duration does not reveal where the tokens differ.
bool is_same_token(const std::string& one, const std::string& other) {
  if (one.size() != other.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i) difference |= static_cast<unsigned char>(one[i] ^ other[i]);
  return difference == 0;
}

}  // namespace

RendezvousServer::RendezvousServer(const RendezvousOptions& options)
    : options_(options),
      meeting_ends_(in_time(options.meeting)),
      listener_(listen_on(options.host, options.port)) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw Error(ErrorKind::internal, "cannot create a pipe");
  wake_read_ = Descriptor(ends[0]);
  wake_write_ = Descriptor(ends[1]);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

RendezvousServer::~RendezvousServer() {
  thread_.request_stop();
  const char byte = 0;
  if (::write(wake_write_.number(), &byte, 1) < 0) return;  // then the thread wakes at the next tick
}

void RendezvousServer::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    wait();
    check_times();
    std::erase_if(peers_, [](const auto& peer) { return !peer->connection.is_open(); });
  }
  finish_sending();
}

void RendezvousServer::wait() {
  const bool accepts = Deadline::clock::now() >= accept_again_;
  std::vector<pollfd> polled = {{wake_read_.number(), POLLIN, 0},
                                {accepts ? listener_.number() : -1, POLLIN, 0}};  // -1: poll() ignores it
  for (const auto& peer : peers_) {
    const int events = peer->sendings.empty() ? POLLIN : POLLIN | POLLOUT;
    polled.push_back({peer->connection.number(), static_cast<short>(events), 0});
  }
  if (::poll(polled.data(), polled.size(), kTickMs) <= 0) return;
  for (std::size_t i = 0; i + 2 < polled.size(); ++i) {
    const int events = polled[i + 2].revents;
    if ((events & POLLOUT) != 0 && peers_[i]->connection.is_open()) flush(*peers_[i]);
    if ((events & ~POLLOUT) != 0 && peers_[i]->connection.is_open()) read(*peers_[i]);
  }
  if (polled[1].revents != 0 && listener_.is_open()) accept();
}

/// Silent connections must not keep ranks away or use up rank 0's descriptors.
void RendezvousServer::accept() {
  auto peer = std::make_unique<Peer>();
  peer->connection = accept_from(listener_);
  const int problem = peer->connection.is_open() ? 0 : errno;
  const bool none_left = problem == EMFILE || problem == ENFILE || problem == ENOBUFS || problem == ENOMEM;
  if (none_left) {  // the listener stays readable, so retrying at once would fail again
    accept_problem_ = std::strerror(problem);  // NOLINT(concurrency-mt-unsafe)
    accept_again_ = in_time(std::chrono::duration_cast<Seconds>(kAcceptAgain));
  }
  const auto is_silent = [](const auto& p) { return p->rank < 0 && p->connection.is_open(); };
  const auto oldest = std::ranges::find_if(peers_, is_silent);
  const auto silent = static_cast<std::size_t>(std::ranges::count_if(peers_, is_silent));
  if (oldest != peers_.end() && (none_left || silent >= kMaxSilent)) (*oldest)->connection = {};
  if (!peer->connection.is_open()) return;
  set_connection_options(peer->connection, options_.timeout);
  peer->hello_by = in_time(kHelloTime);
  peers_.push_back(std::move(peer));
}

void RendezvousServer::read(Peer& peer) {
  try {
    const bool open = receive_bytes(peer.connection, peer.received);
    while (auto frame = peer.received.next(met_ ? kMaxValueBytes : kMaxHelloBytes)) {
      handle(peer, std::move(*frame));
      if (!peer.connection.is_open()) return;
    }
    if (!open) lose(peer);
  } catch (const Error&) {  // the sender is not a rank
    lose(peer);
  } catch (const std::exception& error) {  // not enough memory for the forwarded data
    end_run(std::string("rank 0 cannot forward what other ranks send: ") + error.what());
  }
}

void RendezvousServer::handle(Peer& peer, Frame frame) {
  if (peer.rank < 0) return peer.challenge.empty() ? greet(peer, frame) : admit(peer, frame);
  if (!met_) return lose(peer);  // a rank must wait for its welcome
  switch (frame.kind) {
    case FrameKind::put:
      return put(peer, std::move(frame));
    case FrameKind::get:
      return get(peer, {static_cast<int>(frame.readers), frame.key});
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
    case FrameKind::challenge:
    case FrameKind::proof:
      break;  // a rank in the run never sends these
  }
  lose(peer);
}

/// A rank of another run must not end this run. It is told why it is rejected, and this run keeps waiting.
void RendezvousServer::greet(Peer& peer, const Frame& hello) {
  int rank = -1;
  int ranks = 0;
  if (hello.kind != FrameKind::hello || !read_hello(hello.key, rank, ranks)) {
    peer.connection = {};
    return;
  }
  const std::string problem = refusal(rank, ranks, hello.value);
  if (!problem.empty()) return refuse(peer, problem);
  peer.claimed = rank;
  std::random_device random;
  peer.challenge = std::to_string(random()) + " " + std::to_string(random());
  send(peer, {FrameKind::challenge, "", 0, peer.challenge});
}

/// Admits a rank that has answered its challenge. A hello by itself does not take a rank's place.
void RendezvousServer::admit(Peer& peer, const Frame& proof) {
  if (proof.kind != FrameKind::proof || proof.value != peer.challenge) {
    peer.connection = {};
    return;
  }
  const std::string problem = refusal(peer.claimed);
  if (!problem.empty()) return refuse(peer, problem);
  peer.rank = peer.claimed;
  if (std::ranges::count_if(peers_, [](const auto& p) { return p->rank >= 0 && p->connection.is_open(); }) ==
      options_.ranks)
    welcome_all();
}

void RendezvousServer::refuse(Peer& peer, const std::string& problem) {
  send(peer, {FrameKind::refused, "", 0, problem});
  peer.connection = {};
}

void RendezvousServer::welcome_all() {
  met_ = true;
  listener_ = {};
  for (const auto& other : peers_) {
    if (other->rank < 0) other->connection = {};
  }
  send_all({FrameKind::welcome, "", 0, ""});
}

/// Returns why a hello is rejected; empty if it is accepted. The token is checked first, and nothing else is
/// read from a stranger.
std::string RendezvousServer::refusal(int rank, int ranks, const std::string& token) {
  if (!is_same_token(token, options_.token)) {
    return rank_name(rank) + " and rank 0 have different tokens, or only one of them has a token: another " +
           "run may use this port; DFLOP_TOKEN or, if it is not set, the launcher's id of the run must be " +
           "the same in all processes";
  }
  if (ranks != options_.ranks) {
    return "rank 0 belongs to a run of " + std::to_string(options_.ranks) + " ranks, " + rank_name(rank) +
           " to a run of " + std::to_string(ranks);
  }
  if (rank < 0 || rank >= ranks)
    return "expected a rank from 0 to " + std::to_string(ranks - 1) + ", found " + rank_name(rank);
  return refusal(rank);
}

/// Returns why a rank cannot be admitted now.
std::string RendezvousServer::refusal(int rank) {
  if (peer_of(rank) != nullptr || met_)
    return rank_name(rank) + " has already joined; another run may use this port";
  return ended_ ? ended_->value : "";
}

void RendezvousServer::put(Peer& peer, Frame frame) {
  if (frame.readers == 0) return;
  const Key key{peer.rank, std::move(frame.key)};
  forget(key);
  held_bytes_ += key.second.size() + frame.value.size();
  values_[key] = {std::make_shared<const std::string>(std::move(frame.value)), frame.readers};
  if (++put_[peer.rank] > kMaxKeysOfRank || held_bytes_ > kMaxHeldBytes) {
    return end_run(rank_name(peer.rank) + " sends values faster than other ranks receive them: at most " +
                   std::to_string(kMaxKeysOfRank) + " of a rank, and of all ranks " +
                   std::to_string(kMaxHeldBytes >> 30) + " GiB, can wait for their receivers");
  }
  const auto wanted = wanted_.find(key);
  if (wanted == wanted_.end()) return;
  const std::vector<int> ranks = std::move(wanted->second);
  wanted_.erase(wanted);
  for (const int rank : ranks) {
    --asked_[rank];
    if (Peer* other = peer_of(rank)) get(*other, key);
  }
}

void RendezvousServer::get(Peer& peer, const Key& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (key.first < 0 || key.first >= options_.ranks || ++asked_[peer.rank] > kMaxKeysOfRank)
      return lose(peer);
    wanted_[key].push_back(peer.rank);
    return;
  }
  const Shared value = found->second.value;
  if (--found->second.readers == 0) forget(key);
  send(peer, {FrameKind::value, key.second, static_cast<std::uint32_t>(key.first), ""}, value);
}

void RendezvousServer::forget(const Key& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  held_bytes_ -= key.second.size() + found->second.value->size();
  --put_[key.first];
  values_.erase(found);
}

void RendezvousServer::leave(int rank) {
  left_.insert(rank);
  if (left_.size() == static_cast<std::size_t>(options_.ranks)) send_all({FrameKind::gone, "", 0, ""});
}

/// Until all ranks have met, no rank depends on a connection, and a lost rank may connect again.
void RendezvousServer::lose(Peer& peer) {
  const bool at_work = met_ && peer.rank >= 0 && left_.count(peer.rank) == 0;
  peer.connection = {};
  peer.sendings.clear();
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
  report_->states.emplace(rank, state);  // keeps the state of a rank that has ended
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
    end_run(missing() + " not connected to " + options_.host + ":" + std::to_string(options_.port) +
            " within " + in_seconds(options_.meeting) +
            (accept_problem_.empty() ? "" : "; a connection could not be accepted: " + accept_problem_));
  }
  if (report_ && now > report_->deadline) finish_report();
  for (const auto& peer : peers_) {
    if (peer->rank < 0 && now > peer->hello_by) peer->connection = {};
    if (!peer->sendings.empty() && now > peer->taken_by) lose(*peer);
  }
}

/// Ends the run. The first reason is kept, because later failures are its consequences.
void RendezvousServer::end_run(const std::string& reason, const std::string& origin) {
  if (ended_) return;
  ended_ = Frame{FrameKind::ended, origin, 0, reason};
  send_all(*ended_);
}

/// Sends a frame. `value`, if given, replaces the frame's own value.
void RendezvousServer::send(Peer& peer, const Frame& frame, Shared value) {
  if (!peer.connection.is_open()) return;
  if (!value) value = std::make_shared<const std::string>(frame.value);
  if (peer.sendings.empty()) peer.taken_by = in_time(options_.timeout);
  peer.sendings.push_back({head_bytes(frame, value->size()), value});
  if (peer.sendings.size() > kMaxSendings) return lose(peer);
  flush(peer);
}

void RendezvousServer::send_all(const Frame& frame) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i]->rank >= 0) send(*peers_[i], frame);
  }
}

/// Sends as much as the connection accepts now.
void RendezvousServer::flush(Peer& peer) {
  while (!peer.sendings.empty()) {
    Sending& first = peer.sendings.front();
    const std::size_t all = first.head.size() + first.value->size();
    const std::string_view left = first.sent < first.head.size()
                                      ? std::string_view(first.head).substr(first.sent)
                                      : std::string_view(*first.value).substr(first.sent - first.head.size());
    const std::optional<std::size_t> sent = send_some(peer.connection, left);
    if (!sent) return lose(peer);
    first.sent += *sent;
    if (*sent > 0) peer.taken_by = in_time(options_.timeout);
    if (first.sent == all) {
      peer.sendings.pop_front();
    } else if (*sent == 0) {
      return;
    }
  }
}

/// Sends pending frames for a short time, because the connections end with this thread.
void RendezvousServer::finish_sending() {
  const Deadline end = in_time(std::chrono::duration_cast<Seconds>(kLastWords));
  while (Deadline::clock::now() < end) {
    std::vector<pollfd> polled;
    for (const auto& peer : peers_) {
      flush(*peer);
      if (!peer->sendings.empty()) polled.push_back({peer->connection.number(), POLLOUT, 0});
    }
    if (polled.empty()) return;
    ::poll(polled.data(), polled.size(), kTickMs);
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
    if (std::ranges::any_of(peers_,
                            [&](const auto& p) { return p->rank == rank && p->connection.is_open(); }))
      continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    ++count;
  }
  return (count == 1 ? "rank " : "ranks ") + ranks + (count == 1 ? " has" : " have");
}

}  // namespace dflop
