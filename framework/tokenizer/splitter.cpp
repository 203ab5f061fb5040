#include "tokenizer/splitter.h"

#include "core/error.h"
#include "io/file.h"

namespace tfm::tokenizer {

Pattern::Pattern(const io::JsonNode& node) {
  node.expect_only({"String", "Regex"});
  if (const auto text = node.find("String")) {
    source_ = text->string();
    if (source_.empty()) text->fail("expected a non-empty text");
  } else {
    const io::JsonNode regex = node.at("Regex");
    source_ = regex.string();
    regex_.emplace(source_, regex.where());
  }
}

void Pattern::find_all(std::string_view text,
                       const std::function<void(std::size_t, std::size_t)>& sink) const {
  if (regex_) return regex_->find_all(text, sink);
  for (std::size_t at = 0; (at = text.find(source_, at)) != text.npos; at += source_.size())
    sink(at, at + source_.size());
}

void check_growth(std::size_t before, std::size_t after, const std::string& where) {
  if (const std::size_t most = 64 * before + 4096; after > most)
    throw Error(ExitCode::input, where + "a text of " + std::to_string(before) +
                                     " bytes grows beyond " + std::to_string(most) +
                                     " bytes by its replacements; expected shorter replacements");
}

Replacement::Replacement(const io::JsonNode& node)
    : pattern_(node.at("pattern")), content_(node.at("content").string()), where_(node.where()) {
  node.expect_only({"type", "pattern", "content"});
}

std::size_t Replacement::apply(std::string& text, std::size_t lead) const {
  std::string out;
  std::size_t from = 0, leads = 0;  // of `out`
  const auto keep = [&](std::size_t end) {
    out.append(text, from, end - from);
    if (from < lead) leads = out.size() - (end - std::min(end, lead));
    from = end;
  };
  pattern_.find_all(text, [&](std::size_t begin, std::size_t end) {
    keep(begin);
    out.append(content_);
    if (end <= lead) leads = out.size();
    check_growth(text.size(), out.size(), where_);
    from = end;
  });
  if (from == 0 && out.empty()) return lead;
  keep(text.size());
  text = std::move(out);
  return leads;
}

Behavior read_behavior(const io::JsonNode& node) {
  const std::string& name = node.string();
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  node.fail("expected Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous, got " +
            in_quotes(name));
}

void Splitter::hand_on(std::size_t begin, std::size_t end) {
  if (begin < end) sink_(begin, end);
}

void Splitter::hold(std::size_t begin, std::size_t end) {
  finish();
  held_ = true;
  begin_ = begin;
  end_ = end;
}

void Splitter::add(std::size_t begin, std::size_t end, bool match) {
  switch (behavior_) {
    case Behavior::isolated:
      hand_on(begin, end);
      break;
    case Behavior::removed:
      if (!match) hand_on(begin, end);
      break;
    case Behavior::contiguous:
      if (held_ && match == previous_match_)
        end_ = end;
      else
        hold(begin, end);
      break;
    case Behavior::merged_with_previous:
      if (held_ && match && !previous_match_)
        end_ = end;
      else
        hold(begin, end);
      break;
    case Behavior::merged_with_next:
      if (held_ && !match && previous_match_)
        end_ = end;
      else
        hold(begin, end);
      break;
  }
  previous_match_ = match;
}

void Splitter::finish() {
  if (held_) hand_on(begin_, end_);
  held_ = false;
}

}  // namespace tfm::tokenizer
