// A run's processes meet at this server, a thread of rank 0's.
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

/// This text says, behind a rank's name, that its connection has ended without a goodbye.
inline constexpr const char* kGone =
    " is gone: its connection was closed without a reason; its process was ended, or its machine or "
    "network was lost";

/// RendezvousOptions say where the processes of a run meet, and as whom this one comes.
struct RendezvousOptions {
  std::string host;        ///< of rank 0
  int port = 0;            ///< there
  int rank = 0;            ///< of this process
  int ranks = 1;           ///< one of which each process has
  Seconds meeting{60};     ///< until all have come
  Seconds timeout{60};     ///< that a rank waits for another after that
  std::string token = {};  ///< of the run, which all ranks bring; empty: nothing tells a rank from a stranger
};

/// So many connections that have said no hello are held; the oldest is closed for the next.
inline constexpr std::size_t kMostSilent = 128;
/// A rank may have so many values under way that have not been got, and ask for so many that are not there.
inline constexpr std::size_t kMostKeysOfRank = 4096;
/// All values under way have at most so many bytes, with their keys.
inline constexpr std::uint64_t kMostHeldBytes = std::uint64_t{16} << 30;

/// A RendezvousServer brings values from one rank to others, and what ends the run of one to all.
///
/// A connection is a rank's once it has said hello with the run's token, as a rank that is missing, and sent
/// back what it was then told; any other is closed, and changes nothing. Until all have met a rank sends
/// nothing more: one that does, or whose connection ends, gives its place back. Then the server listens no
/// more, and who breaks the rules or is gone ends the run.
///
/// Values are known by the rank that puts them, so that none can speak for another. All sends are kept until
/// the connection takes them: a rank that reads nothing holds up none of the others, and is lost when it has
/// taken nothing for the timeout.
class RendezvousServer {
 public:
  /// Begins to listen. @throws Error (internal) where it cannot.
  explicit RendezvousServer(const RendezvousOptions& options);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

 private:
  using Shared = std::shared_ptr<const std::string>;
  /// A Sending is a frame of which `sent` bytes have gone.
  struct Sending {
    std::string head;
    Shared value;
    std::size_t sent = 0;
  };
  struct Peer {
    Descriptor connection;
    FrameBuffer received;
    Deadline hello_by;
    int rank = -1;          ///< none before its proof
    int claimed = -1;       ///< by its hello
    std::string challenge;  ///< that it has to send back; empty before its hello
    std::deque<Sending> sendings;
    Deadline taken_by;  ///< by when it must have taken a part of the first
  };
  using Key = std::pair<int, std::string>;  ///< with the rank that puts it
  struct Value {
    Shared value;
    std::uint32_t readers = 0;  ///< that still will get it
  };
  /// A Report has what each rank waits for, as far as it has said.
  struct Report {
    int origin = 0;  ///< that has waited for too long
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
  Deadline accept_again_{};     ///< when to look for connections again
  std::string accept_problem_;  ///< the system's last reason to give none
  std::vector<std::unique_ptr<Peer>> peers_;
  bool met_ = false;
  std::set<int> left_;  ///< ranks that have come to their end, whether connected or not
  std::map<Key, Value> values_;
  std::map<Key, std::vector<int>> wanted_;  // by key, the ranks that wait for it
  std::map<int, std::size_t> put_;          // by rank, how many of the values are its
  std::map<int, std::size_t> asked_;        // by rank, for how many it waits
  std::uint64_t held_bytes_ = 0;            // of values and their keys
  std::optional<Report> report_;
  std::optional<Frame> ended_;
  std::jthread thread_;  // the last: what it uses is there before and after
};

}  // namespace dflop
