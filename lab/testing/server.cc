// The planish command for tests that start it hundreds of times: registers libtorch's operators
// once, which takes most of the time of a short command. With arguments the program is planish.
// Without, it reads commands from the socket on its standard input (Receive), runs each in a child
// process, one after the other, and answers with the int that waitpid gives. It ends when the
// socket is closed.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "lab/program.h"

namespace planish::lab {
namespace {

constexpr int kStreams = 3;
constexpr size_t kMaxMessage = 1 << 17;  // what the kernel passes in one message by default

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  _exit(1);
}

struct Request {
  std::vector<std::string> strings;
  std::array<int, kStreams> streams;
};

// Waits for a request. Returns false if the socket is closed. A request is one message with the
// descriptors of the child's standard streams, its working directory, its arguments and variables
// that are added to its environment:
//   FOLDER '\0' COUNT '\0' (ARGUMENT '\0'){COUNT} (NAME=VALUE '\0')*
bool Receive(Request& request) {
  std::string text(kMaxMessage, '\0');
  iovec data = {text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof request.streams)> control;
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size = 0;
  do {
    size = recvmsg(STDIN_FILENO, &message, MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) Die("recvmsg");
  if (size == 0) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_len != CMSG_LEN(sizeof request.streams) ||
      (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    std::fputs("a request has no descriptors or is too long\n", stderr);
    _exit(1);
  }
  std::memcpy(request.streams.data(), CMSG_DATA(header), sizeof request.streams);
  text.resize(static_cast<size_t>(size));
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\0', at);
    request.strings.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? end : end + 1;
  }
  return true;
}

// Becomes the process of a command.
[[noreturn]] void Run(Request& request) {
  // Tests that are stopped leave no commands behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int i = 0; i < kStreams; ++i) {
    if (dup2(request.streams[static_cast<size_t>(i)], i) < 0) Die("dup2");
  }
  auto& strings = request.strings;
  if (chdir(strings.at(0).c_str()) != 0) Die("chdir");
  const size_t count = std::stoul(strings.at(1));
  std::string name = "planish";
  std::vector<char*> arguments = {name.data()};
  for (size_t i = 0; i < count; ++i) arguments.push_back(strings.at(2 + i).data());
  arguments.push_back(nullptr);
  for (size_t i = 2 + count; i < strings.size(); ++i) putenv(strings[i].data());
  RunProgram(static_cast<int>(count) + 1, arguments.data());
}

void Serve() {
  for (Request request; Receive(request); request = {}) {
    const pid_t child = fork();
    if (child < 0) Die("fork");
    if (child == 0) Run(request);
    for (const int stream : request.streams) close(stream);
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
      if (errno != EINTR) Die("waitpid");
    }
    if (send(STDIN_FILENO, &status, sizeof status, MSG_NOSIGNAL) < 0) return;
  }
}

}  // namespace
}  // namespace planish::lab

int main(int argc, char** argv) {
  // A command that starts others starts this program.
  if (argc > 1) planish::lab::RunProgram(argc, argv);
  planish::lab::Serve();
  std::quick_exit(0);
}
