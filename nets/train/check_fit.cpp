#include "nets/train/check_fit.hpp"

#include <fmt/format.h>

#include "convolume/error.hpp"
#include "nets/spec/net_shapes.hpp"

namespace convolume::nets {
namespace {

/// Throws ConfigError unless the net has the outputs that the labels of the data set need.
void check_outputs(const NetSpec& spec, const Dataset& data, index_t channels) {
  const char* const loss = ops::name_of(spec.loss.kind);
  if (data.regions > 0 && !spec.sigmoid()) {
    throw ConfigError(
        fmt::format("{}: loss.kind = \"{}\" cannot learn the {} overlapping regions that [label] regions of data set "
                    "'{}' lists; use binary_cross_entropy or dice, or replace 'regions' by 'classes'",
                    spec.origin, loss, data.regions, data.name));
  }
  if (data.regions > 0 && channels != data.regions) {
    throw ConfigError(
        fmt::format("{}: the net writes {} channels, but [label] regions of data set '{}' lists {} regions; use as "
                    "many output channels as regions",
                    spec.origin, channels, data.name, data.regions));
  }
  if (data.regions > 0 || spec.softmax() || channels == 1) return;
  if (spec.sigmoid()) {
    throw ConfigError(
        fmt::format("{}: the net writes {} channels with loss.kind = \"{}\", but data set '{}' has no [label] regions; "
                    "list the stored values of {} regions there, or use 1 channel or softmax_cross_entropy",
                    spec.origin, channels, loss, data.name, channels));
  }
  throw ConfigError(
      fmt::format("{}: the net writes {} channels, but {} compares with one label channel; use 1 channel, or another "
                  "loss.kind",
                  spec.origin, channels, loss));
}

/// Throws ConfigError unless the net can learn the classes of whole volumes.
void check_classifier(const NetSpec& spec, const Dataset& data, const NetShapes& shapes) {
  if (!shapes.one_voxel()) {
    throw ConfigError(
        fmt::format("{}: the output has {} voxels at input.patch, but the cases of data set '{}' have classes, by "
                    "[label] class_of; make the output one voxel, for example with kernel = \"all\", or train with "
                    "labels",
                    spec.origin, to_string(shapes.output().extent), data.name));
  }
  if (!spec.softmax()) {
    throw ConfigError(
        fmt::format("{}: loss.kind = \"{}\" cannot learn the classes of data set '{}'; use softmax_cross_entropy",
                    spec.origin, ops::name_of(spec.loss.kind), data.name));
  }
  check_classes(data, shapes.output().channels);
  const auto cases = static_cast<index_t>(data.train.size());
  if (spec.training.batch <= cases) return;
  throw ConfigError(fmt::format("{}: training.batch = {}, but data set '{}' has {} training cases; use a smaller batch",
                                spec.origin, spec.training.batch, data.name, cases));
}

/// Throws ConfigError unless the net can learn labels.
void check_labelled(const NetSpec& spec, const Dataset& data, const NetShapes& shapes) {
  if (!shapes.keeps_resolution()) {
    throw ConfigError(
        fmt::format("{}: the output has another resolution than the input, so the net is a classifier, but the volumes "
                    "of data set '{}' have labels; upsample the output, or use [label] class_of",
                    spec.origin, data.name));
  }
  check_outputs(spec, data, shapes.output().channels);
  if (data.regions == 0 && spec.loss.kind != ops::LossKind::square) {
    check_labels(data, spec.softmax() ? shapes.output().channels : 0);
  }
}

}  // namespace

void check_fit(const NetSpec& spec, const Dataset& data) {
  check_patch(data, spec.patch);
  const NetShapes shapes = infer_shapes(spec, spec.patch);
  check_channels(data, spec.in_channels);
  (data.classifies() ? check_classifier : check_labelled)(spec, data, shapes);
}

}  // namespace convolume::nets
