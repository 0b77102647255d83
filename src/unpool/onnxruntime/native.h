/* Plans of nodes without Python: by planners that are among the kernels, `unpool/kernels/cpu/planner`. */
#include "node.h"
#include "kernels.h"

enum { MAX_REQUEST = 2048, MAX_KEY = MAX_INPUTS * (MAX_RANK + 2) + MAX_RANK };

typedef struct Request { /* what a planner is asked for a node, but for the inputs of a run */
    const Node *node;
    int64_t planner; /* number of a kernel; 0: none plans this node */
    int64_t count, words[MAX_REQUEST];
} Request;

/* 1 if there are no kernels yet. */
int native_is_new(void);

/* Find the kernels of a program without Python. */
void native_open(void);

/* The request for a node, which has to live as long; its planner is 0 if none knows its attributes. */
void native_describe(const Node *node, Request *request);

/* The plan for the inputs of a run that a key describes; NULL if the planner does not know, or a kernel is missing. One
 * with constants comes with the plan that computes them from the node's inputs: its outputs are the constants, in this
 * order. With `is_alone` nothing else can plan: then slower algorithms take the place of those that it lacks. */
Plan *native_plan(const Request *request, const Call *call, const int64_t *key, int64_t count, int is_alone, Plan **packing);
