// Keys of `data`.
#include "config/field_kinds.h"
#include "config/fields.h"

namespace tfm::config {

using namespace field;

namespace {

void describe(SourcePath& p, FieldVisitor& v) {
  v.value(text("path", "a file or a glob pattern"), p.path);
  v.value(Field{.name = "weight",
                .help = "share of the samples, relative to the other paths",
                .kind = FieldKind::real,
                .low = 0,
                .low_open = true},
          p.weight);
  v.value(text("source", "pairs: text file of source sentences, with `target` instead of `path`"),
          p.source);
  v.value(text("target", "pairs: text file of target sentences"), p.target);
  v.value(
      text("prefix", "pairs: text before each source, such as \"translate English to German: \""),
      p.prefix);
}

bool read_source_path(FieldReader& reader, const YamlNode& node, SourcePath& out) {
  if (node.kind != YamlNode::Kind::map)
    return reader.read_value(text("path", "a file or a glob pattern"), node, out.path);
  reader.read_section(node, "path", [&out](FieldVisitor& v) { describe(out, v); });
  const bool two = !out.source.empty() && !out.target.empty();
  if (out.path.empty() ? !two : !out.source.empty() || !out.target.empty()) {
    reader.error(text("path", ""), node,
                 out.path.empty() ? "'path' is missing; expected it, or 'source' and 'target'"
                                  : "'path' and 'source' or 'target' are both set; expected either "
                                    "'path' or 'source' and 'target'");
    return false;
  }
  return true;
}

void describe_paths(SourceConfig& s, FieldVisitor& v) {
  std::vector<SourcePath>& paths = s.paths;
  const Field f = required(
      text("path",
           "a file, a glob pattern, or a list of them, read one after another unless one has a "
           "`weight`: share of the samples (1 where others have one), rounded to "
           "thousandths, at least 0.001; pairs: a file with source, tab, target "
           "on each line"));
  v.special(f,
            {.type = "text or {path, weight, source, target, prefix}, or a list of them",
             .read =
                 [&s, &paths, f](FieldReader& reader, const YamlNode& node) {
                   const bool list = node.kind == YamlNode::Kind::sequence;
                   if (list && node.items.empty() && (s.source.empty() || s.target.empty()))
                     reader.error(f, node, "found an empty list; expected at least one path");
                   paths.clear();
                   s.weighted = false;
                   for (const YamlNode& item : list ? node.items : std::vector<YamlNode>{node}) {
                     const bool map = item.kind == YamlNode::Kind::map;
                     const YamlNode* written = map ? item.find("path") : nullptr;
                     s.weighted |= map && item.find("weight");
                     reader.mark_item(f, paths.size(), written ? written->at : item.at);
                     if (SourcePath p; read_source_path(reader, item, p)) paths.push_back(p);
                   }
                   s.weighted &= paths.size() > 1;
                 },
             .flow =
                 [&s, &paths] {
                   const auto flow = [&](const SourcePath& p) {
                     std::string more;
                     const auto add = [&](const char* name, const std::string& value) {
                       if (!value.empty()) more += std::string(", ") + name + ": " + value;
                     };
                     const auto quoted_or_none = [](const std::string& text) {
                       return text.empty() ? text : quote_yaml(text);
                     };
                     if (s.weighted || p.weight != 1) add("weight", number_text(p.weight));
                     add("source", quoted_or_none(p.source));
                     add("target", quoted_or_none(p.target));
                     add("prefix", quoted_or_none(p.prefix));
                     if (more.empty()) return quote_yaml(p.path);
                     if (p.path.empty()) return "{" + more.substr(2) + "}";
                     return "{path: " + quote_yaml(p.path) + more + "}";
                   };
                   std::string text;
                   for (const SourcePath& p : paths) text += (text.empty() ? "" : ", ") + flow(p);
                   const SourcePath plain{.path = paths.empty() ? "" : paths[0].path};
                   return paths.size() == 1 && paths[0] == plain ? text : "[" + text + "]";
                 },
             .missing = [&s] { return s.paths.empty() && (s.source.empty() || s.target.empty()); },
             .item = f,
             .most = kAnyNumber,
             .item_keys =
                 [](FieldVisitor& inner) {
                   SourcePath any;
                   describe(any, inner);
                 },
             .item_needs = {R"("path")", R"("source", "target")"}});
}

void describe_pairs(SourceConfig& s, FieldVisitor& v) {
  v.value(real("temperature", 1,
               "pairs: shares of several paths without weights are their sizes to the power 1 / "
               "this; 1 without `max_examples`: each pair once an epoch"),
          s.temperature);
  v.value(number("max_examples", 0, "pairs: a path counts as at most so many pairs; 0: no limit"),
          s.max_examples);
  v.value(
      fraction("bpe_dropout",
               "training data of pairs: probability with which each merge of byte-pair encoding "
               "is left out whenever it could be made, so that a text is tokenized differently "
               "each time"),
      s.bpe_dropout);
}

void describe_noise(SourceConfig& s, FieldVisitor& v) {
  Field masked = fraction(
      "mask_probability",
      "mlm, span_corruption, denoise, and labelled for the head lm of an encoder: fraction "
      "of the tokens that are masked; auto: 0.15, denoise: 0.3");
  masked.low_open = true;
  v.value(with_word(masked, "auto"), s.mask_probability);
  v.value(with_word(real("mean_span_length", 1,
                         "span_corruption, denoise: mean length of a masked span, in tokens; "
                         "auto: 3"),
                    "auto"),
          s.mean_span_length);
  v.value(flag("whole_words",
               "mlm, denoise: mask all tokens of a word together, which goes up to the next space, "
               "of WordPiece to the next token without ##; denoise: spans count words"),
          s.whole_words);
  v.value(share("permute_sentences", "denoise: share of the sentences that change places"),
          s.permute_sentences);
  v.value(share("rotate",
                "denoise: share of the sequences that are rotated to begin with any of their "
                "tokens"),
          s.rotate);
  v.value(share("delete", "denoise: share of the tokens between spans that are deleted"),
          s.delete_tokens);
  v.value(
      share("mask_tokens", "denoise: share of the tokens between spans that become a mask each"),
      s.mask_tokens);
}

void describe(FimConfig& f, FieldVisitor& v) {
  v.value(share("rate",
                "fill in the middle: share of the documents that become prefix, suffix, middle "
                "behind a special token each; their last three tokens give way"),
          f.rate);
  v.value(share("spm_rate", "share of these that become suffix, prefix, middle instead"),
          f.spm_rate);
  v.value(number("prefix", -1,
                 "id of the special token; -1: the tokenizer's, by the names that Qwen, StarCoder, "
                 "SantaCoder, Code Llama or DeepSeek-Coder have for it"),
          f.prefix);
  v.value(number("middle", -1, "as `prefix`"), f.middle);
  v.value(number("suffix", -1, "as `prefix`"), f.suffix);
}

void describe(SourceConfig& s, FieldVisitor& v) {
  std::vector<std::string_view> types;
  for (const SourceType& t : source_types()) types.push_back(t.name);
  v.value(
      required(choice(
          "type", types,
          "tokens: token files (llm.c, Megatron); text: text, tokenized on the fly; pairs: "
          "parallel text; mlm: masked language modeling on token files or text; span_corruption: "
          "T5's objective on token files or text; denoise: BART's; prefix_lm: the beginning of a "
          "text is the source or prompt, the rest the target; labelled: texts with labels for "
          "heads of types classify, tag and regress, or pairs of texts for embed; chat: "
          "conversations, of which a decoder learns what the assistant wrote")),
      s.type);
  v.value(with_word(text("source", "pairs: text file with one source sentence per line"), "none"),
          s.source);
  v.value(with_word(text("target", "pairs: text file with one target sentence per line"), "none"),
          s.target);
  describe_paths(s, v);
  describe_pairs(s, v);
  describe_noise(s, v);
  v.value(flag("shuffle",
               "training data: shuffle the samples in every epoch, as a function of the seed"),
          s.shuffle);
  v.value(
      option("documents",
             "tokens, text, mlm: joined: attention crosses document boundaries; separate: "
             "attention and labels stay within a document, which ends at `document_end` and where "
             "Megatron's index says so; packed (tokens, text): as separate, with documents whole "
             "that fit into `train.seq_len`, several in a sequence by best fit"),
      s.documents);
  v.value(
      number("document_end", -1,
             "documents separate and packed, fim: the id that ends a document; -1: the tokenizer's "
             "end-of-document id (`bytes`: 257)"),
      s.document_end);
  v.value(
      flag("next_sentence",
           "mlm: make sequences [CLS] A [SEP] B [SEP] from the two halves of a sample; half of the "
           "time, B is taken from another sample, which `model.next_sentence` learns to detect"),
      s.next_sentence);
  v.section(section("fim", "tokens, text: fill in the middle"),
            [&s](FieldVisitor& inner) { describe(s.fim, inner); });
  v.value(text("field", "field of a `.jsonl` line that holds the text"), s.field);
  v.value(text("text",
               "labelled: the column of the text, by the header of a file with tabs between "
               "columns, or a field of `.jsonl` lines"),
          s.text);
  v.value(with_word(text("text_pair",
                         "labelled: the column of a second text; of embed the document that "
                         "answers `text`"),
                    "none"),
          s.text_pair);
  v.value(with_word(text("negative",
                         "labelled, for embed: the column of a document that does not answer "
                         "`text`, compared with every query of the group"),
                    "none"),
          s.negative);
  v.value(
      text("label",
           "labelled: the column of the label: a class, which is one of the head's `labels` or "
           "a number from 0; of tag one for each word of the text; of regress a number. Several "
           "heads read the columns of their names, where a label may be missing"),
      s.label);
  v.value(text("messages", "chat: the field of a line that holds its list of messages"),
          s.messages);
  v.value(text("template",
               "chat: `auto`, the chat template of the tokenizer; `chatml`; or the file of a "
               "template"),
          s.chat_template);
}

}  // namespace

void describe(DataConfig& d, FieldVisitor& v) {
  v.section(required(section("train", "'type' and 'path' of the training data")),
            [&d](FieldVisitor& s) { describe(d.train, s); });
  v.section(
      section("validation", "validation data, with the keys of `train`"),
      [&d](FieldVisitor& s) {
        if (!d.validation) d.validation.emplace();
        describe(*d.validation, s);
      },
      !d.validation);
  v.value(
      with_word(
          text(
              "tokenizer",
              "`bytes`, a `tokenizer.json`, a SentencePiece `.model`, or a directory with "
              "`tokenizer.json`, with MarianMT's "
              "`source.spm`, `target.spm` and `vocab.json`, or with `vocab.json` and `merges.txt`; "
              "auto: that of `model.init`, else `bytes`; what needs special ids of token files "
              "that "
              "`bytes` did not make has to name theirs"),
          "auto"),
      d.tokenizer);
  v.value(with_word(text("source_tokenizer",
                         "pairs, with `model.source_vocab_size`: the tokenizer of the source side; "
                         "auto: `tokenizer`"),
                    "auto"),
          d.source_tokenizer);
  v.value(option("add_begin",
                 "type text: put the tokenizer's begin-of-text id before each document, in "
                 "training and evaluation; auto: where the tokenizer puts one before a text"),
          d.add_begin);
  v.value(with_word(option("restart_positions",
                           "count the positions of a learned or sinusoidal encoding from the start "
                           "of each document (the others depend on distances alone); auto: of "
                           "chats, and where `documents` are packed"),
                    "auto"),
          d.restart_positions);
}

}  // namespace tfm::config
