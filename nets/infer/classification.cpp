#include "nets/infer/classification.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "convolume/cpu.hpp"
#include "convolume/memory.hpp"
#include "core/files.hpp"
#include "nets/base/memory_limit.hpp"
#include "nets/data/padded_rows.hpp"
#include "nets/infer/classifier.hpp"
#include "nets/infer/inference_options.hpp"
#include "nets/infer/inference_volume.hpp"
#include "nets/io/csv.hpp"

namespace convolume::nets {
namespace {

namespace fs = std::filesystem;

bool is_table(const fs::path& output) { return output.extension() == ".csv"; }

/// Refuses options that are for volumes as output.
void check_options(const InferOptions& o) {
  const std::string classifier = fmt::format("{} is a classifier", o.checkpoint.string());
  if (!is_table(o.output)) {
    throw InvalidArgument(
        fmt::format("--out {}: {}, which writes a table; name a file .csv", o.output.string(), classifier));
  }
  const auto refuse = [&](const char* option, bool given, const char* reason) {
    if (!given) return;
    throw InvalidArgument(fmt::format("{}: {}, {}; leave the option out", option, classifier, reason));
  };
  constexpr const char* central = "which reads the central patch of a case, of its training extent";
  constexpr const char* table = "which writes a table";
  refuse("--patch", o.patch || o.cheapest_patch, central);
  refuse("--overlap", o.overlap.has_value(), central);
  refuse("--box", o.begin || o.end, central);
  refuse("--blend", o.blend != Blend::ramp, central);
  refuse("--flip", o.flip != std::array<bool, 3>{}, central);
  refuse("--labels", o.labels, table);
  refuse("--uint8", o.as_uint8, table);
  refuse("--resume", o.resume, "which writes nothing before its end");
  refuse("--trace", !o.trace.empty(), "whose tasks are not traced");
  refuse("--channel", !o.channels.empty() && !o.cases.empty(),
         "and the channels of several cases cannot be told apart");
  if (o.batch < 1) throw InvalidArgument(fmt::format("--batch is {}; at least 1 is needed", o.batch));
  std::error_code error;
  if (!fs::is_directory(folder_of(o.output), error)) {
    throw IoError(
        fmt::format("{}: the folder {} does not exist; make it", o.output.string(), folder_of(o.output).string()));
  }
}

class Classification {
 public:
  Classification(const InferOptions& o, const CheckpointHeader& header)
      : o_(o),
        header_(header),
        limit_(memory_limit(o.memory)),
        memory_({.upstream = o.upstream}),
        scheduler_(o.threads > 0 ? o.threads : default_threads(), {.change_affinity = o.change_affinity}),
        parameters_(header.net, false, 0, &memory_) {
    load_checkpoint(o.checkpoint, parameters_);
    const NetworkOptions network{.batch = o.batch,
                                 .engine = o.engine,
                                 .low_error = o.low_error,
                                 .memory_budget = std::min(usual_memory_budget, limit_ / 2),
                                 .stop = o.stop};
    classifier_ = std::make_unique<Classifier>(header.net, parameters_, network, header.pad, &memory_);
    require_memory();
    names_.push_back(o.volume);
    names_.insert(names_.end(), o.cases.begin(), o.cases.end());
  }

  /// Returns the table; an empty text if a stop request came first.
  std::string run() {
    std::vector<std::string> head{"case", "class"};
    for (const std::string& name : header_.class_names) head.push_back("probability " + name);
    std::string text = io::csv_line(head);
    const std::size_t group = cases_at_once();
    for (std::size_t first = 0; first < names_.size(); first += group) {
      const std::size_t count = std::min(group, names_.size() - first);
      if (!add_rows({names_.data() + first, count}, text)) return "";
      const auto done = static_cast<double>(first + count);
      if (o_.on_progress) o_.on_progress(done / static_cast<double>(names_.size()));
    }
    return text;
  }

 private:
  /// Throws InvalidArgument if the net alone takes more than the limit.
  void require_memory() const {
    const std::size_t needed =
        classifier_->bytes(scheduler_.threads()) + static_cast<std::size_t>(parameters_.count()) * sizeof(float);
    if (needed <= limit_) return;
    throw InvalidArgument(
        fmt::format("--memory allows {} MiB, but the net alone takes {} MiB with a batch of {}; allow more, or use a "
                    "smaller --batch",
                    limit_ >> 20, (needed >> 20) + 1, o_.batch));
  }
  /// Patches of so many cases are in memory: a quarter of it, but a batch at least.
  std::size_t cases_at_once() const {
    const auto patch = static_cast<std::size_t>(header_.net.in_channels * header_.net.patch.volume()) * sizeof(float);
    const std::size_t batch = classifier_->batch();
    return std::clamp(limit_ / 4 / patch / batch, std::size_t{1}, std::size_t{64}) * batch;
  }

  bool add_rows(std::span<const std::string> names, std::string& text) {
    std::vector<StoredVolume> images;
    std::vector<const StoredVolume*> pointers;
    for (const std::string& name : names) {
      auto image = read(name);
      if (!image) return false;
      images.push_back(std::move(*image));
    }
    for (const StoredVolume& image : images) pointers.push_back(&image);
    const auto probabilities = classifier_->run(pointers, scheduler_, o_.stop);
    if (probabilities.empty()) return false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::vector<std::string> row{names[i], header_.class_names[most_probable(probabilities[i])]};
      for (const float p : probabilities[i]) row.push_back(fmt::format("{}", p));
      text += io::csv_line(row);
    }
    return true;
  }

  /// Reads the central patch of a case, or as much of it as the case has. Returns nothing if a stop request came first.
  std::optional<StoredVolume> read(const std::string& name) {
    InferOptions own = o_;
    own.volume = name;
    InferenceVolume volume(own, header_, limit_, folder_of(o_.output));
    volume.choose_region(Stored::probabilities, static_cast<index_t>(header_.class_names.size()));
    const auto scaling = volume.scaling(scheduler_, &memory_);
    if (!scaling || o_.stop.stop_requested()) return std::nullopt;
    volume.check_scaling(*scaling, o_.checkpoint.string(), "train again");
    const Extent3 extent = volume.input().info().extent, patch = header_.net.patch;
    io::VoxelBox box{.begin = central_begin(extent, patch), .extent = patch};
    for (int axis = 0; axis < 3; ++axis) {
      box.begin[axis] = std::max<index_t>(0, box.begin[axis]);
      box.extent[axis] = std::min(extent[axis], patch[axis]);
    }
    if (header_.pad == Pad::none && box.extent != patch) {
      throw InvalidArgument(
          fmt::format("{}: has {} voxels, but {} reads patches of {}; use larger volumes, or train with [sampling] pad",
                      name, to_string(extent), o_.checkpoint.string(), to_string(patch)));
    }
    StoredVolume image = StoredVolume::read(volume.input(), box, &memory_);
    image.scale(scaling, box.begin.z);
    return image;
  }

  const InferOptions& o_;
  const CheckpointHeader& header_;
  std::size_t limit_;
  SlabResource memory_;
  Scheduler scheduler_;
  Parameters parameters_;
  std::unique_ptr<Classifier> classifier_;
  std::vector<std::string> names_;  // of the cases
};

}  // namespace

void refuse_classifier_options(const InferOptions& o) {
  if (is_table(o.output)) {
    throw InvalidArgument(
        fmt::format("--out {}: {} segments volumes, and only a classifier writes a table; name a "
                    "volume, for example .tif or .zarr",
                    o.output.string(), o.checkpoint.string()));
  }
  if (!o.cases.empty()) {
    throw InvalidArgument(
        fmt::format("{}: {} segments one volume at a time, and only a classifier reads several; name "
                    "one, or give further channels with --channel",
                    o.cases.front(), o.checkpoint.string()));
  }
}

void refuse_classifier(const CheckpointHeader& header, const fs::path& checkpoint, const std::string& reason) {
  if (header.class_names.empty()) return;
  throw InvalidArgument(
      fmt::format("{}, but {} is a classifier; use infer with a table (.csv) as output", reason, checkpoint.string()));
}

bool classify(const InferOptions& options, const CheckpointHeader& header) {
  check_options(options);
  std::string table;
  try {
    table = Classification(options, header).run();
  } catch (const StopRequested&) {
    return false;  // while layers were planned
  }
  if (table.empty()) return false;
  write_file_atomically(options.output, table);
  return true;
}

}  // namespace convolume::nets
