// tfm-data: text to token files and back.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "core/version.h"
#include "data/prepare.h"
#include "data/source.h"
#include "io/file.h"
#include "telemetry/live_line.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace tfm;

constexpr std::string_view help = R"(usage: tfm-data COMMAND [OPTIONS]

  prepare --input FILE... --tokenizer T --output OUT.bin [--format llmc|megatron] [--append-eod] [--field NAME]
      Tokenizes text into a token file: llm.c's OUT.bin or Megatron's OUT.bin and OUT.idx. A .jsonl file holds one
      document per line, in the string field NAME (default: text); any other file is one document. Files may be
      compressed with gzip or Zstandard. --append-eod appends an end-of-document id (bytes: 257) to every document.
  encode --tokenizer T [--special-tokens]
      Prints the ids of each line of standard input; --special-tokens also prints the special tokens that the
      tokenizer adds around a text, such as [CLS] and [SEP].
  decode --tokenizer T
      Prints the text of each line of ids of standard input.
  train-tokenizer --input FILE... --vocab-size N --output tokenizer.json [--special TOKEN...] [--field NAME]
      Trains a byte-level BPE tokenizer with GPT-2's pattern. Special tokens (default: <|endoftext|>) get the first ids.
  info FILE [--seq-len N]
      Prints the header and the first ids of a token file; with --seq-len also the number of samples of N + 1 tokens
      and of the unused tokens at the end.
  verify FILE [--tokenizer T]
      Checks the whole file; with a tokenizer, also that every id is in its vocabulary (bytes: below 260).
  --help, --version

  T is `bytes`, a tokenizer.json, a SentencePiece .model, or a directory with tokenizer.json, with MarianMT's
  source.spm, target.spm and vocab.json, or with vocab.json and merges.txt.
  A token FILE is an llm.c .bin or a Megatron .bin with its .idx.

Exit codes: 0 done, 1 failed, 2 bad command line, 3 bad input, 75 I/O error.
)";

[[noreturn]] void usage(const std::string& message) {
  throw Error(ExitCode::usage, message + "; see tfm-data --help");
}

[[noreturn]] void unknown(const std::string& kind, const std::string& word,
                          const std::vector<std::string_view>& known) {
  const std::string_view near = nearest(word, known, 3);
  usage("unknown " + kind + " " + in_quotes(word) +
        (near.empty() ? "; expected " + join(known) : "; did you mean " + std::string(near) + "?"));
}

struct Command {
  std::vector<std::string_view> options;  // with a value
  std::vector<std::string_view> flags;
  std::size_t files = 0;  // positional arguments
  int (*run)(const struct Arguments&) = nullptr;
};

struct Arguments {
  std::map<std::string_view, std::vector<std::string>> values;
  std::vector<std::string> files;

  bool has(std::string_view name) const { return values.contains(name); }
  const std::string& one(std::string_view name) const {
    const auto found = values.find(name);
    if (found == values.end()) usage("option " + std::string(name) + " is missing");
    if (found->second.size() != 1)
      usage("option " + std::string(name) + ": expected one value, got " +
            std::to_string(found->second.size()));
    return found->second.front();
  }
};

Arguments parse(const Command& command, const std::vector<std::string>& words) {
  Arguments result;
  std::vector<std::string_view> known = command.options;
  known.insert(known.end(), command.flags.begin(), command.flags.end());
  known.insert(known.end(), {"--help", "--version"});
  std::vector<std::string>* values = nullptr;  // of the option that may take another value
  bool many = false;                           // the option takes any number of values
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-') {
      const bool taken = values && (values->empty() || many);
      if (!taken && result.files.size() == command.files)
        usage("unexpected argument " + in_quotes(word));
      (taken ? *values : result.files).push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto at = std::find(known.begin(), known.end() - 2, name);
    if (at == known.end() - 2) unknown("option", name, known);
    const bool flag = at - known.begin() >= static_cast<std::ptrdiff_t>(command.options.size());
    many = name == "--input" || name == "--special";
    if (result.has(name) && !many) usage("option " + name + " is given twice");
    if (flag && equals != word.npos) usage("option " + name + " does not take a value");
    std::vector<std::string>& list = result.values[*at];
    if (equals != word.npos) list.push_back(word.substr(equals + 1));
    values = flag ? nullptr : &list;
  }
  for (std::string_view option : command.options)
    if (result.has(option) && result.values[option].empty())
      usage("option " + std::string(option) + " needs a value");
  if (result.files.size() != command.files) usage("expected a file");
  return result;
}

std::int64_t whole_number(const Arguments& a, std::string_view option) {
  const std::string& text = a.one(option);
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size())
    usage("option " + std::string(option) + ": expected a whole number, got " + in_quotes(text));
  return value;
}

// `files`: what is written.
void check_output(const Arguments& a, const std::vector<std::string>& files) {
  if (!a.has("--input")) usage("option --input is missing");
  std::error_code ignored;
  for (const std::string& input : a.values.at("--input"))
    for (const std::string& file : files)
      for (const std::string& written : {file, io::temporary_of(file)})
        if (std::filesystem::equivalent(input, written, ignored))
          usage("--output " + in_quotes(a.one("--output")) + ": " + written +
                " is also an input; expected another file");
}

int prepare(const Arguments& a) {
  const std::string format = a.has("--format") ? a.one("--format") : "llmc";
  const auto known = config::value_of<data::TokenFormat>(format);
  if (!known) unknown("format", format, {"llmc", "megatron"});
  const std::string output = a.one("--output");
  std::vector<std::string> files{output};
  if (*known == data::TokenFormat::megatron)
    files.push_back(std::filesystem::path(output).replace_extension(".idx"));
  check_output(a, files);
  data::PrepareOptions options{a.values.at("--input"), a.one("--tokenizer"), output};
  options.format = *known;
  options.append_eod = a.has("--append-eod");
  if (a.has("--field")) options.field = a.one("--field");
  const data::Prepared result = data::prepare_tokens(options);
  std::cout << options.output << ": " << result.tokens << " tokens, " << result.documents
            << " documents";
  if (result.empty > 0) std::cout << "; " << result.empty << " without text were skipped";
  std::cout << '\n';
  return 0;
}

int encode(const Arguments& a) {
  const auto tokenizer = tokenizer::load_tokenizer(a.one("--tokenizer"));
  const bool specials = a.has("--special-tokens");
  std::string out;
  for (std::string line; std::getline(std::cin, line);) {
    out.clear();
    const auto ids = specials ? tokenizer->encode_with_specials(line) : tokenizer->encode(line);
    for (std::int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
    std::cout << out << '\n';
  }
  return 0;
}

int decode(const Arguments& a) {
  const auto tokenizer = tokenizer::load_tokenizer(a.one("--tokenizer"));
  std::int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const std::string where = "standard input:" + std::to_string(++number) + ": ";
    std::vector<std::int32_t> ids;
    for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != line.npos;) {
      const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
      const auto [stop, error] =
          std::from_chars(line.data() + at, line.data() + end, ids.emplace_back());
      if (error != std::errc() || stop != line.data() + end)
        throw Error(ExitCode::input, where + "expected ids separated by spaces, got " +
                                         in_quotes(line.substr(at, end - at)));
      at = end;
    }
    try {
      std::cout << tokenizer->decode(ids) << '\n';
    } catch (const Error& e) {
      throw Error(e.code(), where + e.what());
    }
  }
  return 0;
}

int train(const Arguments& a) {
  check_output(a, {a.one("--output")});
  tokenizer::TrainTokenizerOptions options{a.values.at("--input"), a.one("--output")};
  options.vocab_size = whole_number(a, "--vocab-size");
  options.specials =
      a.has("--special") ? a.values.at("--special") : std::vector<std::string>{"<|endoftext|>"};
  if (a.has("--field")) options.field = a.one("--field");
  const std::int64_t tokens = tokenizer::train_tokenizer(options);
  std::cout << options.output << ": " << tokens << " tokens"
            << (tokens < options.vocab_size ? "; no pair of the text is left to merge\n" : "\n");
  return 0;
}

int info(const Arguments& a) {
  const data::TokenFile file(a.files[0]);
  const data::TokenFileInfo& i = file.info();
  std::vector<std::int32_t> first(
      static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 16)));
  file.read(0, first);
  std::cout << "file: " << file.name() << "\nformat: " << i.format << "\ntokens: " << i.tokens
            << "\nid type: " << data::name_of(i.type) << '\n';
  if (i.sequences)
    std::cout << "sequences: " << *i.sequences << "\ndocuments: " << *i.documents << '\n';
  if (a.has("--seq-len")) {
    const std::int64_t length = whole_number(a, "--seq-len");
    if (length < 1) usage("option --seq-len: expected at least 1");
    const data::SampleCount count = data::count_samples(file.size(), length);
    std::cout << "samples of " << length << " + 1 tokens: " << count.samples
              << "\nunused tokens: " << count.left_out << '\n';
  }
  std::cout << "first ids:";
  for (std::int32_t id : first) std::cout << ' ' << id;
  std::cout << '\n';
  return 0;
}

// What ids must be below; of bytes also their special ids may stand in a file.
std::int64_t limit_of_ids(const Arguments& a) {
  if (!a.has("--tokenizer")) return std::int64_t{1} << 31;
  const std::string& spec = a.one("--tokenizer");
  return tokenizer::is_bytes(spec) ? tokenizer::ByteSpecials::first_sentinel
                                   : tokenizer::load_tokenizer(spec)->vocab_size();
}

int verify(const Arguments& a) {
  const data::TokenFile file(a.files[0]);
  const std::int32_t largest = data::check_all_ids(file, limit_of_ids(a));
  const std::size_t bytes =
      static_cast<std::size_t>(file.size() * data::bytes_of(file.info().type));
  std::cout << file.name() << ": ok, " << file.size() << " tokens, largest id " << largest
            << ", XXH3-128 of the ids " << io::Checksum::of({file.ids(), bytes}) << '\n';
  return 0;
}

int run(const std::vector<std::string>& words) {
  static const std::map<std::string_view, Command> commands = {
      {"prepare",
       {{"--input", "--tokenizer", "--output", "--format", "--field"},
        {"--append-eod"},
        0,
        prepare}},
      {"encode", {{"--tokenizer"}, {"--special-tokens"}, 0, encode}},
      {"decode", {{"--tokenizer"}, {}, 0, decode}},
      {"train-tokenizer",
       {{"--input", "--vocab-size", "--output", "--special", "--field"}, {}, 0, train}},
      {"info", {{"--seq-len"}, {}, 1, info}},
      {"verify", {{"--tokenizer"}, {}, 1, verify}}};
  const auto asked = [&](const char* option) {
    return std::find(words.begin(), words.end(), option) != words.end();
  };
  if (asked("--help") || asked("-h")) return std::cout << help, 0;
  if (asked("--version")) return std::cout << "tfm-data " << version << '\n', 0;
  if (words.empty()) usage("expected a command");
  const auto command = commands.find(words[0]);
  if (command == commands.end())
    unknown("command", words[0],
            {"prepare", "encode", "decode", "train-tokenizer", "info", "verify"});
  return command->second.run(parse(command->second, {words.begin() + 1, words.end()}));
}

}  // namespace

int main(int count, char** words) try {
  std::ios::sync_with_stdio(false);
  telemetry::show_progress();
  const int code = run({words + 1, words + count});
  if (!std::cout.flush()) throw Error(ExitCode::retryable, "standard output cannot be written");
  return code;
} catch (const Error& e) {
  std::cout.flush();
  std::cerr << "tfm-data: error: " << e.what() << '\n';
  return static_cast<int>(e.code());
} catch (const std::exception& e) {
  std::cerr << "tfm-data: error: " << e.what() << '\n';
  return static_cast<int>(ExitCode::failed);
}
