// Writes a table of the classes of images.
#pragma once

#include "convolume/inference.hpp"
#include "nets/spec/checkpoint.hpp"

namespace convolume::nets {

/// Predicts the classes of cases with the classifier of a checkpoint, whose header is `header`, and writes them as CSV.
/// Returns false if a stop request came before the end; nothing is written then. Throws any Error: InvalidArgument for
/// options that only other nets have.
bool classify(const InferOptions& options, const CheckpointHeader& header);

/// Throws InvalidArgument for options that only classifiers have: a table as output, and several cases.
void refuse_classifier_options(const InferOptions& options);

/// Throws InvalidArgument if a checkpoint is a classifier, for functions that are for other nets. `reason` says what
/// these do.
void refuse_classifier(const CheckpointHeader& header, const std::filesystem::path& checkpoint,
                       const std::string& reason);

}  // namespace convolume::nets
