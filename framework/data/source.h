#pragma once
// The source of training samples. A stream (the ids of one file) of N ids holds (N - 1) / seq_len
// samples. Sample i is the seq_len + 1 ids [i * seq_len, (i + 1) * seq_len], whose last id is the
// first of the next sample. No sample spans two files.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/options.h"
#include "data/mixture.h"
#include "data/token_file.h"
#include "tokenizer/tokenizer.h"

namespace tfm::data {

struct SourceSpec {
  struct Path {
    // A file, or a pattern of glob(7), whose files are taken in the order of their names.
    std::string path;
    double weight = 1;  // of all files of the pattern together
  };
  bool text = false;  // to be encoded; else token files
  std::vector<Path> paths;
  bool weighted = false;       // see Source
  std::string field = "text";  // of .jsonl lines
  bool shuffle = false;        // for Sampler
  // Id after each .jsonl document; nullopt: the tokenizer's end_of_document(), if any.
  std::optional<std::int32_t> document_end;
  std::optional<std::int32_t> document_begin;  // before each document of a text
};

// The ids around each document of a text file.
struct DocumentIds {
  std::optional<std::int32_t> begin, end;
};
DocumentIds document_ids(const std::string& path, const SourceSpec& spec,
                         const tokenizer::Tokenizer& tokenizer);

struct SampleCount {
  std::int64_t samples = 0, left_out = 0;  // left_out: tokens that make no whole sample
};
SampleCount count_samples(std::int64_t tokens, std::int64_t seq_len);  // of one stream

// Samples from several paths. Not weighted: the samples of all paths one after another, each once
// an epoch.
//
// Weighted, also with equal weights: as a Mixture.
class Source {
 public:
  struct Group {
    std::string name;  // for messages
    std::vector<std::unique_ptr<TokenStream>> streams;
    double weight = 1;
  };
  // Error(input) if there is no sample, Error(usage) for weights that are not positive numbers.
  Source(std::vector<Group> groups, std::int64_t seq_len, bool weighted = false);

  std::int64_t samples() const { return samples_; }  // of an epoch
  std::int64_t tokens() const { return tokens_; }    // ids of all files
  std::int64_t seq_len() const { return seq_len_; }
  // The tokens that no sample contains, for the log; empty if there are none.
  std::string left_out() const;

  // `out`: seq_len + 1 ids. `starts`, unless null: the places among them at which the file says
  // that a document begins. Thread-safe. Error(input), naming file and token, for an id that does
  // not pass check_ids().
  void read(std::int64_t sample, std::span<std::int32_t> out,
            std::vector<std::int64_t>* starts = nullptr) const;

  // The files, in order, and so many ids of one of them from `begin` on, with the same errors.
  std::vector<const TokenStream*> streams() const;
  void read(const TokenStream& stream, std::int64_t begin, std::span<std::int32_t> out) const;

  // The name of the first file of which nothing is known to end a document: neither the file
  // itself nor id `end` among its first ids; empty if there is none.
  std::string without_documents(std::optional<std::int32_t> end) const;

  // Makes an id of vocab_size or more an error: at once for text, which is in memory; for files
  // when it is read.
  void check_ids(std::int64_t vocab_size);

 private:
  struct SampleIndex {  // the samples of a group: stream i holds [first[i], first[i + 1])
    Group group;
    std::vector<std::int64_t> first;
    std::int64_t samples() const { return first.back(); }
  };
  void mix(const std::vector<double>& weights);
  void read(const SampleIndex& place, std::int64_t sample, std::span<std::int32_t> out,
            std::vector<std::int64_t>* starts) const;

  std::vector<SampleIndex> places_;
  std::optional<Mixture> mixture_;
  std::int64_t files_ = 0, short_files_ = 0, left_out_ = 0;  // short: without a sample
  std::int64_t seq_len_, samples_ = 0, tokens_ = 0, vocab_size_ = std::int64_t{1} << 31;
};

// Maps token files; encodes text with the tokenizer into memory, where each document stands between
// its document_ids(). Error(input) for what cannot be read.
std::unique_ptr<Source> open_source(const SourceSpec& spec, const tokenizer::Tokenizer& tokenizer,
                                    std::int64_t seq_len);

}  // namespace tfm::data
