/* The planner in Python: a table of functions that the process sets, by `unpool/onnxruntime/callbacks.py`, and what it keeps
 * things for. */
#include "node.h"

typedef struct Answer { /* a plan for a new shape */
    int64_t id;       /* what the plan refers to lives until `unpool_forget` has it */
    const void *blob; /* for `plan_read` */
    int64_t size;     /* 0: there is no plan, so `compute` has to run */
    const int64_t *kernels;
    void *const *constants;
    int64_t fallbacks; /* that the plan should have, and has: with fewer it packs less, but may not be met */
} Answer;

typedef struct Planner { /* functions return OK or a code of OrtStatus, and write a message */
    int32_t (*create)(const Node *, char *message);
    int32_t (*plan)(Call *, const int64_t *key, int64_t count, Answer *);
    int32_t (*compute)(Call *);
    void (*set_kernels)(void); /* calls unpool_set_kernels */
} Planner;

const Planner *enter(void); /* the planner, NULL if there is none; `leave` follows */
void leave(void);
int is_alone(void); /* 1 without a planner */

typedef struct Owned { /* something that the planner in Python keeps things for, under its id; 0: it does not */
    int64_t id;
    struct Owned *next; /* of those that were destroyed */
} Owned;

int64_t new_id(void);

/* Free it, at once if no planner knows it, else when the planner has forgotten it. */
void let_go(Owned *owned, int is_known);
