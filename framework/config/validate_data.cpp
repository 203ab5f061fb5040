// Rules between keys of data sources, and of these and the model.
#include "config/fields.h"
#include "config/rules.h"

namespace tfm::config {
namespace {

// Whether tokens of labelled text are masked.
bool masks_labelled_text(const ModelConfig& m) {
  return m.family == Family::encoder && m.head_of_type("lm");
}

// What is hidden of a text, and what is done to it.
void check_noise(const SourceConfig& s, const std::string& section, const Report& report) {
  const SourceType& type = s.kind();
  const SourceConfig usual;
  const auto only = [&](bool given, bool fits, const std::string& key, const std::string& where) {
    only_with(report)(given, fits, section + key, where, "");
  };
  only(s.mask_probability > 0, type.mask_probability > 0, ".mask_probability",
       types_where([](const auto& t) { return t.mask_probability > 0; }));
  only(s.mean_span_length > 0, type.mean_span_length > 0, ".mean_span_length",
       types_where([](const auto& t) { return t.mean_span_length > 0; }));
  only(s.whole_words, type.whole_words, ".whole_words",
       types_where([](const auto& t) { return t.whole_words; }));
  const std::string denoises = types_where([](const auto& t) { return t.denoises; });
  only(s.permute_sentences != usual.permute_sentences, type.denoises, ".permute_sentences",
       denoises);
  only(s.rotate > 0, type.denoises, ".rotate", denoises);
  only(s.delete_tokens > 0, type.denoises, ".delete", denoises);
  only(s.mask_tokens > 0, type.denoises, ".mask_tokens", denoises);
  if (s.delete_tokens + s.mask_tokens > 1)
    report({section + ".delete", section + ".mask_tokens"},
           "delete " + number_text(s.delete_tokens) + " + mask_tokens " +
               number_text(s.mask_tokens) + " exceed all tokens; expected a sum of at most 1",
           "");
  only(!(s.fim == usual.fim), type.fills_middle, ".fim",
       types_where([](const auto& t) { return t.fills_middle; }));
  only(!(s.fim == usual.fim) && type.fills_middle, s.fim.rate > 0, ".fim", "fim.rate > 0");
}

// A data source and the model's family.
void check_source(const Config& c, const SourceConfig& s, const std::string& section,
                  const Report& report) {
  const ModelConfig& m = c.model;
  const SourceType& type = s.kind();
  const auto only = [&](bool given, bool fits, const std::string& key, const std::string& where) {
    only_with(report)(given, fits, key, where, "");
  };
  if (!s.type.empty() && !type.trains(m.family)) {
    std::string expected;
    for (const SourceType& t : source_types())
      if (t.trains(m.family)) expected += (expected.empty() ? "" : " or ") + t.name;
    report({section + ".type", "model.family"},
           section + ".type " + s.type + " cannot train a model of family " + word(m.family) +
               "; expected " + expected,
           "");
  }
  if (m.sees_prefixes() && !s.type.empty() && !type.cuts)
    report({"model.attention.prefix", section + ".type"},
           "attention.prefix true needs texts that are cut in two, but " + section + ".type is " +
               s.type + "; expected " + types_where([](const auto& t) { return t.cuts; }) +
               ", or attention.prefix false",
           "");
  only(!s.source.empty() || !s.target.empty(), type.pairs,
       section + (s.source.empty() ? ".target" : ".source"),
       types_where([](const auto& t) { return t.pairs; }));
  only(s.mask_probability > 0 && type.labelled, masks_labelled_text(m),
       section + ".mask_probability", "an encoder that has a head of type lm");
  check_noise(s, section, report);
  const std::string labelled = types_where([](const auto& t) { return t.labelled; });
  const SourceConfig usual;
  only(s.text != usual.text, type.labelled, section + ".text", labelled);
  only(!s.text_pair.empty(), type.labelled, section + ".text_pair", labelled);
  only(s.label != usual.label, type.labelled, section + ".label", labelled);
  only(s.label != usual.label && type.labelled, m.labelled_heads().size() == 1, section + ".label",
       "one head for labels; several read the columns of their names");
  const std::string chats = types_where([](const auto& t) { return t.chats; });
  only(s.messages != usual.messages, type.chats, section + ".messages", chats);
  only(s.chat_template != usual.chat_template, type.chats, section + ".template", chats);
  only(!s.negative.empty(), type.labelled && m.embeds(), section + ".negative",
       labelled + " and a head of type embed");
  only(type.labelled, !m.labelled_heads().empty() || m.embeds(), section + ".type",
       "a head of type classify, tag, regress or embed, such as model.heads [{type: classify, "
       "classes: 2}]");
  if (type.labelled && m.embeds() && s.text_pair.empty())
    report({section + ".text_pair", section + ".type"},
           "a head of type embed learns from pairs of texts; expected text_pair, the column of the "
           "document that answers `text`",
           "");
  only(!s.text_pair.empty() && type.labelled, !m.head_of_type("tag"), section + ".text_pair",
       "a model without a head of type tag");
  only(s.documents == Documents::separate, type.documents, section + ".documents",
       types_where([](const auto& t) { return t.documents; }));
  const auto packs = [](const auto& t) { return t.documents && t.mask_probability == 0; };
  only(s.documents == Documents::packed, packs(type) && !s.weighted, section + ".documents",
       types_where(packs) + " and without weights of paths");
  only(s.document_end >= 0, s.documents != Documents::joined || s.fim.rate > 0,
       section + ".document_end", "documents separate or packed, or fim.rate > 0");
  if (s.document_end >= m.vocab_size)
    report({section + ".document_end", "model.vocab_size"},
           "document_end " + std::to_string(s.document_end) + " is outside model.vocab_size " +
               std::to_string(m.vocab_size) + "; expected an id of the vocabulary",
           "");
  only(s.next_sentence, type.next_sentence, section + ".next_sentence",
       types_where([](const auto& t) { return t.next_sentence; }));
  only(s.next_sentence && type.next_sentence, m.next_sentence(), section + ".next_sentence",
       "model.next_sentence true");
  only(s.next_sentence, s.documents == Documents::joined, section + ".next_sentence",
       "documents joined");
  only(s.next_sentence, m.type_vocab_size != 1, section + ".next_sentence",
       "model.type_vocab_size 0 (none) or 2");
  only(s.next_sentence, c.train.seq_len >= 5, section + ".next_sentence", "train.seq_len >= 5");
  only(std::ranges::any_of(s.paths, [](const SourcePath& p) { return p.weight != 1; }),
       type.any_file_weights, section + ".path.weight",
       types_where([](const auto& t) { return t.any_file_weights; }));
  const std::string pairs = types_where([](const auto& t) { return t.pairs; });
  const auto any_path = [&](auto&& f) { return std::ranges::any_of(s.paths, f); };
  only(any_path([](const SourcePath& p) { return p.path.empty(); }), type.pairs,
       section + ".path.source", pairs);
  only(any_path([](const SourcePath& p) { return !p.prefix.empty(); }), type.pairs,
       section + ".path.prefix", pairs);
  const bool trains = section == "data.train";
  only(s.weighted && type.pairs, trains, section + ".path.weight", "data.train");
  only(s.temperature != 1 || s.max_examples > 0,
       type.pairs && s.paths.size() > 1 && !s.weighted && trains,
       section + (s.temperature != 1 ? ".temperature" : ".max_examples"),
       "data.train." + pairs + ", several paths and no weights");
  only(s.bpe_dropout > 0, type.pairs && trains, section + ".bpe_dropout", "data.train." + pairs);
  if (type.pairs && !s.paths.empty() && (!s.source.empty() || !s.target.empty()))
    report({section + ".path", section + ".source"},
           "'path' and 'source' or 'target' are both set; expected either 'path' or 'source' and "
           "'target'",
           "");
}

void check_sources(const Config& c, const Report& report) {
  const ModelConfig& m = c.model;
  if (const auto heads = m.labelled_heads(); !heads.empty() && !c.data.train.kind().labelled)
    report({"model.heads", "data.train.type"},
           "the head " + quoted(heads.front()->name) +
               " needs the labels of each text, which data.train.type " + c.data.train.type +
               " does not have; expected " + types_where([](const auto& t) { return t.labelled; }),
           "");
  check_source(c, c.data.train, "data.train", report);
  if (c.data.validation) check_source(c, *c.data.validation, "data.validation", report);
  const auto by_itself = [](const SourceConfig& s) { return s.kind().labelled || s.kind().chats; };
  const bool one_type = m.translates() || by_itself(c.data.train) ||
                        (c.data.validation && by_itself(*c.data.validation));
  if (c.data.validation && one_type && c.data.validation->type != c.data.train.type)
    report({"data.validation.type", "data.train.type"},
           "data.validation.type " + c.data.validation->type + " differs from data.train.type " +
               c.data.train.type + "; expected the same objective",
           "");
  if (c.data.validation && c.data.validation->negative.empty() != c.data.train.negative.empty())
    report({"data.validation.negative", "data.train.negative"},
           "only one of data.train and data.validation has a column of negatives; expected both",
           "");
  if (c.data.validation && c.data.train.kind().chats && c.data.validation->kind().chats &&
      c.data.validation->chat_template != c.data.train.chat_template)
    report({"data.validation.template", "data.train.template"},
           "data.validation.template " + c.data.validation->chat_template +
               " differs from data.train.template " + c.data.train.chat_template +
               "; expected the same",
           "");
  only_with(report)(
      c.train.global_batch_tokens > 0, c.data.train.kind().pairs, "train.global_batch_tokens",
      "data.train." + types_where([](const auto& t) { return t.pairs; }), "global_batch_size");
  only_with(report)(c.train.micro_batch_tokens > 0, c.train.counts_tokens(),
                    "train.micro_batch_tokens",
                    "train.global_batch_tokens and without micro_batch_size", "micro_batch_size");
}

}  // namespace

void check_data(const Config& c, const Report& report) {
  check_sources(c, report);
  const ModelConfig& m = c.model;
  if (m.position == Position::learned && c.train.seq_len > m.max_seq_len)
    report({"train.seq_len", "model.max_seq_len", "model.preset"},
           "train.seq_len " + std::to_string(c.train.seq_len) + " exceeds model.max_seq_len " +
               std::to_string(m.max_seq_len) +
               ", the number of rows of the learned position table; expected seq_len <= " +
               std::to_string(m.max_seq_len),
           "");
  const auto reads_text = [&](const SourceConfig& s) {
    return s.kind().plain_text() || s.kind().labelled || s.kind().chats;
  };
  const bool tokenizes =
      reads_text(c.data.train) || (c.data.validation && reads_text(*c.data.validation));
  if (tokenizes && c.data.tokenizer_or_bytes() == "bytes" && m.vocab_size < 256)
    report({"model.vocab_size", "data.tokenizer"},
           "vocab_size " + std::to_string(m.vocab_size) +
               " is too small for the bytes tokenizer, whose ids are 0 to 255; expected >= 256",
           "");
  const auto apart = [](const SourceConfig& s) {
    return s.documents != Documents::joined || s.kind().chats;
  };
  if (c.data.restart_positions != Switch::automatic && !apart(c.data.train) &&
      !(c.data.validation && apart(*c.data.validation)))
    report({"data.restart_positions", "data.train.documents"},
           "restart_positions needs the documents of a sequence to be apart; expected documents "
           "separate or packed, or restart_positions auto",
           "");
  only_with(report)(!c.data.source_tokenizer.empty(), m.source_vocab_size > 0,
                    "data.source_tokenizer", "model.source_vocab_size > 0", "data.tokenizer");
  if (m.source_vocab_size > 0 && !c.data.train.kind().pairs)
    report({"data.train.type", "model.source_vocab_size"},
           "data.train.type " + c.data.train.type +
               " makes source and target from one text, but model.source_vocab_size " +
               std::to_string(m.source_vocab_size) + " is of another vocabulary; expected " +
               types_where([](const auto& t) { return t.pairs; }),
           "");
}

void fill_derived(SourceConfig& s, const ModelConfig& m) {
  if (s.mask_probability == 0 && (!s.kind().labelled || masks_labelled_text(m)))
    s.mask_probability = s.kind().mask_probability;
  if (s.mean_span_length == 0) s.mean_span_length = s.kind().mean_span_length;
}

}  // namespace tfm::config
