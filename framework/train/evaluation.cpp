// Evaluates validation data every eval.every steps, with averaged weights where they are enabled.
#include <chrono>
#include <functional>

#include "inference/text_format.h"
#include "inference/translator.h"
#include "text/translation_scores.h"
#include "train/observers.h"

namespace tfm::train {
namespace {

class Evaluation final : public Observer {
 public:
  explicit Evaluation(TrainingRun& run) : batches_(run.data.validation_batches(run.config)) {
    if (run.engine.plan().translator) lines_ = run.data.validation_lines(run.config);
    if (batches_ > 0)
      loader_.reset(
          new data::DataLoader(run.engine.evaluation_loader(*run.data.validation, batches_)));
  }

  bool needs_engine(const TrainingRun& run) const override {
    const std::int64_t every = run.config.eval.every;
    return run.due(every) || (run.last() && every > 0);
  }

  void on_start(TrainingRun& run) override {
    if (run.evaluation_due) evaluate(run);
  }

  void after_step(TrainingRun& run) override {
    run.evaluation_due = false;
    if (needs_engine(run)) evaluate(run);
  }

 private:
  void evaluate(TrainingRun& run) {
    const config::EvalConfig& eval = run.config.eval;
    const auto start = std::chrono::steady_clock::now();
    run.watchdog.set_timeout(run.config.parallel.longest_wait());
    // Not where eval.stop needs to know, nor where no checkpoint says that it is due.
    const bool may_wait = !eval.stop && !run.config.checkpoint.directory().empty();
    const auto go_on = [&] {
      run.tell(&Observer::during_evaluation);
      return !run.stop_requested || !may_wait;
    };
    run.engine.swap_average();
    inference::Totals totals;
    if (loader_) totals = run.engine.evaluate(*loader_, batches_, go_on);
    std::vector<std::string> translations;
    if (!run.stop_requested || !may_wait) translations = translate(run, go_on);
    run.evaluation_due = run.stop_requested && may_wait;
    run.engine.swap_average();
    if (run.evaluation_due) {
      if (run.lead())
        say("evaluation of step " + std::to_string(run.step) +
            " is left to the next start, as the run is to stop");
      return;
    }
    if (totals.labels[0] == 0) refuse_unlabelled(run.config);
    using enum config::Metric;
    EvaluationResult found{.values = {{loss, totals.mean()}, {perplexity, totals.perplexity()}},
                           .tokens = totals.labels[0],
                           .terms = totals};
    if (eval.has(accuracy)) found.values[accuracy] = totals.accuracy();
    if (eval.has(bleu)) found.values[bleu] = text::corpus_bleu(translations, lines_.target);
    if (eval.has(chrf)) found.values[chrf] = text::corpus_chrf(translations, lines_.target);
    found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run.time_left.add_evaluation(run.step, found.seconds);
    run.tell(&Observer::after_evaluation, found);
  }

  // Ends the run on all ranks: a loss of 0 over nothing would be the best of all.
  static void refuse_unlabelled(const config::Config& config) {
    config::Problems problems(config.places);
    problems.add({"data.validation.path", "data.validation.source"},
                 "data.validation has no labels in the batches of an evaluation; expected some: "
                 "with documents separate, documents of more than one token; with type mlm, a "
                 "larger mask_probability or eval.batches; or eval.every 0",
                 "", ExitCode::input);
    problems.throw_if_any();
  }

  std::vector<std::string> translate(TrainingRun& run, const std::function<bool()>& go_on) {
    const plan::StepPlan& plan = run.engine.plan();
    if (!plan.translator) return {};
    const std::span<std::byte> memory = run.engine.idle_memory();
    comm::RankContext ranks = run.engine.rank_context();
    for (comm::Mesh* mesh : {&ranks.mesh, &ranks.tensors}) *mesh = mesh->without(nn::kStageAxes);
    inference::TranslatorOptions options = inference::translation_of(run.config);
    options.format = inference::text_format_of_run(
        run.provenance, run.config.checkpoint.dir + "/tokenizer", *run.data.tokenizer);
    inference::Translator translator(
        *plan.translator, run.config.model, ranks, run.engine.translator_weights(memory.data()),
        *run.data.tokenizer, options,
        memory.subspan(static_cast<std::size_t>(plan::whole_parameters(plan).bytes())));
    return translator.translate(lines_.source, go_on);
  }

  std::int64_t batches_;
  data::RunData::Lines lines_;  // translated at each evaluation
  std::unique_ptr<data::DataLoader> loader_;
};

}  // namespace

std::unique_ptr<Observer> evaluate_regularly(TrainingRun& run) {
  return std::make_unique<Evaluation>(run);
}

}  // namespace tfm::train
