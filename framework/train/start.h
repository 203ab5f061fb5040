#pragma once
// The start of a run, from a checkpoint or from initial weights.
#include "plan/choose.h"
#include "train/observer.h"

namespace tfm::train {

// For checkpoint.dir auto, on one rank: makes runs/NAME/checkpoints, or with the first of NAME-2,
// NAME-3, ... that is free, and returns it. Free is a directory without checkpoints, or with those
// of the same training before its last step, unless another run uses it; config.yaml beside it says
// whose it is. Error(usage) where it cannot be made.
std::string default_directory(const config::Config& config);
std::string first_directory(const config::Config& config);  // the one of NAME itself

// Checks that initial weights can be opened and fit the model, and that each head has an objective.
void check_start(const config::Config& config, config::Problems& problems);
// Checks that the checkpoint to resume from can be opened and fits, and the directory for new ones.
void check_checkpoints(const config::Config& config, config::Problems& problems);
// Checks that the latest checkpoint of the directory has the same model; the run itself finds that
// in start_from().
void check_latest(const config::Config& config, config::Problems& problems);

// What the run that this one resumes had chosen for `auto`. nullopt if there is no such run or it
// cannot be read, for which start_from() gives the reason.
std::optional<plan::EarlierChoice> earlier_choice(const config::Config& config);

// Collective: sets the first weights. Those of a checkpoint, with everything else that training
// resumes from; those of model.init; or initial values. Sets TrainingRun::step, provenance, best
// and evaluation_due.
void start_from(TrainingRun& run);

}  // namespace tfm::train
