#include "core/diagnostics.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <tuple>

#include "core/error.h"

namespace tfm {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string_view line_of(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// The line with one printable character per column, and the part of it around `column` that fits a screen.
std::string excerpt(std::string_view line, int column) {
  constexpr int kBefore = 80, kWidth = 120;
  std::vector<std::string> cells;
  for (char c : line) {
    if (continues_character(c) && !cells.empty()) {
      cells.back() += c;
    } else {
      const auto u = static_cast<unsigned char>(c);
      cells.emplace_back(1, u < 32 || u == 127 ? ' ' : c);
    }
  }
  const int size = static_cast<int>(cells.size()), from = column > kWidth ? column - kBefore : 0;
  std::string shown = from > 0 ? "..." : "";
  for (int i = from; i < std::min(size, from + kWidth); ++i) shown += cells[static_cast<std::size_t>(i)];
  if (size > from + kWidth) shown += "...";
  const int indent = column - 1 - from + (from > 0 ? 3 : 0);
  return "  " + shown + "\n  " + std::string(static_cast<std::size_t>(std::max(indent, 0)), ' ') + "^";
}

std::string plain_form(std::string_view word) {
  std::string s;
  for (char c : word) s += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

}  // namespace

int Diagnostics::add_file(std::string name, std::string text) {
  sources_.push_back({std::move(name), std::move(text), true});
  return static_cast<int>(sources_.size()) - 1;
}

int Diagnostics::add_override(std::string argument) {
  const auto equals = argument.find('=');
  std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
  sources_.push_back({"override '" + shorten(argument, 100) + "'", std::move(value), false});
  return static_cast<int>(sources_.size()) - 1;
}

void Diagnostics::error(Mark at, std::string message, std::string help) {
  ++count_;
  if (!full()) problems_.push_back({at, std::move(message), std::move(help)});
}

std::string Diagnostics::format(const Problem& p) const {
  const Source& source = sources_[static_cast<std::size_t>(p.at.source)];
  std::string s = source.name;
  const bool placed = source.has_lines && p.at.line > 0;
  if (placed) s.append(":").append(std::to_string(p.at.line)).append(":").append(std::to_string(p.at.column));
  s.append(": error: ").append(p.message).append("\n");
  if (placed) s += excerpt(line_of(source.text, p.at.line), p.at.column) + "\n";
  if (!p.help.empty()) s.append("  help: ").append(p.help).append("\n");
  return s;
}

std::string Diagnostics::str() const {
  std::vector<const Problem*> order;
  for (const Problem& p : problems_) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(), [](const Problem* a, const Problem* b) {
    return std::tie(a->at.source, a->at.line, a->at.column) < std::tie(b->at.source, b->at.line, b->at.column);
  });
  std::string s;
  for (const Problem* p : order) s += format(*p);
  if (count_ > problems_.size()) s += "and " + std::to_string(count_ - problems_.size()) + " more errors\n";
  if (!s.empty()) s.pop_back();
  return s;
}

void Diagnostics::throw_if_any() const {
  if (!empty()) throw Error(ExitCode::usage, str());
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates, int limit) {
  const std::string plain = plain_form(word);
  std::string_view best;
  int best_distance = 1000;
  for (std::string_view candidate : candidates) {
    const auto longer = std::max(plain.size(), candidate.size()), shorter = std::min(plain.size(), candidate.size());
    if (longer - shorter > 2) continue;
    const int distance = edit_distance(plain, plain_form(candidate));
    if (distance > (candidate.size() <= 3 ? std::min(limit, 1) : limit)) continue;
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string s;
  for (auto w : words) s.append(s.empty() ? "" : ", ").append(w);
  return s;
}

std::string join(const std::vector<std::int64_t>& numbers) {
  std::string s;
  for (auto n : numbers) s.append(s.empty() ? "" : ", ").append(std::to_string(n));
  return s;
}

std::string shorten(std::string_view text, std::size_t length) {
  std::string s;
  for (char c : text) {
    if (s.size() >= length && !continues_character(c)) return s + "...";
    const auto u = static_cast<unsigned char>(c);
    s += u < 32 || u == 127 ? ' ' : c;
  }
  return s;
}

std::string quoted(std::string_view text) { return std::string("'").append(shorten(text)).append("'"); }

std::string number_text(double x) {
  if (x == std::trunc(x) && std::abs(x) < 1e15) return std::to_string(static_cast<std::int64_t>(x));
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
}

}  // namespace tfm
