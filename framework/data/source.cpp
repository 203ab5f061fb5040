#include "data/source.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/encode_file.h"
#include "io/glob.h"
#include "text/documents.h"

namespace tfm::data {
namespace {

constexpr std::int64_t kSearched = 1 << 20;  // first ids of a file, for one that ends a document

std::unique_ptr<TokenStream> encode_stream(const std::string& path, const SourceSpec& spec,
                                           const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::int32_t> all;
  const DocumentIds around = document_ids(path, spec, tokenizer);
  bool first = true;
  encode_file(path, spec.field, tokenizer, [&](std::span<const std::int32_t> ids, bool last) {
    if (first && around.begin) all.push_back(*around.begin);
    all.insert(all.end(), ids.begin(), ids.end());
    if (last && around.end) all.push_back(*around.end);
    first = last;
  });
  return std::make_unique<MemoryTokens>(path, std::move(all));
}

}  // namespace

DocumentIds document_ids(const std::string& path, const SourceSpec& spec,
                         const tokenizer::Tokenizer& tokenizer) {
  DocumentIds ids{.begin = spec.document_begin, .end = {}};
  if (text::is_json_lines(path))
    ids.end = spec.document_end ? spec.document_end : tokenizer.end_of_document();
  return ids;
}

SampleCount count_samples(std::int64_t tokens, std::int64_t seq_len) {
  const std::int64_t samples = std::max<std::int64_t>(tokens - 1, 0) / seq_len;
  return {samples, samples > 0 ? tokens - samples * seq_len - 1 : tokens};
}

Source::Source(std::vector<Group> groups, std::int64_t seq_len, bool weighted) : seq_len_(seq_len) {
  TFM_CHECK(seq_len > 0, "seq_len must be positive");
  if (groups.empty()) throw Error(ExitCode::usage, "a data source needs at least one path");
  std::vector<double> weights;
  std::int64_t longest = 0;
  for (Group& g : groups) {
    if (!std::isfinite(g.weight) || g.weight <= 0)
      throw Error(ExitCode::usage,
                  g.name + ": weight: expected a positive number, got " + std::to_string(g.weight));
    weights.push_back(g.weight);
    SampleIndex place{std::move(g), {0}};
    for (const auto& s : place.group.streams) {
      const SampleCount count = count_samples(s->size(), seq_len);
      tokens_ += s->size();
      left_out_ += count.left_out;
      ++files_;
      short_files_ += count.samples == 0;
      longest = std::max(longest, s->size());
      place.first.push_back(place.first.back() + count.samples);
    }
    samples_ += place.samples();
    places_.push_back(std::move(place));
  }
  if (samples_ == 0)
    throw Error(ExitCode::input,
                places_[0].group.name + (places_.size() > 1 ? " and the other paths" : "") + ": " +
                    (files_ == 1 ? "" : std::to_string(files_) + " files have ") +
                    std::to_string(tokens_) + " tokens" +
                    (files_ == 1 ? "" : ", the longest " + std::to_string(longest) + ",") +
                    " are too few for a sample; expected at least " + std::to_string(seq_len + 1) +
                    " tokens in one file");
  if (weighted) mix(weights);
}

std::string Source::left_out() const {
  if (left_out_ == 0) return "";
  return std::to_string(left_out_) + " of " + std::to_string(tokens_) +
         " tokens do not fill a sample of " + std::to_string(seq_len_ + 1) +
         " tokens and are not used" +
         (short_files_ == 0 ? ""
                            : "; " + std::to_string(short_files_) + " of " +
                                  std::to_string(files_) + " files are shorter than one sample");
}

void Source::mix(const std::vector<double>& weights) {
  std::vector<std::int64_t> sizes;
  for (const SampleIndex& place : places_) {
    sizes.push_back(place.samples());
    if (place.samples() == 0)
      throw Error(
          ExitCode::input,
          place.group.name + ": the file is shorter than one sample of " +
              std::to_string(seq_len_ + 1) +
              " tokens and cannot have a share of the samples; use a longer file or remove it");
  }
  mixture_.emplace(weights, std::move(sizes));
  samples_ = mixture_->samples();
}

void Source::read(std::int64_t sample, std::span<std::int32_t> out,
                  std::vector<std::int64_t>* starts) const {
  TFM_CHECK(sample >= 0 && sample < samples_, "no sample " + std::to_string(sample));
  TFM_CHECK(static_cast<std::int64_t>(out.size()) == seq_len_ + 1, "a sample has seq_len + 1 ids");
  if (mixture_) {
    const Mixture::Item item = mixture_->item(sample);
    return read(places_[item.path], item.index, out, starts);
  }
  for (const SampleIndex& place : places_) {
    if (sample < place.samples()) return read(place, sample, out, starts);
    sample -= place.samples();
  }
}

void Source::read(const SampleIndex& place, std::int64_t sample, std::span<std::int32_t> out,
                  std::vector<std::int64_t>* starts) const {
  const auto after = std::upper_bound(place.first.begin(), place.first.end(), sample);
  const std::size_t i = static_cast<std::size_t>(after - place.first.begin()) - 1;
  const TokenStream& stream = *place.group.streams[i];
  const std::int64_t begin = (sample - place.first[i]) * seq_len_;
  read(stream, begin, out);
  if (starts) {
    starts->clear();
    stream.document_starts(begin, begin + std::ssize(out), *starts);
    for (std::int64_t& start : *starts) start -= begin;
  }
}

std::vector<const TokenStream*> Source::streams() const {
  std::vector<const TokenStream*> all;
  for (const SampleIndex& place : places_)
    for (const auto& stream : place.group.streams) all.push_back(stream.get());
  return all;
}

void Source::read(const TokenStream& stream, std::int64_t begin,
                  std::span<std::int32_t> out) const {
  stream.read(begin, out);
  const auto largest = std::max_element(out.begin(), out.end());
  if (*largest >= vocab_size_)
    throw Error(ExitCode::input,
                stream.name() + ": token " + std::to_string(begin + (largest - out.begin())) +
                    ": id " + std::to_string(*largest) +
                    " is outside the vocabulary; expected an id below model.vocab_size " +
                    std::to_string(vocab_size_));
}

void Source::check_ids(std::int64_t vocab_size) {
  vocab_size_ = vocab_size;
  for (const SampleIndex& place : places_)
    for (const auto& stream : place.group.streams)
      if (const auto largest = stream->largest_id(); largest && *largest >= vocab_size)
        throw Error(ExitCode::input,
                    stream->name() + ": the tokenizer has id " + std::to_string(*largest) +
                        "; expected ids below model.vocab_size " + std::to_string(vocab_size));
}

std::string Source::without_documents(std::optional<std::int32_t> end) const {
  const auto ends = [&](const TokenStream& stream) {
    if (stream.knows_documents()) return true;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(stream.size(), kSearched)));
    stream.read(0, ids);
    return end && std::ranges::find(ids, *end) != ids.end();
  };
  for (const SampleIndex& place : places_)
    for (const auto& stream : place.group.streams)
      if (!ends(*stream)) return stream->name();
  return "";
}

std::unique_ptr<Source> open_source(const SourceSpec& spec, const tokenizer::Tokenizer& tokenizer,
                                    std::int64_t seq_len) {
  std::vector<Source::Group> groups;
  for (const auto& [path, weight] : spec.paths) {
    Source::Group group{path, {}, weight};
    for (const std::string& file : io::expand_glob(path))
      group.streams.push_back(spec.text ? encode_stream(file, spec, tokenizer)
                                        : std::make_unique<TokenFile>(file));
    groups.push_back(std::move(group));
  }
  return std::make_unique<Source>(std::move(groups), seq_len, spec.weighted);
}

}  // namespace tfm::data
