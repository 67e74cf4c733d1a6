// Blocking strings: Yang et al., "A Systematic Approach to Blocking Convolutional Neural Networks", section 3.1.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "convolume/nest.hpp"
#include "plan/nest/nest_text.hpp"

namespace convolume::plan {
namespace {

/// Indexed by Dim. The paper's images have two axes; Z and Fd are the third.
constexpr std::array<std::string_view, all_dims.size()> names{"N", "K", "C", "Z", "Y", "X", "Fd", "Fh", "Fw"};
constexpr const char* valid_names =
    "write X Y Z C K Fw Fh Fd or N, a level that counts from 0 outwards, and an extent in brackets, for example "
    "\"FwFhX0(8)Y0(8)C0K0X1Y1\"";

bool over_taps(const Loop& loop) { return loop.dim >= Dim::kz; }

/// Returns the microkernel's loops in a list that begins with the innermost loop, if no "|" says it.
std::size_t usual_microkernel(const std::vector<Loop>& inward) {
  const auto end = std::find_if_not(inward.begin(), inward.end(), over_taps);
  return std::max<std::size_t>(1, static_cast<std::size_t>(end - inward.begin()));
}

class BlockingReader {
 public:
  explicit BlockingReader(std::string_view text) : text_(text) {}

  LoopNest read() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ') {
        ++at_;
      } else if (text_[at_] == '|') {
        if (bar_ > 0) word(1).refuse("is the second '|'", "write one '|', behind the microkernel");
        if (loops_.empty()) word(1).refuse("has no loop before it", valid_names);
        bar_ = loops_.size();
        ++at_;
      } else {
        read_loop();
      }
    }
    if (loops_.empty()) {
      throw InvalidArgument(fmt::format("blocking string '{}': it has no loops; {}", text_, valid_names));
    }
    const std::size_t inner = bar_ > 0 ? bar_ : usual_microkernel(loops_);
    LoopNest nest{.loops = {loops_.rbegin(), loops_.rend()}, .microkernel = loops_.size() - inner};
    return parse_nest(to_string(nest));  // checks the extents
  }

 private:
  Word word(std::size_t length) const {
    return {.what = "blocking string", .text = text_, .token = text_.substr(at_, length), .position = at_};
  }

  void read_loop() {
    const std::size_t next = text_.find_first_of("XYZCKFN|", at_ + 1);
    const Word token = word(std::min(next, text_.size()) - at_);
    std::string_view rest = token.token;
    const auto found =
        std::find_if(names.begin(), names.end(), [&](std::string_view n) { return rest.starts_with(n); });
    if (found == names.end()) token.refuse("has no dimension", valid_names);
    const auto dim = static_cast<std::size_t>(found - names.begin());
    rest.remove_prefix(found->size());
    while (rest.ends_with(' ')) rest.remove_suffix(1);
    Loop loop{.dim = static_cast<Dim>(dim)};
    index_t level = levels_[dim];
    if (!rest.empty() && rest.front() != '(') level = number(token, rest);
    if (level != levels_[dim]) {
      token.refuse(fmt::format("is not level {}", levels_[dim]), "levels of a dimension count from 0 outwards");
    }
    const bool inner_is_all = std::any_of(loops_.begin(), loops_.end(), [&](const Loop& inner) {
      return inner.dim == loop.dim && inner.extent == Loop::all;
    });
    if (inner_is_all) token.refuse("surrounds a loop of its dimension without an extent", "write it as X0(8)");
    ++levels_[dim];
    if (!rest.empty()) {
      if (rest.size() < 3 || rest.front() != '(' || rest.back() != ')') token.refuse("has no '(extent)'", valid_names);
      rest = rest.substr(1, rest.size() - 2);
      loop.extent = number(token, rest);
      if (loop.extent < 1 || !rest.empty()) token.refuse("has an invalid extent", "extents are numbers from 1 on");
    }
    loops_.push_back(loop);
    if (loops_.size() > most_loops) token.refuse(fmt::format("is loop {}", most_loops + 1), "write fewer loops");
    at_ += token.token.size();
  }

  /// Reads a number at the beginning of `rest` and removes it.
  static index_t number(const Word& token, std::string_view& rest) {
    index_t value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) token.refuse("has an invalid number", valid_names);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0, bar_ = 0;
  std::vector<Loop> loops_;  // the innermost first
  Extents levels_{};
};

}  // namespace

LoopNest parse_blocking_string(std::string_view text) { return BlockingReader(text).read(); }

std::string blocking_string(const LoopNest& nest) {
  const std::vector<Loop> inward(nest.loops.rbegin(), nest.loops.rend());
  Extents count{}, level{};
  for (const Loop& loop : inward) ++count[static_cast<std::size_t>(loop.dim)];
  const std::size_t inner = nest.loops.size() - nest.microkernel;
  std::string text;
  for (std::size_t i = 0; i < inward.size(); ++i) {
    const auto dim = static_cast<std::size_t>(inward[i].dim);
    text += names[dim];
    if (!over_taps(inward[i]) || count[dim] > 1) text += fmt::to_string(level[dim]);
    ++level[dim];
    if (inward[i].extent != Loop::all) text += fmt::format("({})", inward[i].extent);
    if (i + 1 == inner && inner != usual_microkernel(inward)) text += '|';
  }
  return text;
}

}  // namespace convolume::plan
