#include "lab/engine/processes.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Flags.h>
#include <fmt/format.h>
#include <netdb.h>
#include <omp.h>

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "lab/error.h"

C10_DECLARE_int(caffe2_log_level);

namespace planish::lab {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kBeat{1};
// A longer pause between two beats means that this process was suspended.
constexpr std::chrono::seconds kSuspended{5};
constexpr int kFatal = 3;  // c10's log level
// Time for all processes to start.
constexpr std::chrono::seconds kJoinTimeout{120};
// Longest evaluation or update of one process while the others wait. A process that is lost in it
// is noticed earlier, by its heartbeat.
constexpr std::chrono::hours kWaitTimeout{24};
constexpr int kMaxProcesses = 1 << 16;

// Returns the value of an environment variable; an empty one counts as absent.
std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// Returns the variable as an integer from `min` to `max`.
std::optional<int> IntegerVariable(const char* name, int min, int max) {
  const std::optional<std::string> text = Variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < min || value > max) {
    throw UsageError(fmt::format("[train] {} must be an integer from {} to {}, got \"{}\"", name,
                                 min, max, *text));
  }
  return value;
}

// Returns the first line of an error, without the backtrace.
std::string Reason(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Throws RunError if the name of a host has no address: c10d would try for minutes.
void CheckHost(const std::string& host) {
  addrinfo* addresses = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &addresses);
  if (error != 0) {
    throw RunError(
        fmt::format("cannot find the host {} (MASTER_ADDR): {}", host, gai_strerror(error)));
  }
  freeaddrinfo(addresses);
}

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

// Returns the network interface's name for errors.
std::string InterfaceText() {
  const std::optional<std::string> interface = Variable("GLOO_SOCKET_IFNAME");
  return interface ? fmt::format("interface {}, from GLOO_SOCKET_IFNAME", *interface)
                   : "the interface of this host's name; GLOO_SOCKET_IFNAME names another";
}

}  // namespace

// Store and process group of c10d.
class Processes::Connection {
 public:
  Connection(int rank, int size) : rank_(rank), size_(size) {
    // Silences c10d's log, which repeats the errors that it throws, with backtraces.
    if (!Variable("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = kFatal;
    const std::string host = *Variable("MASTER_ADDR");
    CheckHost(host);
    const auto cannot_connect = [&](const std::exception& error) {
      return RunError(fmt::format("process {} of {} cannot connect to the others ({}): {}", rank,
                                  size, InterfaceText(), Reason(error)));
    };
    auto gloo = c10d::ProcessGroupGloo::Options::create(kWaitTimeout);
    // Thrown after MeetAtStore: until then the others wait for this process.
    std::exception_ptr no_device;
    try {
      const std::optional<std::string> interface = Variable("GLOO_SOCKET_IFNAME");
      gloo->devices.push_back(
          interface ? c10d::ProcessGroupGloo::createDeviceForInterface(*interface)
                    : c10d::ProcessGroupGloo::createDefaultDevice());
    } catch (const std::exception& error) {
      no_device = std::make_exception_ptr(cannot_connect(error));
    }
    const auto port = static_cast<uint16_t>(*IntegerVariable("MASTER_PORT", 1, 65535));
    try {
      MeetAtStore(host, port);
    } catch (const std::exception& error) {
      if (no_device) std::rethrow_exception(no_device);
      throw RunError(fmt::format(
          "process {} of {} cannot meet the others at {}:{} (MASTER_ADDR, MASTER_PORT): {}", rank,
          size, host, port, Reason(error)));
    }
    if (no_device) std::rethrow_exception(no_device);
    answered_ = Clock::now();
    heart_ = std::jthread([this](const std::stop_token& stop) { KeepAlive(stop); });
    guard_ = std::jthread([this](const std::stop_token& stop) { GuardStore(stop); });
    try {
      const auto connect = [&](const char* name) {
        auto store = c10::make_intrusive<c10d::PrefixStore>(name, store_);
        return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(store), rank, size, gloo);
      };
      backend_ = connect("main");
      background_ = connect("background");
      group_ = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, size);
      group_->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::GLOO, backend_);
      group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    } catch (const std::exception& error) {
      throw cannot_connect(error);
    }
    sender_ = std::jthread([this](const std::stop_token& stop) { SendSums(stop); });
  }

  ~Connection() {
    sender_.request_stop();
    sender_.join();
    guard_.request_stop();
    guard_.join();
    heart_.request_stop();
    heart_.join();
  }

  void Sum(at::Tensor& values) { SumBy(*backend_, values); }

  c10::intrusive_ptr<c10::ivalue::Future> SumInBackground(const at::Tensor& values) {
    std::vector<c10::Device> devices;
    if (!values.is_cpu()) devices.push_back(values.device());
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), devices);
    const std::lock_guard lock(sums_mutex_);
    sums_.push_back({values, future});
    sums_come_.notify_one();
    return future;
  }

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  void Meet() {
    at::Tensor nothing = at::zeros({1});
    Sum(nothing);
  }

  std::string FirstText(const std::string& text) {
    const std::string key = fmt::format("text/{}", texts_++);
    Guard([&] {
      if (rank_ == 0) store_->set(key, Bytes(text));
    });
    Meet();
    return Get(key);
  }

  std::string AnyText(const std::string& text) {
    const std::string key = fmt::format("text/{}/", texts_++);
    Guard([&] { store_->set(key + std::to_string(rank_), Bytes(text)); });
    Meet();
    std::string any;
    for (int i = 0; i < size_ && any.empty(); ++i) any = Get(key + std::to_string(i));
    return any;
  }

 private:
  // Calls `work`, which only talks to the others. Throws RunError in place of its errors.
  template <class F>
  void Guard(const F& work) const {
    try {
      work();
    } catch (const std::exception&) {
      throw RunError(
          fmt::format("process {} of {} lost another process, which has ended, perhaps with an "
                      "error of its own",
                      rank_, size_));
    }
  }

  // Connects to the store and waits for all processes. Heartbeats start after that: a process that
  // starts late is not lost.
  void MeetAtStore(const std::string& host, uint16_t port) {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.numWorkers = size_;
    options.waitWorkers = false;         // makes only the first process wait
    options.timeout = kJoinTimeout / 2;  // of each of c10d's two attempts to connect
    // Under torchrun, its agent is the server.
    options.isServer = rank_ == 0 && Variable("TORCHELASTIC_USE_AGENT_STORE") != "True";
    // A restart by torchrun must not read what the earlier attempt wrote.
    const std::string attempt = Variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
    auto tcp = c10::make_intrusive<c10d::TCPStore>(host, options);
    tcp->setTimeout(kJoinTimeout);
    store_ = c10::make_intrusive<c10d::PrefixStore>("planish/" + attempt, std::move(tcp));
    watch_ = store_->clone();
    if (store_->add("come", 1) == size_) store_->set("all", Bytes("come"));
    try {
      store_->wait({"all"}, kJoinTimeout);
    } catch (const std::exception&) {
      throw RunError(fmt::format("{} of {} have come in {} s", store_->add("come", 0), size_,
                                 kJoinTimeout.count()));
    }
  }

  std::string Get(const std::string& key) {
    std::vector<uint8_t> bytes;
    Guard([&] { bytes = store_->get(key); });
    return {bytes.begin(), bytes.end()};
  }

  static std::string BeatKey(int rank) { return fmt::format("beat/{}", rank); }

  // Tells the others once a second that this process lives, and watches them.
  void KeepAlive(const std::stop_token& stop) {
    struct Heard {
      std::vector<uint8_t> beat;
      Clock::time_point when = Clock::now();
    };
    std::vector<Heard> heard(static_cast<size_t>(size_));
    for (int64_t beats = 0; !stop.stop_requested(); ++beats) {
      try {
        watch_->set(BeatKey(rank_), Bytes(std::to_string(beats)));
        for (int other = 0; other < size_; ++other) {
          Heard& last = heard[static_cast<size_t>(other)];
          std::vector<uint8_t> beat;
          if (watch_->check({BeatKey(other)})) beat = watch_->get(BeatKey(other));
          if (beat != last.beat) last = {std::move(beat), Clock::now()};
          if (Clock::now() - last.when > kTimeout) {
            End(fmt::format("process {} has not answered process {} of {} for {} s", other, rank_,
                            size_, kTimeout.count()));
          }
        }
      } catch (const std::exception& error) {
        if (stop.stop_requested()) return;
        End(fmt::format("process {} of {} lost the process that all meet at: {}", rank_, size_,
                        Reason(error)));
      }
      answered_ = Clock::now();
      if (!Sleep(stop)) {
        for (Heard& last : heard) last.when = Clock::now();
      }
    }
  }

  // Watches the thread of KeepAlive, which waits for ever if the process with the store hangs.
  void GuardStore(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (Clock::now() - answered_.load() > kTimeout) {
        End(fmt::format("process {} of {}: the store where all meet has not answered for {} s",
                        rank_, size_, kTimeout.count()));
      }
      if (!Sleep(stop)) answered_ = Clock::now();
    }
  }

  // Waits for a beat. Returns false if this process was suspended meanwhile: the others were
  // perhaps, too.
  bool Sleep(const std::stop_token& stop) {
    const Clock::time_point start = Clock::now();
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, kBeat, [] { return false; });
    return Clock::now() - start < kSuspended;
  }

  // Ends the process at once: its other threads can be waiting for ever. Files stay readable, as
  // after a kill.
  [[noreturn]] static void End(const std::string& reason) {
    std::fputs(fmt::format("planish: {}\n", reason).c_str(), stderr);
    std::_Exit(1);
  }

  struct BackgroundSum {
    at::Tensor values;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };

  // Computes the sums of SumInBackground, in sender_.
  void SendSums(const std::stop_token& stop) {
    omp_set_num_threads(1);  // for this thread, because the backward pass uses the others
    for (;;) {
      BackgroundSum next;
      {
        std::unique_lock lock(sums_mutex_);
        if (!sums_come_.wait(lock, stop, [&] { return !sums_.empty(); })) return;
        next = std::move(sums_.front());
        sums_.pop_front();
      }
      std::exception_ptr error;
      try {
        at::Tensor values = next.values.cpu();  // waits for a GPU to compute them
        SumBy(*background_, values);
        if (!next.values.is_cpu()) next.values.copy_(values);
      } catch (...) {
        error = std::current_exception();
      }
      if (error) {
        next.future->setError(error);
      } else {
        next.future->markCompleted(next.values);
      }
    }
  }

  void SumBy(c10d::ProcessGroupGloo& group, at::Tensor& values) const {
    if ((size_ & (size_ - 1)) == 0) {
      SumInPairs(group, values);
    } else {
      SumGathered(group, values);
    }
  }

  // Recursive doubling. Floating-point addition is commutative, so both partners get the same bits.
  void SumInPairs(c10d::ProcessGroupGloo& group, at::Tensor& values) const {
    at::Tensor received = at::empty_like(values);
    for (int distance = 1; distance < size_; distance *= 2) {
      const int partner = rank_ ^ distance;
      std::vector<at::Tensor> out = {values}, in = {received};
      Guard([&] {
        const auto sent = group.send(out, partner, 0);
        group.recv(in, partner, 0)->wait();
        sent->wait();
      });
      values.add_(received);
    }
  }

  // For sizes that are no power of two: every process gets all values and adds them itself.
  void SumGathered(c10d::ProcessGroupGloo& group, at::Tensor& values) const {
    std::vector<std::vector<at::Tensor>> all(1);
    for (int i = 0; i < size_; ++i) all[0].push_back(at::empty_like(values));
    std::vector<at::Tensor> own = {values};
    Guard([&] { group.allgather(all, own)->wait(); });
    std::vector<at::Tensor>& sums = all[0];
    for (size_t distance = 1; distance < sums.size(); distance *= 2) {
      for (size_t i = 0; i + distance < sums.size(); i += 2 * distance) {
        sums[i].add_(sums[i + distance]);
      }
    }
    values.copy_(sums[0]);
  }

  int rank_, size_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::Store> watch_;  // another connection, of the thread
  c10::intrusive_ptr<c10d::ProcessGroupGloo> backend_, background_;  // sums can overlap
  c10::intrusive_ptr<c10d::ProcessGroup> group_;                     // of backend_
  int64_t texts_ = 0;
  std::mutex sums_mutex_;
  std::condition_variable_any sums_come_;
  std::deque<BackgroundSum> sums_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::atomic<Clock::time_point> answered_;  // last time that the store answered
  std::jthread heart_, guard_, sender_;      // last: they use the other members
};

Processes::Processes() = default;
Processes::~Processes() = default;

std::unique_ptr<Processes> Processes::FromEnvironment() {
  auto processes = std::make_unique<Processes>();
  const std::optional<int> size = IntegerVariable("WORLD_SIZE", 1, kMaxProcesses);
  const std::optional<int> rank = IntegerVariable("RANK", 0, kMaxProcesses - 1);
  if (size.has_value() != rank.has_value()) {
    throw UsageError(fmt::format("[train] WORLD_SIZE and RANK must be set together, got only {}",
                                 size ? "WORLD_SIZE" : "RANK"));
  }
  if (!size) return processes;
  if (*rank >= *size) {
    throw UsageError(
        fmt::format("[train] RANK must be below WORLD_SIZE, got {} and {}", *rank, *size));
  }
  if (*size == 1) return processes;
  if (!Variable("MASTER_ADDR") || !IntegerVariable("MASTER_PORT", 1, 65535)) {
    throw UsageError(
        "[train] MASTER_ADDR and MASTER_PORT must name a host and a port where the processes meet, "
        "got none");
  }
  // Gloo can write to the socket of a killed process. Without SIGPIPE the write fails with an
  // error, which this process reports.
  std::signal(SIGPIPE, SIG_IGN);
  processes->rank_ = *rank;
  processes->size_ = *size;
  processes->connection_ = std::make_unique<Connection>(*rank, *size);
  return processes;
}

void Processes::Sum(at::Tensor& values) {
  if (connection_ && values.numel() > 0) connection_->Sum(values);
}

c10::intrusive_ptr<c10::ivalue::Future> Processes::SumInBackground(const at::Tensor& values) {
  return connection_->SumInBackground(values);
}

c10::intrusive_ptr<c10d::ProcessGroup> Processes::group() const { return connection_->group(); }

void Processes::Meet() {
  if (connection_) connection_->Meet();
}

std::string Processes::FirstText(const std::string& text) {
  return connection_ ? connection_->FirstText(text) : text;
}

std::string Processes::AnyText(const std::string& text) {
  return connection_ ? connection_->AnyText(text) : text;
}

}  // namespace planish::lab
