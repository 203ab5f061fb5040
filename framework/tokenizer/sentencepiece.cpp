#include "tokenizer/sentencepiece.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "core/utf8.h"
#include "io/file.h"
#include "io/protobuf.h"
#include "text/unicode.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/splitter.h"
#include "tokenizer/unigram.h"

namespace tfm::tokenizer {
namespace {

constexpr std::size_t max_model_bytes = std::size_t{64} << 20, max_pieces = std::size_t{1} << 24;
constexpr std::uint64_t max_split_work = std::uint64_t{1}
                                         << 32;  // bytes looked at to find the merges of all pieces

enum class Kind : std::uint64_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct SpmPiece {
  std::string text;
  float score = 0;
  Kind kind = Kind::normal;
};

struct SpmModel {
  std::vector<SpmPiece> pieces;
  std::uint64_t type = 1;  // unigram 1, BPE 2
  bool byte_fallback = false, space_as_suffix = false;
  std::string unknown_surface = " \xE2\x81\x87 ";
  Charsmap charsmap;
  bool dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
};

SpmPiece read_piece(std::string_view message, const std::string& where) {
  SpmPiece piece;
  for (io::ProtobufReader r(message, where); r.next();) {
    if (r.field() == 1) piece.text = r.bytes();
    if (r.field() == 2) piece.score = r.real();
    if (r.field() == 3) {
      piece.kind = static_cast<Kind>(r.number());
      if (r.number() < 1 || r.number() > 6)
        r.fail("unknown type of piece " + std::to_string(r.number()));
    }
  }
  if (piece.text.empty()) throw Error(ExitCode::input, where + "the piece is empty");
  if (utf8_valid_prefix(piece.text) != piece.text.size())
    throw Error(ExitCode::input, where + "the piece is not UTF-8");
  if (!std::isfinite(piece.score)) throw Error(ExitCode::input, where + "the score is not finite");
  return piece;
}

void read_trainer(std::string_view message, const std::string& where, SpmModel& model) {
  for (io::ProtobufReader r(message, where); r.next();) {
    if (r.field() == 3) model.type = r.number();
    if (r.field() == 24) model.space_as_suffix = r.number() != 0;
    if (r.field() == 35) model.byte_fallback = r.number() != 0;
    if (r.field() == 44) model.unknown_surface = r.bytes();
  }
}

void read_rules(std::string_view message, const std::string& where, SpmModel& model) {
  for (io::ProtobufReader r(message, where); r.next();) {
    if (r.field() == 2) model.charsmap = Charsmap(r.bytes(), where);
    if (r.field() == 3) model.dummy_prefix = r.number() != 0;
    if (r.field() == 4) model.remove_extra_spaces = r.number() != 0;
    if (r.field() == 5) model.escape_spaces = r.number() != 0;
  }
}

SpmModel read_model(const std::string& path) {
  const std::string bytes = io::read_whole_file(path, max_model_bytes);
  SpmModel model;
  for (io::ProtobufReader r(bytes, path + ": "); r.next();) {
    if (r.field() == 1) {
      if (model.pieces.size() == max_pieces) r.fail("too many pieces");
      model.pieces.push_back(
          read_piece(r.bytes(), path + ": piece " + std::to_string(model.pieces.size()) + ": "));
    }
    if (r.field() == 2) read_trainer(r.bytes(), path + ": trainer_spec: ", model);
    if (r.field() == 3) read_rules(r.bytes(), path + ": normalizer_spec: ", model);
    if (r.field() == 5) {
      for (io::ProtobufReader d(r.bytes(), path + ": denormalizer_spec: "); d.next();)
        if (d.field() == 2 && !d.bytes().empty())
          d.fail("denormalization rules are not supported by this version");
    }
  }
  return model;
}

// What SentencePiece's Normalizer does; takes any bytes.
class SpmNormalizer final : public Normalizer {
 public:
  SpmNormalizer(const SpmModel& model, const std::string& where)
      : where_(where),
        map_(model.charsmap),
        prefix_(model.dummy_prefix),
        extra_(model.remove_extra_spaces),
        suffix_(model.space_as_suffix),
        space_(model.escape_spaces ? metaspace : " ") {
    std::vector<std::pair<std::string_view, std::int32_t>> kept;
    for (const SpmPiece& p : model.pieces)
      if (p.kind == Kind::user_defined) kept.emplace_back(p.text, 0);
    kept_any_ = !kept.empty();
    kept_ = text::Trie(std::move(kept));
  }
  void apply(std::string& text) const override {
    std::string_view rest = text;
    while (extra_ && !rest.empty()) {
      const Charsmap::Rule next = step(rest);
      if (next.replacement != " ") break;
      rest.remove_prefix(next.bytes);
    }
    std::string out;
    if (rest.empty()) return text.clear();
    out.reserve(rest.size() + rest.size() / 2 + space_.size());
    if (!suffix_ && prefix_) out += space_;
    bool after_space = extra_;
    while (!rest.empty()) {
      const Charsmap::Rule next = step(rest);
      std::string_view piece = next.replacement;
      while (after_space && piece.starts_with(' ')) piece.remove_prefix(1);
      for (char c : piece) c == ' ' ? out.append(space_) : out.append(1, c);
      check_growth(text.size(), out.size(), where_);
      if (!piece.empty()) after_space = extra_ && piece.back() == ' ';
      rest.remove_prefix(next.bytes);
    }
    while (extra_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
    if (suffix_ && prefix_) out += space_;
    text = std::move(out);
  }
  // A part after a cut starts with a space: it must come out as one space, as it does inside a
  // text.
  bool allows_cuts() const override { return !suffix_ && prefix_ == extra_; }

 private:
  Charsmap::Rule step(std::string_view text) const {
    if (kept_any_) {
      if (const std::size_t bytes = kept_.longest_prefix(text).first; bytes > 0)
        return {bytes, text.substr(0, bytes)};
    }
    if (const Charsmap::Rule rule = map_.longest(text); rule.bytes > 0) return rule;
    const std::size_t bytes = utf8_length(text);
    return bytes > 0 ? Charsmap::Rule{bytes, text.substr(0, bytes)}
                     : Charsmap::Rule{1, "\xEF\xBF\xBD"};
  }

  std::string where_;
  Charsmap map_;
  bool prefix_, extra_, suffix_, kept_any_;
  std::string space_;
  text::Trie kept_;  // user-defined pieces are not normalized
};

class SpmDecoder final : public TokenDecoder {
 public:
  SpmDecoder(const SpmModel& model, const std::array<std::int32_t, 256>& byte_ids)
      : strip_all_(model.remove_extra_spaces), strip_(strip_all_ || model.dummy_prefix) {
    for (std::size_t byte = 0; byte < byte_ids.size(); ++byte)
      if (byte_ids[byte] >= 0)
        surfaces_.emplace(model.pieces[static_cast<std::size_t>(byte_ids[byte])].text,
                          std::string(1, static_cast<char>(byte)));
    for (const SpmPiece& p : model.pieces) {
      if (p.kind == Kind::control) surfaces_.emplace(p.text, "");
      if (p.kind == Kind::unknown) surfaces_.emplace(p.text, model.unknown_surface);
    }
  }
  void apply(std::vector<std::string>& tokens) const override {
    std::string text;
    bool at_begin = strip_;
    for (const std::string& token : tokens) {
      if (const auto found = surfaces_.find(token); found != surfaces_.end()) {
        text += found->second;
        at_begin = at_begin && text.empty();
        continue;
      }
      std::string_view piece = token;
      if (at_begin && piece.starts_with(metaspace)) {
        piece.remove_prefix(metaspace.size());
        at_begin = strip_all_;
      }
      for (std::size_t at = 0; at < piece.size();) {
        const std::size_t space = std::min(piece.find(metaspace, at), piece.size());
        text += piece.substr(at, space - at);
        if (space < piece.size()) text += ' ';
        at = space + metaspace.size();
      }
      at_begin = at_begin && text.empty();
    }
    tokens = {std::move(text)};
  }

 private:
  bool strip_all_, strip_;  // the metaspaces at the begin, or only the first
  std::unordered_map<std::string, std::string> surfaces_;
};

// Byte pieces are <0x00> to <0xFF>, all of them and in any order where byte_fallback is on.
std::array<std::int32_t, 256> read_byte_ids(const SpmModel& model, const std::string& path) {
  std::array<std::int32_t, 256> ids;
  ids.fill(-1);
  static constexpr std::string_view digits = "0123456789ABCDEF";
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    if (model.pieces[i].kind != Kind::byte) continue;
    const std::string& t = model.pieces[i].text;
    const std::size_t high = t.size() == 6 ? digits.find(t[3]) : digits.npos,
                      low = t.size() == 6 ? digits.find(t[4]) : digits.npos;
    if (!model.byte_fallback || high == digits.npos || low == digits.npos ||
        !t.starts_with("<0x") || t[5] != '>')
      throw Error(ExitCode::input, path + ": piece " + std::to_string(i) + ": " + in_quotes(t) +
                                       " is not the expected byte piece");
    ids[high * 16 + low] = static_cast<std::int32_t>(i);
  }
  if (model.byte_fallback && std::count(ids.begin(), ids.end(), -1) > 0)
    throw Error(ExitCode::input, path + ": byte_fallback needs a piece for each of the 256 bytes");
  return ids;
}

// `vocabulary`: ids of the pieces (Marian's vocab.json); empty: their indices.
std::unique_ptr<TokenModel> make_unigram(const SpmModel& model,
                                         std::array<std::int32_t, 256> byte_ids,
                                         std::int32_t unknown, const VocabEntries& vocabulary) {
  UnigramOptions options;
  const auto text_of = [&](std::int32_t place) -> const std::string& {
    return model.pieces[static_cast<std::size_t>(place)].text;
  };
  if (!vocabulary.empty()) {
    options.run_id = [unknown, ids = std::unordered_map(vocabulary.begin(), vocabulary.end())](
                         std::string_view text) {
      const auto found = ids.find(std::string(text));
      return found == ids.end() ? unknown : found->second;
    };
    for (std::int32_t& id : byte_ids)
      if (id >= 0) id = options.run_id(text_of(id));
  }
  options.unknown = vocabulary.empty() ? unknown : -1;
  options.byte_ids = byte_ids;
  options.single_precision = true;
  float lowest = std::numeric_limits<float>::max(), highest = 0.1f;
  for (const SpmPiece& p : model.pieces) {
    if (p.kind != Kind::normal) continue;
    lowest = std::min(lowest, p.score);
    highest = std::max(highest, p.score);
  }
  options.lowest_score = lowest;
  std::vector<UnigramPiece> pieces;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SpmPiece& p = model.pieces[i];
    const bool wanted = p.kind == Kind::user_defined;  // it wins over all splits of its text; the
                                                       // score is that of version 0.2.3
    const double score = wanted ? static_cast<float>(p.text.size()) * highest - 0.1 : p.score;
    if (wanted || p.kind == Kind::normal)
      pieces.push_back(
          {p.text, options.run_id ? options.run_id(p.text) : static_cast<std::int32_t>(i), score});
  }
  return std::make_unique<UnigramModel>(pieces, options);
}

// Two neighbors merge where their join is a piece; the better its score, the earlier.
std::unique_ptr<TokenModel> make_bpe(const SpmModel& model, const VocabEntries& entries,
                                     std::int32_t unknown, const std::string& path) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  std::map<float, std::int32_t, std::greater<>> rank;
  std::uint64_t work = 0;
  VocabEntries symbols, letters;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SpmPiece& p = model.pieces[i];
    if (p.kind == Kind::unused)
      throw Error(ExitCode::input, path + ": piece " + std::to_string(i) +
                                       ": unused pieces are not supported by this version");
    if (p.kind == Kind::byte) symbols.push_back(entries[i]);
    if (p.kind != Kind::normal) continue;
    ids.emplace(p.text, static_cast<std::int32_t>(i));
    symbols.push_back(entries[i]);
    rank.emplace(p.score, 0);
    if ((work += p.text.size() * p.text.size()) > max_split_work)
      throw Error(ExitCode::input, path + ": the pieces are too long");
  }
  std::int32_t next = 0;
  for (auto& [score, place] : rank) place = next++;
  std::vector<BpeMerge> merges;
  for (const auto& [token, id] : symbols) {
    const SpmPiece& p = model.pieces[static_cast<std::size_t>(id)];
    if (p.kind != Kind::normal) continue;
    const auto id_of = [&](std::string_view part) {
      if (const auto found = ids.find(part); found != ids.end()) return found->second;
      if (part.size() != text::first_code_point(part).bytes) return -1;
      const std::int32_t letter = static_cast<std::int32_t>(model.pieces.size() + letters.size());
      letters.emplace_back(part, letter);
      return ids.emplace(part, letter).first->second;
    };
    for (std::size_t at = text::first_code_point(p.text).bytes; at < p.text.size();
         at += text::first_code_point(std::string_view(p.text).substr(at)).bytes) {
      const std::int32_t left = id_of(std::string_view(p.text).substr(0, at)),
                         right = id_of(std::string_view(p.text).substr(at));
      if (left >= 0 && right >= 0) merges.push_back({left, right, rank.at(p.score), id});
    }
  }
  BpeOptions options;
  options.byte_fallback = model.byte_fallback;
  options.unknown = unknown;
  options.fuse_unknown = true;
  return std::make_unique<BpeModel>(symbols, merges, options, letters);
}

// Whether a metaspace stands only at the begin of pieces, so that no piece runs into a word.
bool pieces_end_before_spaces(const SpmModel& model) {
  return std::none_of(model.pieces.begin(), model.pieces.end(), [](const SpmPiece& p) {
    std::size_t at = 0;
    while (std::string_view(p.text).substr(at).starts_with(metaspace)) at += metaspace.size();
    return p.text.find(metaspace, at) != p.text.npos || p.text.find(' ') != p.text.npos;
  });
}

}  // namespace

PipelineParts read_sentencepiece(const std::string& path, const VocabEntries& vocabulary) {
  const SpmModel model = read_model(path);
  PipelineParts parts;
  std::unordered_set<std::string_view> known;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SpmPiece& p = model.pieces[i];
    const std::int32_t id = static_cast<std::int32_t>(i);
    if (!known.insert(p.text).second)
      throw Error(ExitCode::input, path + ": piece " + std::to_string(i) + ": " +
                                       in_quotes(p.text) + " appears twice");
    if (p.kind == Kind::unknown && parts.unknown)
      throw Error(ExitCode::input, path + ": two pieces are marked as unknown; expected one");
    if (p.kind == Kind::unknown) parts.unknown = id;
    if (p.kind == Kind::user_defined && model.type == 2) parts.added.push_back({p.text, id});
    parts.entries.emplace_back(p.text, id);
  }
  if (!parts.unknown)
    throw Error(ExitCode::input,
                path + ": no piece is marked as unknown; expected a SentencePiece model");
  if (model.type != 1 && model.type != 2)
    throw Error(ExitCode::input, path + ": trainer_spec: model type " +
                                     (model.type == 3   ? "word"
                                      : model.type == 4 ? "char"
                                                        : "?") +
                                     " is not supported by this version; expected unigram or BPE");
  if (!vocabulary.empty() && model.type == 2)
    throw Error(ExitCode::input,
                path + ": trainer_spec: expected a unigram model next to vocab.json, got BPE");
  const auto byte_ids = read_byte_ids(model, path);
  parts.normalizer = std::make_unique<SpmNormalizer>(model, path + ": normalizer_spec: ");
  parts.decoder = std::make_unique<SpmDecoder>(model, byte_ids);
  if (!vocabulary.empty()) {
    parts.entries = vocabulary;
    parts.unknown = std::find_if(vocabulary.begin(), vocabulary.end(), [](const auto& e) {
                      return e.first == "<unk>";
                    })->second;
  }
  parts.model = model.type == 1 ? make_unigram(model, byte_ids, *parts.unknown, vocabulary)
                                : make_bpe(model, parts.entries, *parts.unknown, path);
  parts.any_bytes = true;
  parts.added_as_is = true;
  parts.cuts = pieces_end_before_spaces(model) ? Cuts::after_words : Cuts::none;
  return parts;
}

std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path) {
  return std::make_unique<PipelineTokenizer>(read_sentencepiece(path, {}));
}

}  // namespace tfm::tokenizer
