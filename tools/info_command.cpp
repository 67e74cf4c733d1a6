#include "tools/arguments.hpp"
#include "tools/info.hpp"
#include "tools/text_file.hpp"
#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace convolume::tools {

void InfoCommand::add_to(CLI::App& app) {
  app.add_option(
      "file", file_,
      "Net description (TOML), checkpoint or volume; if absent, the machine and the libraries are described");
  app.add_option("--set", overrides_, "Replace a value of the net: table.key=value");
  app.add_option("--patch", patch_, "Input patch: z,y,x or one number; not of a classifier")->delimiter(',');
  app.add_option("--threads", threads_,
                 "Threads of the training whose memory is computed; 0 means the default of train")
      ->check(CLI::Range(0, 1024));
  auto* blocking = app.add_flag("--blocking", blocking_,
                                "Count the bytes that each convolution of the net moves between the caches, and say "
                                "what bounds it");
  auto* curve = app.add_flag("--memory-curve", memory_curve_,
                             "Print the predicted time of a training iteration of the net against its memory, and the "
                             "--memory of train that leads to it")
                    ->excludes(blocking);
  app.add_option("--svg", svg_, "With --memory-curve: also write a picture to this file")->needs(curve);
  app.add_flag("--json", json_, "With --blocking or --memory-curve: print one JSON object");
}

void InfoCommand::check_options(nets::FileKind kind) const {
  const bool net = kind == nets::FileKind::net;
  if (!net && (!overrides_.empty() || !patch_.empty())) {
    throw InvalidArgument(fmt::format("{}: is no net, so --set and --patch have no meaning; leave them out", file_));
  }
  if (json_ && !blocking_ && !memory_curve_) {
    throw InvalidArgument("info: --json needs --blocking or --memory-curve; other information is text");
  }
  if ((blocking_ || memory_curve_) && (file_.empty() || !net)) {
    throw InvalidArgument(fmt::format(
        "{}: {}; name a net description (TOML)", file_.empty() ? "info" : file_,
        blocking_ ? "--blocking counts the layers of a net" : "--memory-curve describes the training of a net"));
  }
}

void InfoCommand::print_memory_curve() const {
  if (!svg_.empty()) require_writable(svg_);
  const auto points = nets::memory_curve(file_, overrides_, extent_of(patch_, "--patch"), threads_);
  if (!svg_.empty()) write_text(svg_, memory_picture(points, file_));
  fmt::print("{}", json_ ? memory_json(points) : memory_table(points));
}

int InfoCommand::run() const {
  const nets::FileKind kind = file_.empty() ? nets::FileKind::net : nets::kind_of_file(file_);
  check_options(kind);
  if (memory_curve_) {
    print_memory_curve();
  } else if (blocking_) {
    const auto layers = nets::count_blocking(file_, overrides_, extent_of(patch_, "--patch"));
    fmt::print("{}", json_ ? blocking_json(layers) : blocking_table(layers));
  } else if (kind == nets::FileKind::volume) {
    fmt::print("{}", nets::describe_volume(file_));
  } else if (kind == nets::FileKind::checkpoint) {
    fmt::print("{}", nets::describe_checkpoint(file_));
  } else {
    fmt::print("{}", machine_text());
    if (!file_.empty()) {
      fmt::print("\n{}", nets::describe_net(file_, overrides_, extent_of(patch_, "--patch"), threads_));
    }
  }
  return 0;
}

}  // namespace convolume::tools
