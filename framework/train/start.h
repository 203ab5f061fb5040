#pragma once
// Where a run starts.
#include "plan/choose.h"
#include "train/observer.h"

namespace tfm::train {

// Whether what a run asks for at its start, its data aside, can be opened and fits: checkpoints to
// start from, the directory to write them to, the objective of each head.
void check_start(const config::Config& config, config::Problems& problems);
// Whether the latest checkpoint of the directory has the same model; the run itself finds that in
// start_from().
void check_latest(const config::Config& config, config::Problems& problems);

// What the run that this one goes on from has chosen for `auto`. None where there is no such run,
// or it cannot be read: start_from() says why.
std::optional<plan::EarlierChoice> earlier_choice(const config::Config& config);

// The first weights: those of a checkpoint, with all else that training goes on from; those of
// model.init; or initial values. Sets TrainingRun::step, TrainingRun::origin and TrainingRun::best.
// Collective.
void start_from(TrainingRun& run);

}  // namespace tfm::train
