#include "plan/choose.h"

#include <algorithm>

#include "core/strings.h"
#include "plan/layouts.h"
#include "plan/prediction.h"
#include "plan/rank_plans.h"

namespace tfm::plan {
namespace {

bool chooses_size(const LayoutChoice& c) { return c.micro_batch() == 0; }
bool chooses_recompute(const LayoutChoice& c) {
  return c.recompute == config::Recompute::automatic;
}

std::string gigabytes(std::int64_t bytes) {
  return printed("%.3g GB", static_cast<double>(bytes) * 1e-9);
}

std::string percent(double share) { return printed("%.2g %%", 100 * share); }

struct Candidate {
  LayoutChoice layout;
  std::int64_t bytes = 0;  // of the rank that needs most
  double seconds = 0;      // of a step, without what fills up its last micro-batch

  std::int64_t size() const { return layout.micro_batch(); }
  std::string recompute_text() const {
    const std::int64_t layers = layout.recompute_layers;
    return config::word(layout.recompute) + (layers > 0 ? " in " + counted(layers, "block") : "");
  }
  std::string size_text() const {
    return std::to_string(size()) + (layout.counts_tokens() ? " tokens" : "");
  }
  double saves(const Candidate& instead_of) const { return 1 - seconds / instead_of.seconds; }
};

// The micro-batch for one way to recompute.
struct Sized {
  Candidate at;
  std::optional<Candidate> next;  // the next larger size that was tried
  double gain = 0;                // the most that a larger one that fits saves
};

class Chooser {
 public:
  Chooser(const config::Config& config, int ranks, const DeviceModel& device)
      : given_(LayoutChoice::of(config)),
        device_(device),
        all_(config, ranks, From::first),
        smaller_(config, ranks, From::given) {}

  Choice choose() const {
    std::optional<Sized> best, before;
    const auto ways = chooses_recompute(given_) ? all_.recomputations(given_) : std::vector{given_};
    for (const LayoutChoice& recomputes : ways) {
      const auto found = sized(recomputes);
      if (!found) continue;
      if (!best || !fits(best->at) || (fits(found->at) && found->at.saves(best->at) >= kLeastGain))
        before = best, best = found;
      if (fits(found->at) && !(found->next && !fits(*found->next))) break;
    }
    if (!best) return {.layout = given_};
    if (chooses_recompute(given_)) best->at = with_fewest_layers(best->at);
    Choice choice{.layout = best->at.layout};
    if (chooses_size(given_))
      choice.micro_batch_text = best->at.size_text() + " (auto: " + why(*best) + ")";
    if (chooses_recompute(given_))
      choice.recompute_text =
          best->at.recompute_text() + " (auto: " + why_recompute(*best, before) + ")";
    return choice;
  }

  // Empty, with the reason, where the ranks cannot have the earlier choice or it does not fit.
  std::optional<Choice> keep(const EarlierChoice& earlier, std::string& why_not) const {
    LayoutChoice c = given_;
    if (chooses_size(c)) c = all_.with_micro_batch(c, earlier.layout.micro_batch());
    if (chooses_recompute(c))
      c.recompute = earlier.layout.recompute, c.recompute_layers = earlier.layout.recompute_layers;
    std::string refusal;
    const auto planned = plan(c, &refusal);
    if (planned && fits(*planned)) {
      Choice choice{.layout = planned->layout};
      const std::string from = " (auto: as in " + earlier.from + ")";
      if (chooses_size(given_)) choice.micro_batch_text = planned->size_text() + from;
      if (chooses_recompute(given_)) choice.recompute_text = planned->recompute_text() + from;
      return choice;
    }
    why_not = "; not as in " + earlier.from + ": ";
    if (planned)
      why_not += "micro-batch " + planned->size_text() + " with recompute " +
                 planned->recompute_text() + " takes " + gigabytes(planned->bytes) + " of " +
                 usable();
    else
      why_not += refusal;
    return std::nullopt;
  }

 private:
  bool fits(const Candidate& x) const { return x.bytes <= device_.usable_bytes(); }
  std::string usable() const { return gigabytes(device_.usable_bytes()); }

  std::optional<Candidate> plan(const LayoutChoice& c, std::string* refusal = nullptr) const {
    const auto resolved = all_.resolve(c, refusal);
    if (!resolved) return std::nullopt;
    StagePlans plans(*resolved);
    const StepPlan& p = plans.fullest();
    const ShapePlan& shape = p.largest();
    const std::int64_t computed = shape.sequences_per_rank() * p.mesh.layout.size(nn::kBatchAxes);
    Candidate planned{.layout = all_.with_micro_batch(c, resolved->train.micro_batch()),
                      .bytes = p.memory.total(),
                      .seconds = predict(plans.stages(), device_).seconds() *
                                 static_cast<double>(shape.batch) / static_cast<double>(computed)};
    planned.layout.recompute = resolved->recompute;
    return planned;
  }

  std::optional<Sized> sized(const LayoutChoice& c) const {
    std::optional<Sized> found;
    const auto sizes = chooses_size(c) ? smaller_.micro_batches(c) : std::vector{c};
    for (const LayoutChoice& size : sizes) {  // the largest first
      const auto planned = plan(size);
      if (!planned) continue;
      const bool first = !found;
      found = Sized{*planned, first ? std::nullopt : std::optional(found->at)};
      if (!fits(*planned)) continue;
      return first && chooses_size(c) ? enlarged(c, *planned) : found;
    }
    return found;
  }

  // Blocks at whose start the recomputation of a rank begins anew, of the rank that has most.
  std::int64_t blocks(const LayoutChoice& c) const {
    const auto resolved = all_.resolve(c);
    StagePlans plans(*resolved);
    int most = 0;
    for (const StepPlan* p : plans.stages())
      for (const graph::Node& n : p->largest().training.tape->nodes())
        most = std::max(most, n.scope + 1);
    return most;
  }

  // The same with the fewest blocks that recompute with which it fits.
  Candidate with_fewest_layers(const Candidate& x) const {
    LayoutChoice c = x.layout;
    if (c.recompute == config::Recompute::none || !fits(x)) return x;
    Candidate least = x;
    for (std::int64_t too_few = 0, enough = blocks(c); enough - too_few > 1;) {
      c.recompute_layers = (too_few + enough) / 2;
      const auto planned = plan(c);
      const bool good = planned && fits(*planned);
      if (good) least = *planned;
      (good ? enough : too_few) = c.recompute_layers;
    }
    return least;
  }

  // From `least`, which fits, to the smallest size that no larger one beats by kLeastGain. Memory
  // grows with the size, but not from each to the next, and the largest may fit again: alone in its
  // step it shares the gradients'.
  Sized enlarged(const LayoutChoice& c, const Candidate& least) const {
    constexpr std::size_t kTries = 3;  // sizes that do not fit, before only the largest is tried
    std::vector<Candidate> fitting{least}, unfit;
    std::vector<LayoutChoice> larger = all_.micro_batches(c);
    std::erase_if(larger, [&](const LayoutChoice& x) { return x.micro_batch() <= least.size(); });
    for (std::size_t i = 0; i < larger.size(); ++i) {
      const auto planned = plan(larger[i]);
      if (!planned) continue;
      if (fits(*planned)) {
        fitting.push_back(*planned);
        continue;
      }
      unfit.push_back(*planned);
      if (unfit.size() >= kTries && i + 2 < larger.size()) i = larger.size() - 2;
    }
    const Candidate& fastest = *std::ranges::min_element(fitting, {}, &Candidate::seconds);
    const auto at = std::ranges::find_if(
        fitting, [&](const Candidate& x) { return fastest.saves(x) < kLeastGain; });
    Sized chosen{*at, {}, fastest.saves(*at)};
    if (at + 1 != fitting.end()) {
      chosen.next = *(at + 1);
    } else {
      const auto next =
          std::ranges::find_if(unfit, [&](const Candidate& x) { return x.size() > at->size(); });
      if (next != unfit.end()) chosen.next = *next;
    }
    return chosen;
  }

  std::string why(const Sized& s) const {
    const std::string takes = gigabytes(s.at.bytes);
    if (!fits(s.at)) return "the smallest; it takes " + takes + " and does not fit in " + usable();
    if (!s.next) return "all sequences of a rank; it takes " + takes;
    const std::string next = s.next->size_text() + " would take " + gigabytes(s.next->bytes);
    if (!fits(*s.next)) return "the largest that fits in " + usable() + "; " + next;
    return (s.gain > 0
                ? "larger ones are predicted to save at most " + percent(s.gain) + " of a step"
                : "larger ones are predicted to be slower") +
           "; " + next + " instead of " + takes;
  }

  std::string why_recompute(const Sized& s, const std::optional<Sized>& before) const {
    const std::string with = "with micro-batch " + s.at.size_text();
    if (!fits(s.at)) return "does not fit in " + usable() + " even so";
    if (!before) return "fits in " + usable() + " " + with;
    const std::string other = config::word(before->at.layout.recompute);
    if (!fits(before->at))
      return other + " takes " + gigabytes(before->at.bytes) + " and does not fit in " + usable();
    return "predicted to save " + percent(s.at.saves(before->at)) + " of a step " + with +
           ", which does not fit with " + other;
  }

  const LayoutChoice given_;
  const DeviceModel& device_;
  const Layouts all_, smaller_;
};

}  // namespace

Choice choose(const config::Config& config, int ranks, const DeviceModel& device,
              const std::optional<EarlierChoice>& earlier) {
  config::Config checked = config;
  config::resolve_for_ranks(checked, ranks);
  const LayoutChoice given = LayoutChoice::of(config);
  if (!chooses_size(given) && !chooses_recompute(given)) return {.layout = given};
  const Chooser chooser(config, ranks, device);
  std::string why_not;
  if (earlier)
    if (const auto kept = chooser.keep(*earlier, why_not)) return *kept;
  Choice choice = chooser.choose();
  for (std::string* text : {&choice.micro_batch_text, &choice.recompute_text})
    if (!text->empty()) text->insert(text->size() - 1, why_not);
  return choice;
}

}  // namespace tfm::plan
