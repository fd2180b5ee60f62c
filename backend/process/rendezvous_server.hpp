// A RendezvousServer runs in a thread of rank 0. Through it the processes of a run connect and exchange
// values.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/process/frame_socket.hpp"
#include "core/units.hpp"

namespace dflop {

/// If a rank's connection ends without a goodbye, the message consists of the rank's name and kGone.
inline constexpr const char* kGone =
    " is gone: its connection was closed without a reason; its process was ended, or its machine or "
    "network was lost";

/// RendezvousOptions say where the processes of a run connect and which rank this process has.
struct RendezvousOptions {
  std::string host;        ///< host of rank 0
  int port = 0;            ///< there
  int rank = 0;            ///< of this process
  int ranks = 1;           ///< number of ranks of the run, one per process
  Seconds meeting{60};     ///< max time until all ranks have joined
  Seconds timeout{60};     ///< after all ranks have joined: max time that a rank waits for another
  std::string token = {};  ///< the run's token, which all ranks send; empty: ranks are not authenticated
};

/// At most this many connections stay open before they have sent a hello. If there is one more, the oldest
/// is closed.
inline constexpr std::size_t kMaxSilent = 128;
/// A rank may have at most this many stored values that other ranks have not got yet. It may also wait for
/// at most this many values that were not put yet.
inline constexpr std::size_t kMaxKeysOfRank = 4096;
/// All stored values and their keys have at most this many bytes.
inline constexpr std::uint64_t kMaxHeldBytes = std::uint64_t{16} << 30;

/// A RendezvousServer forwards values between ranks, and tells all ranks when one of them ends the run.
///
/// A connection belongs to a rank after it has sent a hello with the run's token and the number of a missing
/// rank, and has returned the server's challenge. Any other connection is closed without effect. Until all
/// ranks have joined, a rank must send nothing more. If it does, or if its connection ends, its rank counts
/// as missing again. Once all ranks have joined, the server stops listening, and a rank that breaks the
/// protocol or disappears ends the run.
///
/// A value's key includes the rank that puts it, so that no rank can put values in another rank's name.
/// Outgoing frames are queued until the connection accepts them, so a rank that does not read delays no
/// other rank. A rank counts as lost if it accepts nothing for the length of the timeout.
class RendezvousServer {
 public:
  /// Begins to listen. @throws Error (internal) if it cannot listen.
  explicit RendezvousServer(const RendezvousOptions& options);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

 private:
  using Shared = std::shared_ptr<const std::string>;
  /// A Sending is an outgoing frame of which `sent` bytes have been sent.
  struct Sending {
    std::string head;
    Shared value;
    std::size_t sent = 0;
  };
  struct Peer {
    Descriptor connection;
    FrameBuffer received;
    Deadline hello_by;
    int rank = -1;          ///< -1 until it has sent its proof
    int claimed = -1;       ///< the rank in its hello
    std::string challenge;  ///< text that the peer must send back; empty before its hello
    std::deque<Sending> sendings;
    Deadline taken_by;  ///< time by which it must accept more bytes of the first sending
  };
  using Key = std::pair<int, std::string>;  ///< the rank that puts the value, and its name
  struct Value {
    Shared value;
    std::uint32_t readers = 0;  ///< number of gets until the value is dropped
  };
  /// A Report collects the ranks' answers to the question what they wait for.
  struct Report {
    int origin = 0;  ///< rank that has waited too long
    Deadline deadline;
    std::map<int, std::string> states;
  };

  void run(const std::stop_token& stop);
  void wait();
  void accept();
  void read(Peer& peer);
  void handle(Peer& peer, Frame frame);
  void greet(Peer& peer, const Frame& hello);
  void admit(Peer& peer, const Frame& proof);
  void refuse(Peer& peer, const std::string& problem);
  void welcome_all();
  std::string refusal(int rank, int ranks, const std::string& token);
  std::string refusal(int rank);
  void put(Peer& peer, Frame frame);
  void get(Peer& peer, const Key& key);
  void forget(const Key& key);
  void leave(int rank);
  void lose(Peer& peer);
  void ask_all(int origin);
  void add_state(int rank, const std::string& state);
  void finish_report();
  void check_times();
  void end_run(const std::string& reason, const std::string& origin = "");
  void send(Peer& peer, const Frame& frame, Shared value = nullptr);
  void send_all(const Frame& frame);
  void flush(Peer& peer);
  void finish_sending();
  Peer* peer_of(int rank);
  std::string missing() const;

  const RendezvousOptions options_;
  const Deadline meeting_ends_;
  Descriptor listener_;
  Descriptor wake_read_;
  Descriptor wake_write_;
  Deadline accept_again_{};     ///< when to accept connections again
  std::string accept_problem_;  ///< the system's reason for the last failed accept
  std::vector<std::unique_ptr<Peer>> peers_;
  bool met_ = false;
  std::set<int> left_;  ///< ranks that have finished, connected or not
  std::map<Key, Value> values_;
  std::map<Key, std::vector<int>> wanted_;  // by key, the ranks that wait for the value
  std::map<int, std::size_t> put_;          // by rank, the number of its values in values_
  std::map<int, std::size_t> asked_;        // by rank, the number of values that it waits for
  std::uint64_t held_bytes_ = 0;            // of values and their keys
  std::optional<Report> report_;
  std::optional<Frame> ended_;
  std::jthread thread_;  // declared last, so that the thread's data outlive it
};

}  // namespace dflop
