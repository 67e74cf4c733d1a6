// Training, inference, evaluation and description of nets that are defined in TOML files.
#pragma once

#include "convolume/evaluation.hpp"
#include "convolume/inference.hpp"
#include "convolume/net_costs.hpp"
#include "convolume/training.hpp"
#include "convolume/volumes.hpp"
