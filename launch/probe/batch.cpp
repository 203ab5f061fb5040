#include "launch/probe/batch.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "data/labelled_rows.h"
#include "data/special_ids.h"
#include "huggingface/config.h"
#include "huggingface/sidecars.h"
#include "io/safetensors.h"
#include "launch/support/program.h"
#include "tokenizer/tokenizer.h"

namespace tfm::launch {
namespace {

class BatchFile {
 public:
  explicit BatchFile(const std::string& path) : reader_(path) {}
  bool has(const std::string& name) const { return reader_.has(name); }
  std::vector<std::int32_t> read(const std::string& name, std::int64_t rows,
                                 std::int64_t cols) const {
    expect_shape(name, rows, cols);
    return reader_.read<std::int32_t>(name);
  }
  void expect_shape(const std::string& name, std::int64_t rows, std::int64_t cols) const {
    const auto& shape = reader_.info(name).shape;
    const std::vector<std::int64_t> expected =
        cols > 0 ? std::vector<std::int64_t>{rows, cols} : std::vector<std::int64_t>{rows};
    if (shape != expected)
      throw Error(ExitCode::input, reader_.path() + ": tensor '" + name +
                                       "' differs in shape from input_ids; expected (" +
                                       std::to_string(rows) +
                                       (cols > 0 ? ", " + std::to_string(cols) + ")" : ")"));
  }
  // Ids below `count`; labels may be -100, which counts as none.
  enum class Kind : std::uint8_t { ids, labels };
  std::vector<std::int32_t> read(const std::string& name, std::int64_t rows, std::int64_t cols,
                                 std::int64_t count, Kind kind = Kind::ids) const {
    std::vector<std::int32_t> all = read(name, rows, cols);
    for (const std::int32_t id : all)
      if (!(kind == Kind::labels && id == -100) && (id < 0 || id >= count))
        throw Error(ExitCode::input, path() + ": tensor '" + name + "' has " + std::to_string(id) +
                                         "; expected 0 to " + std::to_string(count - 1) +
                                         (kind == Kind::labels ? ", or -100 for no label" : ""));
    return all;
  }
  // (rows) of floats, as elements of Field::numbers; NaN counts as none.
  std::vector<std::int32_t> read_numbers(const std::string& name, std::int64_t rows) const {
    expect_shape(name, rows, 0);
    std::vector<std::int32_t> all;
    for (const float x : reader_.read<float>(name))
      all.push_back(std::isnan(x) ? kNoNumber : number_element(x));
    return all;
  }
  std::pair<std::int64_t, std::int64_t> size(const std::string& name) const {
    const auto& shape = reader_.info(name).shape;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1)
      throw Error(ExitCode::input,
                  reader_.path() + ": tensor '" + name + "' is not a matrix; expected (B, T)");
    return {shape[0], shape[1]};
  }
  void expect_only(const std::vector<std::string>& known) const {
    for (const auto& [name, info] : reader_.tensors())
      if (std::ranges::find(known, name) == known.end())
        throw Error(ExitCode::input,
                    path() + ": tensor " + in_quotes(name) +
                        " is not supported for this model; expected " +
                        join(std::vector<std::string_view>(known.begin(), known.end())));
  }
  std::string path() const { return reader_.path(); }

 private:
  io::SafetensorsReader reader_;
};

std::vector<std::int32_t> as_mask(std::vector<std::int32_t> ones) {
  for (auto& x : ones) x = x != 0 ? 0 : -1;
  return ones;
}

std::vector<std::int32_t> shifted_left(const std::vector<std::int32_t>& labels,
                                       std::int64_t length) {
  std::vector<std::int32_t> out(labels.size(), -1);
  for (std::size_t i = 0; i + 1 < labels.size(); ++i)
    if ((i + 1) % static_cast<std::size_t>(length) != 0) out[i] = labels[i + 1];
  return out;
}

// The ids that begin targets and stand behind labels that are ignored: the model's, else those of
// the config.json it came with, as T5's embedding has no padding_idx. A model that was trained here
// from its start has those of its tokenizer, as its export would.
struct TargetIds {
  std::int64_t start, padding;
};
TargetIds target_ids(const Arguments& args, const std::string& path, const std::string& dir,
                     const config::Config& config) {
  const config::ModelConfig& m = config.model;
  const bool theirs = huggingface::is_huggingface(dir);
  const std::string file = dir + (theirs ? "/config.json" : "/manifest.json (extra)");
  const huggingface::Json original =
      theirs ? huggingface::read_config(dir)
             : io::parse_json(checkpoint::CheckpointReader(dir).manifest().extra, file)
                   .value("config", huggingface::Json());
  TargetIds ids{m.decoder_start, 0};
  if (ids.start < 0) {
    if (!original.is_null())
      throw Error(ExitCode::input, path +
                                       ": tensor 'decoder_input_ids' is missing, and the model "
                                       "has no decoder start token");
    const auto tokenizer =
        tokenizer::load_tokenizer(config.data.tokenizer_or_bytes(), config.data.source_tokenizer);
    check_tokenizer(args, dir, *tokenizer, config.data);
    const std::int32_t begin = data::sentence_ids(*tokenizer, -1).begin;
    data::check_known(begin, m.vocab_size, "data.tokenizer");
    const auto pad = tokenizer->target().special_ids().pad;
    ids = {begin, pad && *pad < m.vocab_size ? *pad : -1};
  }
  if (m.padding_idx >= 0)
    ids.padding = m.padding_idx;
  else if (!original.is_null())
    ids.padding = huggingface::padding({original, file}, m.vocab_size, 0);
  if (ids.padding < 0)
    throw Error(ExitCode::input,
                (original.is_null()
                     ? std::string("data.tokenizer has no padding id in the model's vocabulary")
                     : file + ": pad_token_id is null") +
                    ", so that labels give no decoder_input_ids; expected these in the batch");
  return ids;
}

// transformers' decoder_input_ids.
std::vector<std::int32_t> shifted_right(const std::vector<std::int32_t>& labels,
                                        std::int64_t length, const TargetIds& ids) {
  std::vector<std::int32_t> out(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i)
    out[i] = i % static_cast<std::size_t>(length) == 0 ? static_cast<std::int32_t>(ids.start)
             : labels[i - 1] == -100                   ? static_cast<std::int32_t>(ids.padding)
                                                       : labels[i - 1];
  return out;
}

std::vector<std::int32_t> labels_of(const BatchFile& file, std::int64_t rows, std::int64_t length,
                                    const config::ModelConfig& m) {
  return file.read("labels", rows, length, m.vocab_size, BatchFile::Kind::labels);
}

// Heads with labels besides those of tokens, and the tensor of the labels of each.
std::vector<const config::HeadConfig*> labelled_heads(const config::ModelConfig& m) {
  std::vector<const config::HeadConfig*> all = m.labelled_heads();
  if (m.next_sentence()) all.push_back(m.head(config::kNextSentence));
  return all;
}
// `labels`, as in transformers, of a model that has one head.
std::string label_tensor(const config::ModelConfig& m, const config::HeadConfig& head) {
  if (m.heads.size() == 1) return "labels";
  return head.name + (head.type == "tag" ? "_labels" : "_label");
}

std::vector<std::string> known_tensors(const config::ModelConfig& m) {
  std::vector<std::string> known{"input_ids", "attention_mask"};
  if (m.attention.global_tokens > 0) known.emplace_back("global_attention_mask");
  if (m.sees_prefixes()) known.emplace_back("prefix_lengths");
  if (m.head_of_type("lm")) known.emplace_back("labels");
  if (m.type_vocab_size > 0 || !m.decodes()) known.emplace_back("token_type_ids");
  for (const config::HeadConfig* head : labelled_heads(m)) known.push_back(label_tensor(m, *head));
  if (m.embeds()) known.emplace_back("labels");
  if (m.translates()) known.insert(known.end(), {"decoder_input_ids", "decoder_attention_mask"});
  return known;
}

// Reads which documents are those of queries; every row has as many texts.
void read_pairs(const BatchFile& file, const config::ModelConfig& m, ProbeBatch& b) {
  const std::int64_t B = b.shape.sequences;
  std::vector<std::int32_t>& values = b.fields[Field::positives];
  values.assign(static_cast<std::size_t>(B), -1);
  if (!file.has("labels")) return;
  values = file.read("labels", B, 0, B, BatchFile::Kind::labels);
  b.labelled = true;
  const std::int64_t queries = std::ranges::count_if(values, [](auto x) { return x >= 0; }),
                     texts = queries > 0 ? B / queries : 0, group = m.head_of_type("embed")->group;
  bool regular = (texts == 2 || texts == 3) && queries * texts == B;
  for (std::int64_t i = 0; regular && i < B; ++i)
    regular = (values[static_cast<std::size_t>(i)] >= 0) == (i % texts == 0);
  if (!regular || (group > 0 && queries % group != 0))
    throw Error(ExitCode::input,
                file.path() +
                    ": tensor 'labels' is not of rows of a query and its documents; expected an "
                    "index at every second or every third sequence from the first on, and -100 "
                    "elsewhere, and whole groups of the head");
  for (const std::int32_t label : values)
    if (label >= (texts - 1) * (group > 0 ? group : queries))
      throw Error(ExitCode::input, file.path() + ": tensor 'labels' has " + std::to_string(label) +
                                       ", which is no document of the query's group");
  b.shape.texts = texts;
}

// Reads the labels of heads, or none.
void read_labels(const BatchFile& file, const config::ModelConfig& m, ProbeBatch& b) {
  const auto add = [&](Field field, const std::string& name, const auto& read) {
    std::vector<std::int32_t>& values = b.fields[field];
    values.assign(static_cast<std::size_t>(b.shape.sequences * b.shape.width(field)),
                  info_of(field).padding);
    if (!file.has(name)) return;
    values = read();
    b.labelled = true;
    b.ignored |= std::ranges::none_of(
        values, [&](std::int32_t label) { return info_of(field).counts(label); });
  };
  const std::int64_t B = b.shape.sequences, T = b.shape.length;
  if (m.head_of_type("lm"))
    add(Field::labels, "labels", [&] {
      const std::vector<std::int32_t> all = labels_of(file, B, T, m);
      return m.family == config::Family::decoder ? shifted_left(all, T) : all;
    });
  for (const config::HeadConfig* head : labelled_heads(m)) {
    const std::string name = label_tensor(m, *head);
    add(data::label_field(*head), name, [&] {
      return head->type == "regress" ? file.read_numbers(name, B)
                                     : file.read(name, B, head->type == "tag" ? T : 0,
                                                 head->classes, BatchFile::Kind::labels);
    });
  }
  if (m.embeds()) read_pairs(file, m, b);
  if (m.head_of_type("lm")) b.labelled = file.has("labels");
}

// RoBERTa's positions do not count padding in transformers: those of the columns where it is masked
// and behind the text.
void expect_padding_behind(const std::string& path, const config::ModelConfig& m,
                           const ProbeBatch& b) {
  if (m.family != config::Family::encoder || m.position_offset == 0 ||
      m.position_offset != m.padding_idx + 1)
    return;
  const auto at = [&b](Field field, std::int64_t i) { return b.fields.at(field)[i]; };
  bool behind = false;
  for (std::int64_t i = 0; i < b.shape.sequences * b.shape.length; ++i) {
    behind = (behind && i % b.shape.length != 0) || at(Field::ids, i) == m.padding_idx;
    const auto labelled = [&](Field field) {
      return b.fields.contains(field) && at(field, i) >= 0;
    };
    if (behind &&
        (at(Field::mask, i) == 0 || labelled(Field::labels) || labelled(Field::token_labels)))
      throw Error(ExitCode::input,
                  path + ": tensor 'input_ids' has padding (" + std::to_string(m.padding_idx) +
                      ") in sequence " + std::to_string(i / b.shape.length) +
                      " that is not masked, or not behind the text; transformers counts positions "
                      "without it, which is not supported; expected attention_mask 0 and no label "
                      "from the first padding on");
  }
}

// Which tokens see all is the model's.
void expect_first(const std::string& path, const config::ModelConfig& m,
                  const std::vector<std::int32_t>& global, std::int64_t length) {
  const std::int64_t n = m.attention.global_tokens;
  for (std::int64_t i = 0; i < std::ssize(global); ++i)
    if (global[static_cast<std::size_t>(i)] != (i % length < n))
      throw Error(ExitCode::input,
                  path +
                      ": tensor 'global_attention_mask' is not that of this model, whose global "
                      "tokens are the first " +
                      std::to_string(n) + " (attention.global_tokens); expected 1 there and 0 " +
                      "elsewhere, found otherwise at position " + std::to_string(i % length) +
                      " of sequence " + std::to_string(i / length));
}

// Without the mask, transformers' Longformer has no global tokens, but in its class for sequences.
void expect_no_global_tokens(const std::string& path, const config::ModelConfig& m) {
  if (m.attention.global_tokens == 0 || !m.attention.global_projections ||
      std::ranges::all_of(m.heads, [](const auto& head) { return head.type == "classify"; }))
    return;
  throw Error(ExitCode::input,
              path +
                  ": tensor 'global_attention_mask' is missing, without which transformers has "
                  "no global tokens; expected 1 at the first " +
                  counted(m.attention.global_tokens, "position") +
                  " of each sequence (attention.global_tokens) and 0 elsewhere");
}

// A query without a key gets zeros here, in transformers' T5 the mean of all values: no label may
// depend on it.
void expect_keys(const std::string& path, const config::ModelConfig& m, const ProbeBatch& b) {
  if (!m.translates() || m.position != config::Position::relative || !b.labelled ||
      !b.fields.contains(Field::labels))
    return;
  // Of sequence `row`: whether keys [0, n) are masked, and positions [0, n) have a label.
  const auto masked = [&](Field mask, std::int64_t row, std::int64_t length, std::int64_t n) {
    const auto first = b.fields.at(mask).begin() + row * length;
    return std::all_of(first, first + n, [](std::int32_t x) { return x < 0; });
  };
  const auto labelled = [&](std::int64_t row, std::int64_t n) {
    const auto first = b.fields.at(Field::labels).begin() + row * b.shape.length;
    return std::any_of(first, first + n, [](std::int32_t label) { return label >= 0; });
  };
  const auto refuse = [&](const char* tensor, std::int64_t row) {
    throw Error(ExitCode::input, path + ": tensor '" + tensor + "' leaves a query of sequence " +
                                     std::to_string(row) +
                                     " without a key, of which transformers takes the mean of all "
                                     "values; expected no labels that depend on it");
  };
  for (std::int64_t row = 0; row < b.shape.sequences; ++row) {
    if (const std::int64_t n = b.shape.source_length;
        masked(Field::source_mask, row, n, n) && labelled(row, b.shape.length))
      refuse("attention_mask", row);
    if (b.shape.mask != nn::Mask::padding) continue;
    for (std::int64_t n = 1; n <= b.shape.length && masked(Field::mask, row, b.shape.length, n);
         ++n)
      if (labelled(row, n)) refuse("decoder_attention_mask", row);
  }
}

}  // namespace

void ProbeBatch::fill(std::int64_t, std::int64_t first, std::int64_t count,
                      const BatchFields& to) const {
  for (const auto& [field, span] : to) {
    const std::int64_t width = shape.width(field);
    std::copy_n(fields.at(field).begin() + first * width, count * width, span.begin());
  }
}

ProbeBatch read_probe_batch(const Arguments& args, const std::string& dir,
                            const config::Config& config) {
  const config::ModelConfig& m = config.model;
  const std::string path = args.get("--batch");
  const BatchFile file(path);
  file.expect_only(known_tensors(m));
  ProbeBatch b;
  const auto [B, T] = file.size("input_ids");
  b.shape = {.sequences = B, .length = T};
  b.fields[m.translates() ? Field::source_ids : Field::ids] =
      file.read("input_ids", B, T, m.translates() ? m.source_vocabulary() : m.vocab_size);
  if (m.encodes())
    b.fields[m.translates() ? Field::source_mask : Field::mask] =
        file.has("attention_mask") ? as_mask(file.read("attention_mask", B, T))
                                   : std::vector<std::int32_t>(B * T, 0);
  std::string mask = "attention_mask";
  if (m.translates()) {
    const bool given = file.has("decoder_input_ids");
    if (!given && !(m.head_of_type("lm") && file.has("labels")))
      throw Error(ExitCode::input, path +
                                       ": tensor 'decoder_input_ids' is missing, and there are no "
                                       "labels to derive it from");
    const std::int64_t length = file.size(given ? "decoder_input_ids" : "labels").second;
    b.shape = {.sequences = B, .length = length, .source_length = T};
    b.fields[Field::ids] = given ? file.read("decoder_input_ids", B, length, m.vocab_size)
                                 : shifted_right(labels_of(file, B, length, m), length,
                                                 target_ids(args, path, dir, config));
    mask = "decoder_attention_mask";
  }
  if (m.decodes()) {
    if (file.has(mask)) b.shape.mask = nn::Mask::padding;
    b.fields[Field::mask] = file.has(mask) ? as_mask(file.read(mask, B, b.shape.length))
                                           : std::vector<std::int32_t>(B * b.shape.length, 0);
  }
  if (m.type_vocab_size > 0)
    b.fields[Field::token_types] = file.has("token_type_ids")
                                       ? file.read("token_type_ids", B, T, m.type_vocab_size)
                                       : std::vector<std::int32_t>(B * T, 0);
  else if (file.has("token_type_ids"))
    file.read("token_type_ids", B, T, 1);  // all 0
  if (m.sees_prefixes()) {
    b.fields[Field::prefix].assign(static_cast<std::size_t>(B), 0);
    if (file.has("prefix_lengths"))
      b.fields[Field::prefix] = file.read("prefix_lengths", B, 0, T + 1);
  }
  if (file.has("global_attention_mask"))
    expect_first(path, m, file.read("global_attention_mask", B, T, 2), T);
  else
    expect_no_global_tokens(path, m);
  read_labels(file, m, b);
  expect_padding_behind(path, m, b);
  expect_keys(path, m, b);
  return b;
}

ProbeBatch padded(const ProbeBatch& b, std::int64_t of) {
  ProbeBatch p = b;
  p.shape.length = round_up(b.shape.length, of);
  p.shape.source_length = round_up(b.shape.source_length, of);
  for (auto& [field, values] : p.fields) {
    const std::int64_t from = b.shape.width(field), to = p.shape.width(field);
    values.assign(static_cast<std::size_t>(b.shape.sequences * to), info_of(field).padding);
    for (std::int64_t r = 0; r < b.shape.sequences; ++r)
      std::copy_n(b.fields.at(field).begin() + r * from, from, values.begin() + r * to);
  }
  return p;
}

}  // namespace tfm::launch
