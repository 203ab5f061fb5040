#pragma once
// Answers to many cases of one kind, which are too many to state and have no reference outside:
// recorded once, and compared since.
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <sstream>
#include <string>

#include "io/file.h"

namespace tfm::test {

// What stands for values that are too many for a line.
template <class Values>
std::string digest(const Values& values) {
  return io::Checksum::of(std::as_bytes(std::span(values))).substr(0, 16);
}

// `text` without a folder's name, which another run or machine has otherwise.
inline std::string without(std::string text, const std::string& folder) {
  for (std::size_t at; (at = text.find(folder)) != text.npos;) text.erase(at, folder.size());
  return text;
}

// Compares lines with those of tests/recorded/NAME.txt, one a case. Where a change is meant, a run
// with TFM_RECORD=1 writes the file anew, and its difference shows what the change did.
inline void expect_recorded(const std::string& name, const std::string& lines) {
  const std::string path = TFM_SOURCE_DIR "/tests/recorded/" + name + ".txt";
  if (std::getenv("TFM_RECORD")) return io::replace_file(path, lines);
  std::istringstream now(lines), then(io::read_whole_file(path, 1 << 24));
  int shown = 0;
  for (std::string a, b; shown < 10;) {
    const bool more_now = static_cast<bool>(std::getline(now, a)),
               more_then = static_cast<bool>(std::getline(then, b));
    if (!more_now && !more_then) break;
    if (more_now == more_then && a == b) continue;
    ADD_FAILURE() << path << "\n  recorded: " << (more_then ? b : "(no line)")
                  << "\n  found:    " << (more_now ? a : "(no line)");
    ++shown;
  }
}

}  // namespace tfm::test
