// tfm-eval: what a model scores on text it was not trained on, at any layout.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numbers>

#include "data/run_data.h"
#include "data/special_ids.h"
#include "inference/embeddings.h"
#include "inference/evaluation.h"
#include "inference/initial_weights.h"
#include "inference/predictions.h"
#include "inference/text_coverage.h"
#include "inference/text_format.h"
#include "launch/programs.h"
#include "launch/support/translation.h"
#include "text/translation_scores.h"

namespace {

using namespace tfm;

constexpr const char* kHelp =
    R"(usage: [mpirun -np N] tfm-eval MODEL_DIR [section.key=value ...] [options]
  MODEL_DIR          a checkpoint (step-00000500, best), a directory of checkpoints or the folder
                     of a run (uses the latest), or a Hugging Face directory
data (default: the run's validation data):
  --text FILE        text or JSON lines
  --tokens FILE.bin  token file
  --source FILE --target FILE
                     parallel text for an encoder-decoder: line k translates line k
  --labelled FILE    texts with labels, as of data.train.type labelled, in the columns or fields
                     that the run read; data.train.text=NAME data.train.label=NAME (also text_pair
                     and negative) name others
  --tokenizer T      tokenizer to use instead of the model's own
translation (for bleu and chrf):
  --beam N           beam size (default: 1, greedy)
  --length-penalty X
                     rank hypotheses by sum of log-probabilities / tokens^X (default: 1)
  --max-tokens N     maximum length of a translation (default: twice the source length plus 50)
output:
  --json FILE        also write the results as JSON
  --help, --version
devices:
  parallel.tensor=N  tensor-parallel size (default: the most ranks that can share the heads);
                     data is split over the replicas
  parallel.expert=N  ranks that share the experts of a layer (default: 1)
  device=cuda        run on GPUs (default: on CPUs, regardless of the training device)
Results: loss, the mean negative log-likelihood of the labels without label smoothing, and with
next sentences the mean of theirs on top; perplexity, exp of the first of these; accuracy, the
fraction of labels with the highest logit; tokens, the number of labels; of a text that a
decoder predicts, bits_per_byte, and word_perplexity by words between white space; bleu and chrf
of the translations, with sacrebleu's defaults. Of labelled data, with _NAME behind each where
there are several heads: of classes accuracy, f1 (of class 1 where there are two, else the mean
of all) and mcc, Matthews' correlation coefficient; of tagged words accuracy and f1, of entities
where classes are named O and B-..., I-...; of numbers pearson and spearman, and the loss is the
mean squared error. Of pairs of texts recall_at_1, recall_at_10 and mrr: of each query, where
its document is among those of all, the nearest first; loss and accuracy compare it with those
of its batch. The first token of a text and the tokens after the last whole window are no
labels, and their bytes and words do not count. The labels of a decoder are next tokens in
windows of train.seq_len; of an encoder, masked tokens, the same in every run; of an
encoder-decoder, the tokens of the target.
)";

constexpr std::int64_t kPairTokens = 8192;  // of a batch

bool names_data(const launch::Arguments& args) {
  return args.has("--text") || args.has("--tokens") || args.has("--source") ||
         args.has("--target") || args.has("--labelled");
}

// What to evaluate on, from the options or the run.
config::SourceConfig source_of(const launch::Arguments& args, const config::Config& config) {
  const bool pairs = args.has("--source") || args.has("--target");
  if (pairs + args.has("--text") + args.has("--tokens") + args.has("--labelled") > 1)
    throw Error(ExitCode::usage,
                "more than one kind of data; expected --text, --tokens, --labelled, or --source "
                "with --target");
  if (pairs) {
    if (!config.model.translates())
      throw Error(ExitCode::usage, "--source and --target need a model of family encoder_decoder");
    if (!args.has("--source") || !args.has("--target"))
      throw Error(ExitCode::usage, "only one of --source and --target is given; expected both");
    config::SourceConfig c;
    c.type = "pairs";
    c.source = args.get("--source"), c.target = args.get("--target");
    return c;
  }
  if (!names_data(args)) {
    if (!config.data.validation)
      throw Error(ExitCode::usage,
                  "the run has no data.validation; give the data with --text, --tokens, "
                  "--labelled, or --source and --target");
    return *config.data.validation;
  }
  if (args.has("--labelled")) {
    if (config.model.labelled_heads().empty() && !config.model.embeds())
      throw Error(ExitCode::usage,
                  "--labelled needs a model with a head of type classify, tag, regress or embed");
    config::SourceConfig c = config.data.train;
    c.type = "labelled";
    c.paths = {{args.get("--labelled"), 1}};
    return c;
  }
  const bool is_text = args.has("--text");
  using Files = config::SourceType::Files;
  const config::SourceConfig& run = config.data.train;
  const std::string type =
      run.kind().files == Files::any
          ? run.type
          : config::first_type(config.model.family, is_text ? Files::text : Files::tokens);
  config::SourceConfig c;
  if (run.type == type) {
    c = run;
    c.weighted = false, c.fim = {};
  } else {
    c.field = run.field, c.documents = run.documents, c.next_sentence = run.next_sentence;
  }
  c.type = type;
  c.paths = {{args.get(is_text ? "--text" : "--tokens"), 1}};
  config::fill_derived(c, config.model);
  return c;
}

// Measures that models with other tokenizers share.
void add_text_scores(const config::Config& config, const config::SourceConfig& source,
                     const tokenizer::Tokenizer& tokenizer, const inference::Totals& totals,
                     nlohmann::ordered_json& results) {
  data::SourceSpec spec{.text = true, .paths = {}, .field = source.field};
  for (const config::SourcePath& p : source.paths) spec.paths.push_back({p.path, p.weight});
  if (source.documents != config::Documents::joined)
    spec.document_end = source.document_end >= 0
                            ? std::optional(static_cast<std::int32_t>(source.document_end))
                            : tokenizer.document_end();
  spec.document_begin = data::document_begin(config.data.add_begin, tokenizer, "data.tokenizer");
  // Packing leaves no token out.
  const bool packed = source.documents == config::Documents::packed;
  const auto text = inference::text_coverage(spec, tokenizer, packed ? 1 : config.train.seq_len);
  if (!text) return;
  TFM_CHECK(text->labels == totals.labels[0], "the labels are not those of the text");
  if (text->bytes > 0)
    results["bits_per_byte"] =
        totals.loss[0] / std::numbers::ln2 / static_cast<double>(text->bytes);
  if (text->words > 0)
    results["word_perplexity"] = std::exp(totals.loss[0] / static_cast<double>(text->words));
}

void add_translation_scores(const launch::Arguments& args, inference::LoadedModel& model,
                            const data::RunData& data, const config::SourceConfig& source,
                            const inference::TextFormat& format, nlohmann::ordered_json& results) {
  std::vector<std::string> sources, references;
  for (const data::PairSpec& spec : data::pair_files(source))
    data::each_pair(
        spec, [&](std::string_view s, std::string_view t, const std::string&, const std::string&) {
          sources.emplace_back(s);
          references.emplace_back(t);
        });
  inference::Translator translator(*model.model, model.config.model, model.rank_context,
                                   model.weights(), *data.tokenizer,
                                   launch::translator_options(args, format));
  const std::vector<std::string> translations = translator.translate(sources);
  if (rank_of_launch() == 0) launch::say_what_was_cut(translator, model.config.model.max_seq_len);
  results["bleu"] = text::corpus_bleu(translations, references);
  results["chrf"] = text::corpus_chrf(translations, references);
}

// Of what heads predict; null where there is no value.
void add_label_scores(inference::LoadedModel& model, const config::Config& config,
                      const config::SourceConfig& source, const data::RunData& data,
                      nlohmann::ordered_json& results) {
  if (config.model.embeds())
    for (const auto& [name, score] :
         inference::retrieval_scores(model, config, source, *data.tokenizer))
      results[name] = score;
  const auto heads = model.config.model.labelled_heads();
  for (const config::HeadConfig* head : heads) {
    const auto scores =
        inference::scores_of(*head, inference::predictions(model, config, *head, *data.validation));
    for (const auto& [name, score] : scores)
      results[model.config.model.heads.size() > 1 ? name + "_" + head->name : name] =
          std::isfinite(score) ? nlohmann::ordered_json(score) : nlohmann::ordered_json();
  }
}

// The loss and what follows from it, of each head.
nlohmann::ordered_json losses_of(const inference::Totals& totals,
                                 const std::vector<config::HeadConfig>& heads) {
  if (totals.labels[0] == 0)
    throw Error(ExitCode::input,
                heads.size() > 1
                    ? "the data has no labels of head " + in_quotes(heads[0].name) +
                          ", the first of model.heads, which `loss` and `accuracy` are of"
                    : "the data has no labels; expected at least one sequence of train.seq_len "
                      "tokens");
  nlohmann::ordered_json results{{"loss", totals.mean()}};
  if (heads[0].type != "regress") {
    results["perplexity"] = totals.perplexity();
    results["accuracy"] = totals.accuracy();
  }
  for (std::size_t k = 0; k < heads.size() && heads.size() > 1; ++k) {
    if (totals.labels[k] == 0) continue;
    results["loss_" + heads[k].name] = totals.mean(k);
    if (heads[k].type != "regress") results["accuracy_" + heads[k].name] = totals.accuracy(k);
  }
  if (!std::isfinite(totals.mean()))
    throw Error(ExitCode::numerical,
                "the loss is not finite; the weights hold NaN or Inf, or overflow");
  return results;
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv,
                               {{"--text"},
                                {"--tokens"},
                                {"--source"},
                                {"--target"},
                                {"--labelled"},
                                {"--tokenizer"},
                                {"--beam"},
                                {"--length-penalty"},
                                {"--max-tokens"},
                                {"--json"}},
                               config::meant_key);
  launch::Launch launch;
  args.check_outputs({"--json"});
  const std::string dir = launch.verified_path(args.only("model directory"));
  std::vector<std::string> overrides = args.overrides();
  if (args.has("--tokenizer")) overrides.push_back("data.tokenizer=" + args.get("--tokenizer"));
  config::Config config = inference::inference_config(dir, overrides, launch.ranks);
  inference::LoadedModel model = inference::load_model(dir, config, launch.rank_context(config));
  const config::SourceConfig source = source_of(args, config);
  config.train = inference::checkpoint_config(dir, overrides)
                     .train;  // masks and spans depend on the run's batches
  config.data.restart_positions =
      config.data.restarts() ? config::Switch::yes : config::Switch::no;  // as it was trained
  config.data.train = source;
  const bool pairs = source.kind().pairs;
  for (const char* option : {"--beam", "--length-penalty", "--max-tokens"})
    if (!pairs && args.has(option))
      throw Error(ExitCode::usage, std::string(option) + " needs sentence pairs to translate");
  config.train.global_batch_tokens = pairs ? std::max(config.train.seq_len, kPairTokens) : 0;
  const data::RunData data(config, source, names_data(args) ? "" : "data.validation");
  if (source.kind().files != config::SourceType::Files::tokens)
    launch::check_tokenizer(args, dir, *data.tokenizer, config.data);
  if (const std::string text = data::unused_ids(config, *data.tokenizer);
      !text.empty() && names_data(args) && !args.has("--tokens") && rank_of_launch() == 0)
    std::fprintf(stderr, "warning: %s\n", text.c_str());
  comm::check_same_on_all_ranks(model.rank_context.mesh.world(),
                                data::fingerprint(config, *data.validation, 0), "the data",
                                data::kSameDataRemedy);
  if ((pairs || source.kind().labelled) && rank_of_launch() == 0)  // of texts that were truncated
    for (const std::string& note : data.notes) std::fprintf(stderr, "warning: %s\n", note.c_str());
  const inference::Totals totals = inference::evaluate(model, config, *data.validation);
  nlohmann::ordered_json results = losses_of(totals, model.config.model.heads);
  if (source.kind().plain_text() && !source.weighted && source.fim.rate == 0)
    add_text_scores(config, source, *data.tokenizer, totals, results);
  if (source.kind().labelled) add_label_scores(model, config, source, data, results);
  if (pairs) {
    const inference::TextFormat format = inference::text_format(dir, *data.tokenizer);
    if (rank_of_launch() == 0) launch::say_what_is_ignored(args, dir, format, true);
    add_translation_scores(args, model, data, source, format, results);
  }
  results["tokens"] = totals.labels[0];
  if (model.rank_context.mesh.rank() != 0) return 0;
  for (const auto& [name, value] : results.items())
    std::printf("%-15s %s\n", name.c_str(), value.dump().c_str());
  if (args.has("--json")) launch::write_text(args.get("--json"), results.dump(2) + "\n");
  return 0;
}

}  // namespace

int tfm::launch::eval_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run);
}
