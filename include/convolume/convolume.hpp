// Includes all public headers.
#pragma once

#include "convolume/address.hpp"
#include "convolume/blocking.hpp"
#include "convolume/conv.hpp"
#include "convolume/conv_problem.hpp"
#include "convolume/cpu.hpp"
#include "convolume/error.hpp"
#include "convolume/fft.hpp"
#include "convolume/machine.hpp"
#include "convolume/memory.hpp"
#include "convolume/nest.hpp"
#include "convolume/nets.hpp"
#include "convolume/ready.hpp"
#include "convolume/scheduler.hpp"
#include "convolume/tensor.hpp"
#include "convolume/transfer.hpp"
#include "convolume/version.hpp"
