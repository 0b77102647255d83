/* A plan: what one operator computes for one set of shapes, as data. `plans.py` writes plans. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { PLAN_ABI = 1, MAX_OPERANDS = 32 };

typedef struct Plan Plan;

typedef struct PlanOutput { /* an output: its bytes, and its shape, of `rank` sizes */
    int64_t size, rank;
    const int64_t *dims;
} PlanOutput;

/* The size of the plan that a blob begins with; 0 if it is none. */
int64_t plan_size(const void *blob, int64_t room);

/* The plan in a blob of `size` bytes, which is copied; NULL, and a sentence, if it is damaged. */
Plan *plan_read(const void *blob, int64_t size, char *message, int64_t room);
void plan_free(Plan *plan);

/* Set the addresses of a plan's kernels, and of its constants, before it runs. They have to stay valid until it is freed. */
void plan_link(Plan *plan, const int64_t *kernels);
void plan_bind(Plan *plan, void *const *constants);

int plan_is_equal(const Plan *plan, const Plan *other); /* 1 if both are the same bytes */

/* What a plan says about its kernels: the library, the digest of its sources, and symbols. */
const char *plan_library(const Plan *plan);
const char *plan_digest(const Plan *plan);
int64_t plan_kernel_count(const Plan *plan);
const char *plan_kernel(const Plan *plan, int64_t number);
int64_t plan_constant_count(const Plan *plan);

/* The inputs that it is for, as `node_run.c` describes them. */
const int64_t *plan_key(const Plan *plan, int64_t *count);
int64_t plan_input_count(const Plan *plan);
int64_t plan_output_count(const Plan *plan);
PlanOutput plan_output(const Plan *plan, int64_t number);

/* Call `task(data, part)` for every part, on any threads; 0 if no part was called. */
typedef int (*ParallelFor)(void *context, void (*task)(void *, size_t), size_t parts, void *data);

enum PlanResult { PLAN_DONE, PLAN_FAILED, PLAN_NOT_MET };

/* Compute the outputs from inputs of `sizes` bytes, NULL where there is none; there are as many as the plan says.
 * PLAN_FAILED comes with a sentence; after PLAN_NOT_MET another way has to compute all outputs. */
enum PlanResult plan_run(const Plan *plan, void *const *inputs, const int64_t *sizes, void *const *outputs,
                         ParallelFor parallel_for, void *context, char *message, int64_t room);
