// What the costs of transfers and the search share. Arguments have been checked.
#pragma once

#include "convolume/transfer.hpp"

namespace convolume::plan {

/// Returns the tile that is the whole convolution of one sample and group.
TransferTile whole_tile(const TransferProblem& problem);
/// Returns the extent of the dimension that a letter of TransferProblem::order names.
index_t extent_of(const TransferTile& tile, char letter);
/// Returns the words that one half of the small memory holds.
double half_words(const TransferProblem& problem);
/// Returns the words that a tile takes of one half (paper 001, section 4.2).
double held_words(const TransferProblem& problem, const TransferTile& tile);
/// tile_cost() without checks.
TileCost equation_cost(const TransferProblem& problem, const TransferTile& tile);
/// exact_cost() without checks, in the space of the forward direction.
TileCost counted_cost(const TransferProblem& problem, const NestSpace& space, const TransferTile& tile);

}  // namespace convolume::plan
