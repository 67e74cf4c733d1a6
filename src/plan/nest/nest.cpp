// Text of loop nests, and the loops of a nest in a space.
#include "convolume/nest.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "plan/nest/nest_text.hpp"

namespace convolume::plan {
namespace {

constexpr std::array<const char*, all_dims.size()> dim_names{"n", "k", "c", "z", "y", "x", "kz", "ky", "kx"};
constexpr const char* valid_tokens =
    "write dimensions (n k c z y x kz ky kx), each with an extent if it is not all of it, with '+' if it has separate "
    "sums, and with '*' if it is parallel, and '|' before the microkernel, for example \"n* k* y* c x | kz ky kx c16 "
    "x14 k32\"";

std::string where(const LoopNest& nest, std::size_t loop) {
  return fmt::format("nest '{}': loop {} '{}'", to_string(nest), loop + 1, to_string(nest.loops[loop]));
}

/// Reads one token. Throws InvalidArgument.
Loop parse_token(const Word& word) {
  std::string_view rest = word.token;
  Loop loop;
  // Names of two letters come first, because "k" begins "kz".
  const auto matches = [&](std::size_t length) {
    const auto found = std::find(dim_names.begin(), dim_names.end(), rest.substr(0, length));
    if (found == dim_names.end()) return false;
    loop.dim = static_cast<Dim>(found - dim_names.begin());
    rest.remove_prefix(std::min(length, rest.size()));
    return true;
  };
  if (!(rest.size() > 1 && matches(2)) && !matches(1)) word.refuse("has no dimension", valid_tokens);
  if (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), loop.extent);
    if (error != std::errc()) word.refuse("has an extent that does not fit into 64 bits", "write the loop's extent");
    if (loop.extent < 1) word.refuse("has no iterations", "extents are at least 1; without an extent it is all of it");
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  if (rest.starts_with('+')) {
    loop.separate = true;
    rest.remove_prefix(1);
  }
  if (rest == "*") {
    loop.parallel = true;
    rest = {};
  }
  if (!rest.empty()) word.refuse(fmt::format("ends with '{}'", rest), valid_tokens);
  return loop;
}

/// Throws InvalidArgument if two loops of a dimension, both outside or both inside of the microkernel, have the same
/// extent, or if an extent is larger than that of the loop outside of it.
void check_falling(const LoopNest& nest) {
  for (const Dim dim : all_dims) {
    std::optional<std::size_t> outer;
    for (std::size_t i = 0; i < nest.loops.size(); ++i) {
      const Loop& loop = nest.loops[i];
      if (loop.dim != dim) continue;
      const bool same_part = outer && (*outer < nest.microkernel) == (i < nest.microkernel);
      const index_t above = outer ? nest.loops[*outer].extent : Loop::all;
      if (outer && above == loop.extent && same_part) {
        throw InvalidArgument(fmt::format("{} stands twice; leave one out", where(nest, i)));
      }
      if (above != Loop::all && (loop.extent == Loop::all || loop.extent > above)) {
        throw InvalidArgument(fmt::format("{} covers more than loop {} outside of it; write an extent of at most {}",
                                          where(nest, i), *outer + 1, above));
      }
      outer = i;
    }
  }
}

/// Throws InvalidArgument if a dimension of more than one iteration has no loop.
void check_complete(const LoopNest& nest, const Extents& extent) {
  for (const Dim dim : all_dims) {
    const index_t all = extent[static_cast<std::size_t>(dim)];
    const bool found = std::any_of(nest.loops.begin(), nest.loops.end(), [&](const Loop& l) { return l.dim == dim; });
    if (!found && all > 1) {
      throw InvalidArgument(fmt::format("nest '{0}': no loop covers '{1}', which has {2} iterations; add '{1}'",
                                        to_string(nest), name_of(dim), all));
    }
  }
}

bool sums_over(const NestSpace& space, Dim dim) {
  const bool tap = dim >= Dim::kz, channel = dim == Dim::k || dim == Dim::c;
  switch (space.written) {
    case Operand::w:
      return !tap && !channel;
    case Operand::x:
      return tap || dim == Dim::k;
    case Operand::y:
      return tap || dim == Dim::c;
  }
  return true;
}

/// Throws InvalidArgument if loops with separate sums are not the outermost ones of backward weights, over n, z and y
/// in this order.
void check_separate(const LoopNest& nest, const NestSpace& space) {
  for (std::size_t i = 0; i < nest.loops.size(); ++i) {
    const Loop& loop = nest.loops[i];
    if (!loop.separate) continue;
    const auto refuse = [&](const std::string& why) { throw InvalidArgument(where(nest, i) + why); };
    if (space.written != Operand::w) refuse(" has separate sums, which only backward weights has; leave out its '+'");
    if (loop.dim != Dim::n && loop.dim != Dim::z && loop.dim != Dim::y) {
      refuse(" has separate sums, which only loops over n, z and y have; leave out its '+'");
    }
    if (i >= nest.microkernel) refuse(" has separate sums inside of the microkernel; leave out its '+'");
    if (i > 0 && !nest.loops[i - 1].separate) {
      refuse(" has separate sums inside of a loop without; move it outwards or leave out its '+'");
    }
    if (i > 0 && nest.loops[i - 1].dim >= loop.dim) {
      refuse(fmt::format(" has separate sums inside of '{}'; such loops stand in the order n z y, each once",
                         to_string(nest.loops[i - 1])));
    }
  }
}

/// Throws InvalidArgument if parallel loops are not the outermost ones, or are not over n, k, c, z and y in this order.
/// Loops with separate sums come before the others.
void check_parallel(const LoopNest& nest, const NestSpace& space) {
  std::optional<Loop> before;
  for (std::size_t i = 0; i < nest.loops.size(); ++i) {
    const Loop& loop = nest.loops[i];
    if (!loop.parallel) continue;
    const auto refuse = [&](const std::string& why) { throw InvalidArgument(where(nest, i) + why); };
    if (i > 0 && !nest.loops[i - 1].parallel) {
      refuse(" is parallel inside of one that is not; move it outwards or leave out its '*'");
    }
    if (i >= nest.microkernel) refuse(" is parallel inside of the microkernel; leave out its '*'");
    if (sums_over(space, loop.dim) && !loop.separate) {
      const bool may_be = space.written == Operand::w && loop.dim != Dim::x;
      refuse(fmt::format(" is parallel, but '{}' is summed over, and sums of tasks would depend on their order; {}",
                         name_of(loop.dim), may_be ? "write '+*', or leave out its '*'" : "leave out its '*'"));
    }
    if (loop.dim >= Dim::x) {
      refuse(" is parallel, but tasks have whole rows and all taps; leave out its '*'");
    }
    if (before && before->dim == loop.dim) refuse(" is parallel, and so is the loop outside of it; leave out its '*'");
    if (before && before->separate == loop.separate && before->dim > loop.dim) {
      refuse(fmt::format(" is parallel inside of '{}'; parallel loops stand in the order n k c z y",
                         name_of(before->dim)));
    }
    before = loop;
  }
}

/// Calls body for each iteration of the loops from `at` to before `depth`.
void walk(const std::vector<BoundLoop>& loops, std::size_t at, std::size_t depth, Extents& begin, Extents& end,
          const std::function<void(const Extents&, const Extents&)>& body) {
  if (at == depth) {
    body(begin, end);
    return;
  }
  const auto dim = static_cast<std::size_t>(loops[at].dim);
  const index_t first = begin[dim], last = end[dim];
  for (index_t i = first; i < last; i += loops[at].step) {
    begin[dim] = i;
    end[dim] = std::min(last, i + loops[at].step);
    walk(loops, at + 1, depth, begin, end, body);
  }
  begin[dim] = first;
  end[dim] = last;
}

}  // namespace

void Word::refuse(const std::string& why, const std::string& valid) const {
  throw InvalidArgument(fmt::format("{} '{}': '{}' at position {} {}; {}", what, text, token, position, why, valid));
}

std::string to_string(const Loop& loop) {
  return fmt::format("{}{}{}{}", name_of(loop.dim), loop.extent == Loop::all ? "" : fmt::to_string(loop.extent),
                     loop.separate ? "+" : "", loop.parallel ? "*" : "");
}

std::string to_string(const LoopNest& nest) {
  std::vector<std::string> words;
  for (const Loop& loop : nest.loops) words.push_back(to_string(loop));
  const std::size_t bar = std::min(nest.microkernel, words.size());
  words.insert(words.begin() + static_cast<std::ptrdiff_t>(bar), "|");
  return fmt::format("{}", fmt::join(words, " "));
}

LoopNest parse_nest(std::string_view text) {
  LoopNest nest;
  bool has_bar = false;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \t", at)) != std::string_view::npos) {
    std::size_t end = std::min(text.find_first_of(" \t|", at), text.size());
    if (text[at] == '|') end = at + 1;
    const Word word{.what = "nest", .text = text, .token = text.substr(at, end - at), .position = at};
    if (word.token == "|") {
      if (has_bar) word.refuse("is the second '|'", "write one '|', before the microkernel");
      has_bar = true;
      nest.microkernel = nest.loops.size();
    } else {
      nest.loops.push_back(parse_token(word));
      if (nest.loops.size() > most_loops) word.refuse(fmt::format("is loop {}", most_loops + 1), "write fewer loops");
    }
    at = end;
  }
  if (!has_bar) throw InvalidArgument(fmt::format("nest '{}': '|' is missing; {}", text, valid_tokens));
  if (nest.microkernel == nest.loops.size()) {
    throw InvalidArgument(fmt::format("nest '{}': no loop stands behind '|'; {}", text, valid_tokens));
  }
  check_falling(nest);
  return nest;
}

void validate(const LoopNest& nest, std::span<const NestSpace> spaces) {
  check_falling(nest);
  if (spaces.empty()) return;
  Extents extent{};
  for (const NestSpace& space : spaces) {
    for (std::size_t i = 0; i < extent.size(); ++i) extent[i] = std::max(extent[i], space.extent[i]);
  }
  check_complete(nest, extent);
  for (const Dim dim : all_dims) {
    const index_t all = extent[static_cast<std::size_t>(dim)];
    const auto outermost =
        std::find_if(nest.loops.begin(), nest.loops.end(), [&](const Loop& loop) { return loop.dim == dim; });
    if (outermost == nest.loops.end() || outermost->extent == Loop::all || outermost->extent == all) continue;
    const auto loop = static_cast<std::size_t>(outermost - nest.loops.begin());
    throw InvalidArgument(
        fmt::format("{0} covers {1} of {2} iterations; the outermost loop over '{3}' covers all of "
                    "them: write '{3}' or '{3}{2}'",
                    where(nest, loop), outermost->extent, all, name_of(dim)));
  }
  for (std::size_t i = 0; i < nest.loops.size(); ++i) {
    const Loop& loop = nest.loops[i];
    const index_t all = extent[static_cast<std::size_t>(loop.dim)];
    if (loop.extent > all) {
      throw InvalidArgument(fmt::format("{} covers more than the {} iterations of its dimension; write '{}'",
                                        where(nest, i), all, name_of(loop.dim)));
    }
  }
  check_separate(nest, spaces.front());
  check_parallel(nest, spaces.front());
}

std::vector<BoundLoop> bind(const LoopNest& nest, const NestSpace& space) {
  check_falling(nest);
  check_complete(nest, space.extent);
  std::vector<BoundLoop> loops;
  Extents left = space.extent;
  std::array<std::optional<std::size_t>, all_dims.size()> outer{};
  for (std::size_t i = 0; i < nest.loops.size(); ++i) {
    const Loop& loop = nest.loops[i];
    const auto dim = static_cast<std::size_t>(loop.dim);
    if (!outer[dim] && loop.extent != Loop::all && loop.extent < left[dim]) {
      throw InvalidArgument(fmt::format("{} covers less than the {} iterations of its dimension; write '{}'",
                                        where(nest, i), left[dim], name_of(loop.dim)));
    }
    if (loop.extent != Loop::all) left[dim] = std::min(left[dim], loop.extent);
    loops.push_back({.dim = loop.dim, .extent = left[dim], .step = 1});
    if (outer[dim]) loops[*outer[dim]].step = left[dim];
    outer[dim] = i;
  }
  return loops;
}

void for_each_tile(const LoopNest& nest, const NestSpace& space, std::size_t depth,
                   const std::function<void(const Extents&, const Extents&)>& body) {
  if (depth > nest.loops.size()) {
    throw InvalidArgument(fmt::format("nest '{}': depth {} lies inside of its {} loops; use at most their number",
                                      to_string(nest), depth, nest.loops.size()));
  }
  Extents begin{}, end = space.extent;
  walk(bind(nest, space), 0, depth, begin, end, body);
}

const char* name_of(Dim dim) noexcept { return dim_names[static_cast<std::size_t>(dim)]; }

const char* name_of(Operand operand) noexcept {
  constexpr std::array names{"x", "w", "y"};
  return names[static_cast<std::size_t>(operand)];
}

}  // namespace convolume::plan
