#include "launch/support/input.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "comm/consensus.h"
#include "core/error.h"
#include "core/strings.h"

namespace tfm::launch {
namespace {

constexpr std::chrono::milliseconds kTogether{50}, kBeat{1000};

}  // namespace

std::string Input::text() {
  return comm::broadcast_when_ready(mesh_.world(), [this] { return take_all(); });
}

std::vector<std::string> Input::lines(std::size_t most) {
  const std::string text =
      comm::broadcast_when_ready(mesh_.world(), [&] { return take_lines(most); });
  std::vector<std::string> lines;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
  }
  return lines;
}

std::optional<std::string> Input::take_all() {
  const auto until = Clock::now() + kBeat;
  while (ready(until))
    if (!read_more()) return std::move(held_);
  return {};
}

std::optional<std::string> Input::take_lines(std::size_t most) {
  const auto start = Clock::now();
  std::size_t lines = 0, end = 0;  // complete ones, and where they end
  std::optional<Clock::time_point> since;
  for (std::size_t from = 0;; from = held_.size() - last_) {
    for (std::size_t at; lines < most && (at = held_.find('\n', from)) != held_.npos;
         from = end = at + 1)
      ++lines;
    if (lines > 0 && !since) since = Clock::now();
    if (lines == most || (since && !ready(*since + kTogether))) break;
    if (!since && !ready(start + kBeat)) return {};
    if (read_more()) continue;
    if (end < held_.size()) held_ += '\n', end = held_.size();
    break;
  }
  std::string text = held_.substr(0, end);
  held_.erase(0, end);
  return text;
}

bool Input::ready(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return left.count() > 0 && ::poll(&input, 1, static_cast<int>(left.count())) > 0;
}

bool Input::read_more() {
  char block[1 << 16];
  ssize_t n;
  while ((n = ::read(STDIN_FILENO, block, sizeof block)) < 0 &&
         (errno == EINTR || errno == EAGAIN)) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    ::poll(&input, 1, -1);
  }
  if (n < 0) throw Error(ExitCode::input, "standard input cannot be read: " + errno_text());
  last_ = static_cast<std::size_t>(n);
  held_.append(block, last_);
  return n > 0;
}

}  // namespace tfm::launch
