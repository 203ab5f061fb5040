#include "data/packed_text.h"

#include <algorithm>

#include "core/error.h"
#include "data/best_fit.h"

namespace tfm::data {
namespace {

constexpr std::int64_t kReadTogether = 1 << 20;

// The ends of the documents of a stream, in order; the last one is the stream's.
std::vector<std::int64_t> ends_of(const TokenStream& stream, const DocumentEnds& ends) {
  std::vector<std::int64_t> all;
  stream.document_starts(0, stream.size(), all);
  std::erase(all, 0);
  std::vector<std::int32_t> ids;
  const bool reads = ends.id && !stream.knows_documents();
  for (std::int64_t begin = 0; reads && begin < stream.size(); begin += kReadTogether) {
    ids.resize(static_cast<std::size_t>(std::min(kReadTogether, stream.size() - begin)));
    stream.read(begin, ids);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == *ends.id) all.push_back(begin + static_cast<std::int64_t>(i) + 1);
  }
  all.push_back(stream.size());
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

}  // namespace

PackedText::PackedText(const Source& source, const DocumentEnds& ends, const Options& options)
    : source_(source), options_(options) {
  const std::vector<const TokenStream*> streams = source.streams();
  for (std::size_t s = 0; s < streams.size(); ++s) {
    std::int64_t begin = 0;
    for (const std::int64_t end : ends_of(*streams[s], ends)) {
      add(s, begin, end);
      begin = end;
    }
  }
  if (pieces_.empty())
    throw Error(ExitCode::input,
                streams[0]->name() + ": no document has two ids; expected text of at least two");
  std::vector<std::int64_t> sizes;
  for (const Piece& p : pieces_) sizes.push_back(p.places), places_ += p.places;
  packed_ = best_fit(sizes, options.length);
  sampler_.emplace(sequences(), options.endless && options.shuffle, options.seed);
}

void PackedText::add(std::size_t stream, std::int64_t begin, std::int64_t end) {
  if (end - begin < 2) return;
  ++documents_;
  cut_ += end - begin - 1 > options_.length;
  for (; begin + 1 < end; begin += options_.length)
    pieces_.push_back({stream, begin, std::min(end - begin - 1, options_.length)});
}

double PackedText::filled() const {
  return static_cast<double>(places_) / static_cast<double>(sequences() * options_.length);
}

Dataset::GlobalBatch PackedText::batch(std::int64_t index) const {
  const std::int64_t all = options_.global_batch;
  if (options_.endless) return {0, all};
  return {0, std::clamp<std::int64_t>(sequences() - index * all, 0, all)};
}

void PackedText::fill(std::int64_t index, std::int64_t first, std::int64_t count,
                      const BatchFields& fields) const {
  for (const auto& [field, values] : fields) std::ranges::fill(values, info_of(field).padding);
  const auto ids = fields.at(Field::ids), labels = fields.at(Field::labels);
  const auto mask = fields.find(Field::mask);
  const std::vector<const TokenStream*> streams = source_.streams();
  std::vector<std::int32_t> text;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = sampler_->sample(index * options_.global_batch + first + i);
    std::int64_t at = i * options_.length;
    std::int32_t document = 0;
    std::optional<Draws> draws;
    if (options_.middle) draws = options_.middle->draws(index, first + i);
    for (const std::size_t piece : packed_[static_cast<std::size_t>(sample)]) {
      const Piece& p = pieces_[piece];
      text.resize(static_cast<std::size_t>(p.places) + 1);
      source_.read(*streams[p.stream], p.begin, text);
      if (draws) options_.middle->apply(text, {}, *draws);
      std::copy_n(text.begin(), p.places, ids.begin() + at);
      std::copy_n(text.begin() + 1, p.places, labels.begin() + at);
      if (mask != fields.end()) std::fill_n(mask->second.begin() + at, p.places, document);
      at += p.places;
      ++document;
    }
  }
}

}  // namespace tfm::data
