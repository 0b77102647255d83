/* The libraries of kernels that unpool is shipped with, for programs without Python. */
#pragma once
#include "plan.h"

/* Give a plan the addresses of its kernels; 0, and a sentence, if its library is not there, another one, or not for this
 * processor. The library lies in the folder of this library, or in a folder `libraries` beside it, or one higher. */
int kernels_link(Plan *plan, char *message, int64_t room);

/* The table of kernels of the library for this processor, in those folders; NULL if there is none. */
const int64_t *kernels_table(void);
