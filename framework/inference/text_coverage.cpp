#include "inference/text_coverage.h"

#include <algorithm>
#include <filesystem>

#include "io/glob.h"
#include "text/documents.h"

namespace tfm::inference {
namespace {

using Ids = std::vector<std::int32_t>;

struct Range {  // of bytes of the documents of a file, one after the other
  std::int64_t begin = 0, end = 0;
};

// Bytes of the text that the ids from `from` on stand for, after those before them.
std::int64_t text_bytes(const tokenizer::Tokenizer& tokenizer, const Ids& ids, std::size_t from,
                        std::optional<std::int32_t> document_end) {
  constexpr std::size_t context = 16;  // what a token stands for may depend on the one before it
  const auto size_of = [&](std::size_t begin, std::size_t end) {
    Ids part(ids.begin() + static_cast<std::ptrdiff_t>(begin),
             ids.begin() + static_cast<std::ptrdiff_t>(end));
    std::erase(part, document_end);
    return std::ssize(tokenizer.decode(part));
  };
  const std::size_t begin = from - std::min(from, context);
  return size_of(begin, ids.size()) - size_of(begin, from);
}

// Counts the words whose last bytes lie outside `skipped`, whose ranges are in order.
class Words {
 public:
  explicit Words(const std::vector<Range>& skipped) : skipped_(skipped) {}
  void add(std::string_view text, bool last) {
    for (const char c : text) {
      const bool space = c == ' ' || (c >= '\t' && c <= '\r');
      if (space) end();
      inside_ = !space;
      ++at_;
    }
    if (last) end();
  }
  std::int64_t count() const { return count_; }

 private:
  void end() {
    if (!inside_) return;
    inside_ = false;
    while (next_ < skipped_.size() && skipped_[next_].end < at_) ++next_;
    count_ += next_ == skipped_.size() || at_ <= skipped_[next_].begin;
  }
  const std::vector<Range>& skipped_;
  std::size_t next_ = 0;
  std::int64_t at_ = 0, count_ = 0;
  bool inside_ = false;
};

TextCoverage coverage_of(const std::string& path, const data::SourceSpec& source,
                         const tokenizer::Tokenizer& tokenizer, std::int64_t seq_len) {
  const data::DocumentIds added = data::document_ids(path, source, tokenizer);
  Ids ids;
  std::vector<Range> skipped;
  std::int64_t bytes = 0;
  bool first = true;
  text::read_documents(
      path, source.field, [&](std::string_view text) { return tokenizer.safe_cut(text); },
      [&](std::string_view text, bool last) {
        const Ids part = tokenizer.encode(text);
        if (first && added.begin) ids.push_back(*added.begin);
        const bool predicted = added.begin || (!ids.empty() && !source.document_end);
        if (first && !predicted && !part.empty())
          skipped.push_back({bytes, bytes + std::ssize(tokenizer.decode({part.data(), 1}))});
        ids.insert(ids.end(), part.begin(), part.end());
        bytes += std::ssize(text);
        if (last && added.end) ids.push_back(*added.end);
        first = last;
      });
  const std::int64_t windows = data::count_samples(std::ssize(ids), seq_len).samples;
  if (windows == 0) return {};
  TextCoverage covered{.labels = windows * seq_len};
  const auto inputs = ids.begin() + covered.labels;
  if (source.document_end) covered.labels -= std::count(ids.begin(), inputs, *source.document_end);
  const auto tail = static_cast<std::size_t>(windows * seq_len) + 1;
  const std::int64_t left_out = bytes - text_bytes(tokenizer, ids, tail, added.end);
  skipped.push_back({left_out, bytes});
  for (Range& r : skipped) r.end = std::max(r.end, r.begin);
  for (std::size_t i = 0; i + 1 < skipped.size(); ++i)
    skipped[i] = {std::min(skipped[i].begin, left_out), std::min(skipped[i].end, left_out)};
  covered.bytes = bytes;
  for (const Range& r : skipped) covered.bytes -= r.end - r.begin;
  Words words(skipped);
  text::read_documents(
      path, source.field, [](std::string_view text) { return text.size(); },
      [&](std::string_view text, bool last) { words.add(text, last); });
  covered.words = words.count();
  return covered;
}

}  // namespace

std::optional<TextCoverage> text_coverage(const data::SourceSpec& source,
                                          const tokenizer::Tokenizer& tokenizer,
                                          std::int64_t seq_len) {
  TextCoverage all;
  for (const auto& [path, weight] : source.paths)
    for (const std::string& file : io::expand_glob(path)) {
      if (!std::filesystem::is_regular_file(file)) return std::nullopt;
      const TextCoverage one = coverage_of(file, source, tokenizer, seq_len);
      all.labels += one.labels, all.bytes += one.bytes, all.words += one.words;
    }
  return all;
}

}  // namespace tfm::inference
