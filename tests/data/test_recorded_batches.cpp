// What the batches of many configurations hold: the same ids for the same files, keys and seed, as
// long as no change is meant.
#include <gtest/gtest.h>

#include <functional>

#include "data/batch_shapes.h"
#include "data/run_data.h"
#include "support/data_files.h"
#include "support/recorded.h"

namespace tfm {
namespace {

using test::put;
using test::TemporaryFolder;

constexpr const char* kFixturesOfData = TFM_SOURCE_DIR "/tests/fixtures/";

// How a case names a tokenizer.
std::string file_of(const char* path) { return std::filesystem::path(path).filename(); }

std::vector<std::int64_t> digits(std::uint64_t seed, int count, std::int64_t below) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    all.push_back(static_cast<std::int64_t>((seed >> 33) % static_cast<std::uint64_t>(below)));
  }
  return all;
}

// Sentences of words of up to three parts, some of two bytes a letter.
std::string sentences(std::uint64_t seed, int count, int longest) {
  const char* parts[] = {"an", "ber", "\xC3\xB6l", "cu", "dor", "ei", "fu", "gh", "ha", "is"};
  const char* ends[] = {". ", "! ", "? ", "; "};
  std::string text;
  for (int s = 0; s < count; ++s) {
    const auto drawn = digits(seed + static_cast<std::uint64_t>(s), 2 + 4 * longest, 1000);
    const std::int64_t words = 1 + drawn[0] % longest;
    for (std::int64_t w = 0; w < words; ++w) {
      const auto at = static_cast<std::size_t>(2 + 3 * w);
      for (std::int64_t p = 0; p <= drawn[at] % 3; ++p)
        text += parts[drawn[at + static_cast<std::size_t>(p) % 3] % 10];
      if (w + 1 < words) text += ' ';
    }
    text += ends[drawn[1] % 4];
  }
  return text;
}

class RecordedBatches : public testing::Test {
 protected:
  RecordedBatches() {
    std::string text, jsonl, left, right, labels, words, vectors, chats;
    for (std::uint64_t d = 0; d < 30; ++d) {
      const std::string document = sentences(100 * d, 1 + static_cast<int>(d % 4), 6);
      text += document + (d % 5 == 2 ? "\n\n" : "\n");
      jsonl += R"({"text": ")" + document + R"(", "body": "b)" + std::to_string(d) + "\"}\n";
      if (d == 7) jsonl += "{\"text\": \"\", \"body\": \"\"}\n";
      left += d == 4 ? "\n" : sentences(7000 + 10 * d, 1, 4) + "\n";
      right += d == 11 ? "\n" : sentences(9000 + 10 * d, 1, 5) + "\n";
      labels += sentences(3000 + 10 * d, 1, 4) + "\t" + sentences(4000 + 10 * d, 1, 3) + "\t" +
                std::to_string(d % 3) + "\t" + std::to_string(0.25 * static_cast<double>(d)) + "\n";
      words += "ab O\ncd B-X\nef I-X\n" + std::string(d % 3 == 0 ? "gh O\n\n" : "\n");
      vectors += sentences(5000 + 10 * d, 1, 4) + "\t" + sentences(6000 + 10 * d, 1, 4) + "\t" +
                 sentences(6500 + 10 * d, 1, 4) + "\n";
      chats += R"({"messages": [)";
      for (std::uint64_t turn = 0; turn <= d % 3; ++turn)
        chats += std::string(turn ? ", " : "") + R"({"role": "user", "content": ")" +
                 sentences(50 * d + turn, 1, 3) + R"("}, {"role": "assistant", "content": ")" +
                 sentences(60 * d + turn, 1, 3) + "\"}";
      chats += "]}\n";
    }
    const auto half = [](const std::string& lines) {  // of 30
      std::size_t end = 0;
      for (int i = 0; i < 15; ++i) end = lines.find('\n', end) + 1;
      return lines.substr(0, end);
    };
    const std::pair<const char*, std::string> files[] = {
        {"text.txt", text},
        {"more.txt", sentences(1, 40, 5)},
        {"rows.jsonl", jsonl},
        {"left.txt", left},
        {"right.txt", right},
        {"left2.txt", half(left)},
        {"right2.txt", half(right)},
        {"labels.tsv", "text\tother\tlabel\tscore\n" + labels},
        {"words.conll", words},
        {"vectors.tsv", "query\tanswer\twrong\n" + vectors},
        {"chats.jsonl", chats},
        {"t.jinja",
         "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
         "{{ m.content }};{% endgeneration %}{% else %}>{{ m.content }}{% endif %}{% endfor %}"}};
    for (const auto& [name, content] : files) put(folder_ / name, content);
  }

  void record(const std::string& what, const data::Dataset& data,
              const std::vector<nn::BatchShape>& shapes, bool endless) {
    std::vector<std::int64_t> indices{0, 1, 2, data.batches() - 1};
    if (endless) indices.insert(indices.end(), {data.batches(), 2 * data.batches() + 1});
    lines_ << what << " has " << data.batches() << "\n";
    for (const std::int64_t index : indices) {
      if (index < 0 || (!endless && index >= data.batches())) continue;
      const auto batch = data.batch(index);
      const nn::BatchShape& shape = shapes.at(batch.shape);
      lines_ << what << " " << index << ": " << batch.sequences << " x " << shape.length << ","
             << shape.source_length;
      std::map<Field, std::vector<std::int32_t>> values;
      BatchFields fields;
      for (const FieldInfo& f : kFields) {
        values[f.field].assign(static_cast<std::size_t>(batch.sequences * shape.width(f.field)),
                               f.padding);
        fields[f.field] = values[f.field];
      }
      data.fill(index, 0, batch.sequences, fields);
      for (const FieldInfo& f : kFields) {
        const auto& v = values[f.field];
        if (std::ranges::all_of(v, [&](std::int32_t x) { return x == f.padding; })) continue;
        lines_ << " " << f.name << " " << test::digest(v);
        if (index < 2) {
          lines_ << " [";
          for (std::int64_t i = 0; i < shape.width(f.field); ++i)
            lines_ << (i ? " " : "") << v[static_cast<std::size_t>(i)];
          lines_ << "]";
        }
      }
      lines_ << "\n";
    }
  }

  std::string without_folders(const std::string& text) const {
    return test::without(test::without(text, folder_.str() + "/"), kFixturesOfData);
  }

  // `keys`: more of the configuration, in which FOLDER and FIXTURES stand for their paths.
  void record(const std::string& what, const std::string& model, std::string source,
              std::vector<std::string> keys = {}) {
    SCOPED_TRACE(what);
    const auto filled = [&](std::string text) {
      for (const auto& [name, path] :
           {std::pair{"FOLDER", folder_.str() + "/"}, {"FIXTURES/", std::string(kFixturesOfData)}})
        for (std::size_t at; (at = text.find(name)) != text.npos;)
          text.replace(at, std::string(name).size(), path);
      return text;
    };
    for (std::string& key : keys) key = filled(key);
    const bool of_training_alone = std::ranges::any_of(
        std::array{"shuffle: true", "temperature", "max_examples", "bpe_dropout", "chatml"},
        [&](const char* key) { return source.find(key) != source.npos; });
    try {
      config::Config c = config::parse_config(
          filled(
              "model: {d_model: 32, n_heads: 2, n_layers: 1, vocab_size: 1200, max_seq_len: 64, " +
              model +
              "}\ntrain: {steps: 5, seq_len: 24, "
              "global_batch_size: 4, seed: 5}\ndata: {train: {" +
              source + "}" + (of_training_alone ? "" : ", validation: {" + source + "}") + "}\n"),
          "config.yaml", keys);
      config::resolve_for_ranks(c, 1);
      const data::RunData run(c);
      const auto shapes = data::batch_shapes(c);
      lines_ << what << ": " << run.tokens << " tokens";
      for (const std::string& note : run.notes) lines_ << "; " << without_folders(note);
      lines_ << "\n";
      record(what, *run.train, shapes, true);
      if (run.validation) record(what + ", validation", *run.validation, shapes, false);
    } catch (const Error& e) {
      std::string text = e.what();
      // The column depends on the folder's name, as does the next line.
      if (text.starts_with("config.yaml:")) text.erase(0, text.find(' ') + 1);
      lines_ << what << ": refused: " << without_folders(text.substr(0, text.find('\n'))) << "\n";
    }
  }

  TemporaryFolder folder_;
  std::ostringstream lines_;
};

constexpr const char* kBytesWanted = "data.tokenizer=bytes";

TEST_F(RecordedBatches, OfTextsAndTokens) {
  const std::string decoder = "family: decoder, position: rope";
  for (const char* shuffle : {"false", "true"})
    for (const char* documents : {"joined", "separate", "packed"})
      for (const char* path :
           {"FOLDERtext.txt", "FOLDERrows.jsonl", "[FOLDERtext.txt, FOLDERmore.txt]",
            "[{path: FOLDERtext.txt, weight: 3}, {path: FOLDERmore.txt, weight: 1.5}, {path: "
            "FOLDERrows.jsonl}]"})
        record(std::string("text ") + path + " " + documents + (*shuffle == 't' ? " shuffled" : ""),
               decoder,
               std::string("type: text, path: ") + path + ", documents: " + documents +
                   ", shuffle: " + shuffle,
               {kBytesWanted});
  record("field", decoder, "type: text, path: FOLDERrows.jsonl, field: body", {kBytesWanted});
  for (const char* add : {"true", "false", "auto"})
    for (const char* tokenizer : {"bytes", "FIXTURES/tokenizers/llama2.json",
                                  "FIXTURES/tokenizers/gpt2.json", "FIXTURES/tokenizers/bert.json"})
      record(std::string("add_begin ") + add + " " + file_of(tokenizer), decoder,
             "type: text, path: FOLDERtext.txt, documents: separate",
             {std::string("data.tokenizer=") + tokenizer, std::string("data.add_begin=") + add});
  for (const char* fim : {"rate: 1", "rate: 1, spm_rate: 0", "rate: 1, spm_rate: 1", "rate: 0.5",
                          "rate: 0.9, spm_rate: 0.1"})
    for (const char* documents : {"joined", "separate", "packed"})
      record(std::string("fim ") + fim + " " + documents, decoder,
             std::string("type: text, path: FOLDERrows.jsonl, documents: ") + documents +
                 ", document_end: 10, shuffle: true, fim: {prefix: 1, middle: 2, suffix: 3, " +
                 fim + "}",
             {kBytesWanted});
  record("short", decoder, "type: text, path: FOLDERtext.txt", {kBytesWanted, "train.seq_len=2"});
  record("one sample", decoder, "type: text, path: FOLDERtext.txt",
         {kBytesWanted, "train.seq_len=1000"});
  test::expect_recorded("batches_text", lines_.str());
}

TEST_F(RecordedBatches, OfMaskedTexts) {
  for (const char* position : {"rope", "learned"})
    for (const char* keys : {"", "mask_probability: 0.5", "whole_words: true",
                             "shuffle: true, whole_words: true, mask_probability: 0.3",
                             "documents: separate", "documents: packed", "next_sentence: true",
                             "next_sentence: true, shuffle: true, whole_words: true"})
      for (const char* tokenizer :
           {"bytes", "FIXTURES/tokenizers/bert.json", "FIXTURES/tokenizers/bart.json"})
        record(std::string("mlm ") + position + " " + keys + " " + file_of(tokenizer),
               std::string("family: encoder, type_vocab_size: 2, position: ") + position +
                   (std::string(keys).find("next_sentence") == std::string::npos
                        ? ""
                        : ", next_sentence: true"),
               std::string("type: mlm, path: FOLDERtext.txt, ") + keys,
               {std::string("data.tokenizer=") + tokenizer});
  const std::string both = "family: encoder_decoder, position: rope";
  for (const char* keys : {"", "mask_probability: 0.4", "mean_span_length: 5",
                           "mask_probability: 0.3, mean_span_length: 1", "shuffle: true"}) {
    record(std::string("span_corruption ") + keys, both,
           std::string("type: span_corruption, path: FOLDERtext.txt, ") + keys, {kBytesWanted});
    record(std::string("span_corruption of t5 ") + keys, both,
           std::string("type: span_corruption, path: FOLDERtext.txt, ") + keys,
           {"data.tokenizer=FIXTURES/tokenizers/t5.json"});
  }
  for (const char* keys :
       {"", "whole_words: true", "permute_sentences: 0", "permute_sentences: 0.5, shuffle: true",
        "rotate: 1", "rotate: 0.5", "delete: 0.2", "mask_tokens: 0.2",
        "delete: 0.1, mask_tokens: 0.3, rotate: 0.3, mean_span_length: 2", "mask_probability: 0.6"})
    for (const char* tokenizer : {"bytes", "FIXTURES/tokenizers/bart.json"})
      record(std::string("denoise ") + keys + " " + file_of(tokenizer), both,
             std::string("type: denoise, path: FOLDERtext.txt, ") + keys,
             {std::string("data.tokenizer=") + tokenizer});
  for (const char* family : {"encoder_decoder", "decoder"})
    for (const char* keys : {"", "shuffle: true"})
      record(std::string("prefix_lm ") + family + " " + keys,
             std::string("position: rope, family: ") + family,
             std::string("type: prefix_lm, path: FOLDERtext.txt, ") + keys, {kBytesWanted});
  test::expect_recorded("batches_masked", lines_.str());
}

TEST_F(RecordedBatches, OfPairsAndRows) {
  const std::string both = "family: encoder_decoder, position: rope";
  for (const char* keys : {"", "shuffle: true", "bpe_dropout: 0.3"})
    for (const char* tokens : {"0", "200"})
      for (const char* tokenizer :
           {"bytes", "FIXTURES/tokenizers/gpt2.json", "FIXTURES/tokenizers/t5.json"})
        record(std::string("pairs ") + keys + " " + tokens + " " + file_of(tokenizer), both,
               std::string("type: pairs, source: FOLDERleft.txt, target: FOLDERright.txt, ") + keys,
               {std::string("data.tokenizer=") + tokenizer,
                *tokens == '0' ? "train.seed=5" : "train.global_batch_tokens=400"});
  const std::string two =
      "[{source: FOLDERleft.txt, target: FOLDERright.txt}, {source: FOLDERleft2.txt, target: "
      "FOLDERright2.txt, prefix: '>x '}]";
  const std::string weighted =
      "[{source: FOLDERleft.txt, target: FOLDERright.txt, weight: 1}, {source: FOLDERleft2.txt, "
      "target: FOLDERright2.txt, weight: 2, prefix: '>x '}]";
  for (const char* keys : {"", "shuffle: true", "temperature: 2", "temperature: 2, shuffle: true",
                           "max_examples: 10", "max_examples: 20, temperature: 3, shuffle: true"})
    record(std::string("several pairs ") + keys, both, "type: pairs, path: " + two + ", " + keys,
           {kBytesWanted});
  record("weighted pairs", both, "type: pairs, shuffle: true, path: " + weighted, {kBytesWanted});
  for (const char* family : {"encoder", "decoder", "encoder_decoder"})
    for (const char* shuffle : {"", ", shuffle: true"})
      for (const char* tokenizer : {"bytes", "FIXTURES/tokenizers/bert.json"}) {
        const std::string model = std::string("position: learned, type_vocab_size: ") +
                                  (family == std::string("encoder") ? "2" : "0") +
                                  ", family: " + family + ", heads: ";
        const std::vector<std::string> more{std::string("data.tokenizer=") + tokenizer};
        const std::string name = std::string(" ") + family + shuffle + " " + file_of(tokenizer);
        record("classify" + name, model + "[{type: classify, classes: 3}]",
               std::string("type: labelled, path: FOLDERlabels.tsv") + shuffle, more);
        record("pair of texts" + name, model + "[{type: classify, classes: 3}]",
               std::string("type: labelled, path: FOLDERlabels.tsv, text_pair: other") + shuffle,
               more);
        record("regress" + name, model + "[{type: regress}]",
               std::string("type: labelled, path: FOLDERlabels.tsv, label: score") + shuffle, more);
        record("tag" + name, model + "[{type: tag, labels: [O, B-X, I-X]}]",
               std::string("type: labelled, path: FOLDERwords.conll") + shuffle, more);
        record("lm" + name, model + "[{type: classify, classes: 3}, {type: lm}]",
               std::string("type: labelled, path: FOLDERlabels.tsv") + shuffle, more);
        record(
            "embed" + name, model + "[{type: embed}]",
            std::string("type: labelled, path: FOLDERvectors.tsv, text: query, text_pair: answer") +
                shuffle,
            more);
        record("negatives" + name, model + "[{type: embed}]",
               std::string("type: labelled, path: FOLDERvectors.tsv, text: query, text_pair: "
                           "answer, negative: wrong") +
                   shuffle,
               {more[0], "train.global_batch_size=6"});
      }
  for (const char* keys : {", template: FOLDERt.jinja", ", template: FOLDERt.jinja, shuffle: true",
                           ", template: chatml"})
    for (const char* length : {"24", "64", "200"})
      record(std::string("chat") + keys + " " + length, "family: decoder, position: rope",
             std::string("type: chat, path: FOLDERchats.jsonl") + keys,
             {kBytesWanted, std::string("train.seq_len=") + length});
  test::expect_recorded("batches_rows", lines_.str());
}

}  // namespace
}  // namespace tfm
