#pragma once
// Pre-tokenizers of tokenizer.json, which split a text into the words that the model sees one by
// one.
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "io/json.h"

namespace tfm::tokenizer {

struct Piece {
  std::string_view text;  // well-formed UTF-8, not empty
  std::size_t lead = 0;   // its bytes that stand for the first character of the whole text
  Piece part(std::size_t begin, std::size_t end) const {
    return {text.substr(begin, end - begin), lead > begin ? lead - begin : 0};
  }
};
using PieceSink = std::function<void(Piece)>;

// Where a text may be cut such that its parts, split separately, give the same words: nowhere that
// is known; between an ASCII letter or digit and a space; or before every space and line feed that
// no white space precedes.
enum class Cuts { none, after_words, before_spaces };

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // A piece's text is valid during the call of the sink.
  virtual void split(Piece piece, const PieceSink& sink) const = 0;
  virtual Cuts cuts() const { return Cuts::none; }
};

// `byte_level`: the model works on bytes. The words themselves stay as they are, and the model's
// tokens are read as bytes instead. ByteLevel must come last in a Sequence.
struct PreTokenization {
  std::unique_ptr<PreTokenizer> splitter;
  bool byte_level = false;
};

// Reads Sequence, ByteLevel, Split, Metaspace, BertPreTokenizer, Whitespace, WhitespaceSplit,
// Punctuation and Digits. Error(input) for any other.
PreTokenization read_pre_tokenizer(const io::JsonNode& node);

// The ByteLevel pre-tokenizer with GPT-2's pattern and no prefix.
std::unique_ptr<PreTokenizer> gpt2_split();

}  // namespace tfm::tokenizer
