#include "config/diagnostics.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/utf8.h"

namespace tfm::config {
namespace {

std::string_view line_of(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// The line with one printable character per column, and the part of it around `column` that fits a
// screen.
std::string excerpt(std::string_view line, int column) {
  constexpr int kBefore = 80, kWidth = 120;
  std::vector<std::string> cells;
  for (char c : line) {
    if (continues_utf8(c) && !cells.empty()) {
      cells.back() += c;
    } else {
      const auto u = static_cast<unsigned char>(c);
      cells.emplace_back(1, u < 32 || u == 127 ? ' ' : c);
    }
  }
  const int size = static_cast<int>(cells.size()), from = column > kWidth ? column - kBefore : 0;
  std::string shown = from > 0 ? "..." : "";
  for (int i = from; i < std::min(size, from + kWidth); ++i)
    shown += cells[static_cast<std::size_t>(i)];
  if (size > from + kWidth) shown += "...";
  const int indent = column - 1 - from + (from > 0 ? 3 : 0);
  return "  " + shown + "\n  " + std::string(static_cast<std::size_t>(std::max(indent, 0)), ' ') +
         "^";
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

void Diagnostics::error(Mark at, std::string message, std::string help, ExitCode code) {
  ++count_;
  if (!full()) problems_.push_back({at, std::move(message), std::move(help), code});
}

std::string Diagnostics::format(const Problem& p) const {
  const Source& source = sources_[static_cast<std::size_t>(p.at.source)];
  std::string s = source.name;
  const bool placed = source.has_lines && p.at.line > 0;
  if (placed)
    s.append(":").append(std::to_string(p.at.line)).append(":").append(std::to_string(p.at.column));
  s.append(": error: ").append(p.message).append("\n");
  if (placed) s += excerpt(line_of(source.text, p.at.line), p.at.column) + "\n";
  if (!p.help.empty()) s.append("  help: ").append(p.help).append("\n");
  return s;
}

std::string Diagnostics::str() const {
  std::vector<const Problem*> order;
  for (const Problem& p : problems_) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(), [](const Problem* a, const Problem* b) {
    return std::tie(a->at.source, a->at.line, a->at.column) <
           std::tie(b->at.source, b->at.line, b->at.column);
  });
  std::string s;
  for (const Problem* p : order) s += format(*p);
  if (count_ > problems_.size())
    s += "and " + std::to_string(count_ - problems_.size()) + " more errors\n";
  if (!s.empty()) s.pop_back();
  return s;
}

void Diagnostics::throw_if_any() const {
  if (empty()) return;
  const bool usage =
      std::ranges::any_of(problems_, [](const Problem& p) { return p.code == ExitCode::usage; });
  throw Error(usage ? ExitCode::usage : problems_.front().code, str());
}

}  // namespace tfm::config
